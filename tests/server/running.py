"""A real server in a process of its own, for as long as a `with` lasts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

_ROOT = Path(__file__).resolve().parents[2]
_LAUNCH = Path(__file__).with_name("launch.py")
_READY_S = 120
_END_S = 60


class Server:
    """Starts on a free port and is asked at `url` once the block is entered.

    Args:
        model: Folder of the checkpoint.
        machine: Fields of `MachineSettings`.
        model_settings: Further fields of `ModelSettings`.
        faulty: Whether poison tokens set off faults.
        paths: Further folders of modules.
        **server: Fields of `ServerSettings`.
    """

    def __init__(
        self,
        model: Path | str,
        *,
        machine: Mapping[str, Any] | None = None,
        model_settings: Mapping[str, Any] | None = None,
        faulty: bool = False,
        paths: Sequence[Path] = (),
        **server: Any,
    ) -> None:
        self._given = {
            "model": {"model": str(model), **(model_settings or {})},
            "machine": {"device": "cpu", **(machine or {})},
            "server": server,
            "faulty": faulty,
        }
        self._paths = (_ROOT / "src", _ROOT / "tests", *paths)
        self.url = ""

    def __enter__(self) -> Self:
        modules = os.pathsep.join([*map(str, self._paths), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": modules}
        self._process = subprocess.Popen(
            [sys.executable, str(_LAUNCH), json.dumps(self._given)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        assert self._process.stdout is not None
        patience = threading.Timer(_READY_S, self._process.kill)
        patience.start()
        line = self._process.stdout.readline()
        patience.cancel()
        found = re.search(r"(https?://|unix:)\S+", line)
        if found is None:
            _, log = self._process.communicate(timeout=_END_S)
            raise AssertionError(f"The server said {line!r} and logged:\n{log}")
        self.url = found.group()
        return self

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def open_gate(self) -> None:
        """Let what waits at the gate of a faulty server go on."""
        self._process.send_signal(signal.SIGUSR1)

    def end(self) -> tuple[int, str]:
        """Wait for the process to end; its exit code and what it logged."""
        _, log = self._process.communicate(timeout=_END_S)
        return self._process.returncode, log

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.terminate()
            try:
                self._process.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()
                raise
