"""Servers under measure: started, waited for, their memory and processor time read, and ended."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import peers
from .errors import LoadFailed

START_TIMEOUT_S = 60.0
# What the installed command runs; works from a checkout as well.
CLI = (sys.executable, "-c", "import sys; from cenote.cli import main; sys.exit(main())")


@dataclass(frozen=True, slots=True)
class Kind:
    """A server that can be started.

    Args:
        title: What tables call it.
        command: With `{port}` where the port belongs.
        path: Where it takes texts as OpenAI's embeddings.
        model: Name that requests give the model.
        in_peers: Whether it must not find this project's modules.
    """

    title: str
    command: tuple[str, ...]
    path: str = "/v1/embeddings"
    model: str = ""
    in_peers: bool = False


CENOTE = Kind("Cenote", (*CLI, "serve", "--host", "127.0.0.1", "--port", "{port}"))


def cenote(model: Path, *flags: str) -> Kind:
    """Cenote with a model of one's own."""
    return Kind("Cenote", (*CENOTE.command, "--model", str(model), *flags))


@dataclass(frozen=True, slots=True)
class Server:
    """One that is running."""

    kind: Kind
    port: int
    pid: int

    def cpu_s(self) -> float:
        """Processor time that it has used so far, its ended children included, in seconds; to a hundredth."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")

    def body(self, texts: Sequence[str]) -> bytes:
        """A request for the vectors of `texts`."""
        return json.dumps({"model": self.kind.model, "input": list(texts), "encoding_format": "base64"}).encode()

    def embed(self, texts: Sequence[str], timeout_s: float = 300) -> None:
        """Ask for the vectors of `texts` once.

        Raises:
            LoadFailed: It answered with another status than 200, or not within `timeout_s`.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request("POST", self.kind.path, self.body(texts), {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
        except OSError as error:
            raise LoadFailed(f"{self.kind.title} gave no answer for {len(texts)} texts: {error!r}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise LoadFailed(f"{self.kind.title} answered {response.status}: {answer[:500]!r}")


@contextmanager
def served(log: Path, kind: Kind = CENOTE, timeout_s: float = START_TIMEOUT_S) -> Iterator[Server]:
    """Start a server on a free port, wait for /health, and end it afterwards.

    Raises:
        LoadFailed: It ended, or was not ready in time.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [part.replace("{port}", str(port)) for part in kind.command]
    env = {**peers.environment(in_peers=kind.in_peers), "DO_NOT_TRACK": "1"}
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=peers.ROOT)
    try:
        _wait_ready(process, kind, port, log, timeout_s)
        yield Server(kind, port, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(process: subprocess.Popen[bytes], kind: Kind, port: int, log: Path, timeout_s: float) -> None:
    end = time.perf_counter() + timeout_s
    while time.perf_counter() < end:
        if process.poll() is not None:
            raise LoadFailed(f"{kind.title} ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        if _healthy(port):
            return
        time.sleep(0.01)
    raise LoadFailed(f"{kind.title} was not ready after {timeout_s:.0f} s; its log is {log}")


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:  # nobody listens yet
        return False
    finally:
        connection.close()


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """Memory of a process in MiB, by the name of a line of /proc: `VmRSS` all, `RssAnon` without mapped files.

    Raises:
        LoadFailed: The system reports no such line.
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise LoadFailed(f"process {pid} reports no {field}")


class Peak:
    """Watches the anonymous memory of a process from outside, every few milliseconds. Use it with `with`."""

    def __init__(self, pid: int, every_s: float = 0.005) -> None:
        self._pid, self._every_s = pid, every_s
        self.before_mib = self.mib = memory_mib(pid, "RssAnon")
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._done.wait(self._every_s):
            self.mib = max(self.mib, memory_mib(self._pid, "RssAnon"))

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
