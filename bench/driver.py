"""A worker process, as the side that drives it sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from . import peers
from .errors import WorkerFailed
from .subjects import Subject


class WorkerProcess:
    """One subject in its own interpreter. Use it with `with`; it lives until then.

    Args:
        subject: What to load.
        log: Where the process's prints and warnings go.
    """

    def __init__(self, subject: Subject, log: Path) -> None:
        self.subject = subject
        self.log = log
        python = str(peers.python()) if subject.in_peers else sys.executable
        with log.open("w") as err:
            self._process = subprocess.Popen(
                [python, "-m", "bench.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                cwd=peers.ROOT,
                env=peers.environment(in_peers=subject.in_peers),
            )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises:
            WorkerFailed: It answered with an error, or ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerFailed(f"{self.subject.title} ended during {op!r}; its log is {self.log}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(f"{self.subject.title} failed at {op!r}:\n{answer['error']}")
        return answer

    def load(self, model: peers.Model, threads: int) -> dict[str, Any]:
        """Load the subject; see `worker`."""
        where = {"model": str(model.folder), "exports": str(model.exports)}
        return self.ask("load", subject=self.subject.name, task=model.task, threads=threads, **where)

    def close(self) -> None:
        """End the process and wait for it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(timeout=20)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
