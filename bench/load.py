"""What starting costs: import, first vector, a server that answers; its memory; the latency of one text."""

from __future__ import annotations

import http.client
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from . import machine, peers, report
from .driver import WorkerProcess
from .errors import LoadFailed
from .subjects import SUBJECTS

TEXT = "Packed batches waste nothing on padding."
START_TIMEOUT_S = 60.0
# What the installed command runs; works from a checkout as well.
CLI = (sys.executable, "-c", "import sys; from cenote.cli import main; sys.exit(main())")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    Args:
        repeats: Starts of each kind.
        calls: Single texts per latency figure.
        threads: CPUs that all are bound to.
        output: Folder of the results.
    """

    repeats: int
    calls: int
    threads: int
    output: Path


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity: all samples, in `unit`; the median is what tables show."""

    what: str
    unit: str
    samples: tuple[float, ...]

    def cells(self) -> tuple[str, str, str, str]:
        median = statistics.median(self.samples)
        return (self.what, self._text(median), self._text(min(self.samples)), self._text(max(self.samples)))

    def _text(self, value: float) -> str:
        return f"{value:,.0f} {self.unit}" if value >= 100 else f"{value:.3g} {self.unit}"


COLUMNS = ("", "median", "least", "most")


def run(plan: Plan, console: Console) -> list[Figure]:
    """Measure, print, and write `load.json` and `load.md`."""
    plan.output.mkdir(parents=True, exist_ok=True)
    machine.pin(plan.threads)
    busy = machine.busy_fraction()
    figures: list[Figure] = []
    with console.status("starting interpreters") as status:
        figures += _imports(plan.repeats)
        status.update("first vectors")
        figures.append(_repeat("process start to first vector, `cenote embed`", plan.repeats, _first_vector_s))
        status.update("server")
        figures += _server(plan)
        status.update("latency offline")
        figures += [_latency(name, plan) for name in ("cenote", "st-torch")]
    report.print_table(console, "Starting and serving", COLUMNS, [figure.cells() for figure in figures])
    _write(plan, figures, busy, console)
    return figures


def _repeat(what: str, repeats: int, once: Callable[[], float]) -> Figure:
    once()  # fills the page cache and writes bytecode
    return Figure(what, "s", tuple(once() for _ in range(repeats)))


def _imports(repeats: int) -> list[Figure]:
    empty = _repeat("an empty Python", repeats, lambda: _python_s("pass"))
    cenote = _repeat("import cenote", repeats, _import_s)
    return [empty, cenote]


def _python_s(code: str) -> float:
    start = time.perf_counter()
    checked([sys.executable, "-c", code])
    return time.perf_counter() - start


def _import_s() -> float:
    """Seconds of the import statement alone, in a fresh interpreter; refuses to count one that brings torch."""
    code = (
        "import sys, time; start = time.perf_counter(); import cenote; spent = time.perf_counter() - start\n"
        "print(spent, 'torch' in sys.modules)"
    )
    spent, has_torch = checked([sys.executable, "-c", code]).split()
    if has_torch == "True":
        raise LoadFailed("import cenote imported torch; it must not.")
    return float(spent)


def _first_vector_s() -> float:
    """Seconds from the start of the process until the vector is on its standard output."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [*CLI, "embed", TEXT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_env(), cwd=peers.ROOT
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    seconds = time.perf_counter() - start
    _, errors = process.communicate()
    if not line.strip() or process.returncode:
        raise LoadFailed(f"cenote embed ended with {process.returncode} and wrote {line!r}:\n{errors[-2000:]}")
    return seconds


def _server(plan: Plan) -> list[Figure]:
    ready: list[float] = []
    idle: list[float] = []
    busy: list[float] = []
    calls: list[float] = []
    for _ in range(plan.repeats):
        start = time.perf_counter()
        with served(plan.output / "serve.log") as (port, pid):
            ready.append(time.perf_counter() - start)
            idle.append(rss_mib(pid))
            calls += _http_latency_ms(port, max(plan.calls // plan.repeats, 20))
            _embed_over_http(port, [TEXT * 8] * 256)
            busy.append(rss_mib(pid))
    return [
        Figure("process start until /health answers 200", "s", tuple(ready)),
        Figure("server memory (RSS), ready", "MiB", tuple(idle)),
        Figure("server memory (RSS), after 256 texts in one request", "MiB", tuple(busy)),
        Figure("latency of one short text, HTTP, kept-alive", "ms", tuple(calls)),
    ]


@contextmanager
def served(log: Path) -> Iterator[tuple[int, int]]:
    """Start `cenote serve` on a free port and wait for /health; give (port, process id); end it afterwards.

    Raises:
        LoadFailed: It ended, or was not ready in time.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with log.open("w") as out:
        command = [*CLI, "serve", "--host", "127.0.0.1", "--port", str(port)]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=_env(), cwd=peers.ROOT)
    try:
        _wait_ready(process, port, log)
        yield port, process.pid
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.perf_counter() + START_TIMEOUT_S
    while time.perf_counter() < end:
        if process.poll() is not None:
            raise LoadFailed(f"cenote serve ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        if _healthy(port):
            return
        time.sleep(0.01)
    raise LoadFailed(f"cenote serve was not ready after {START_TIMEOUT_S:.0f} s; its log is {log}")


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:  # nobody listens yet
        return False
    finally:
        connection.close()


def _http_latency_ms(port: int, times: int) -> list[float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    milliseconds = []
    for _ in range(times + 5):
        start = time.perf_counter()
        _post(connection, [TEXT])
        milliseconds.append((time.perf_counter() - start) * 1e3)
    connection.close()
    return milliseconds[5:]  # the first few warm up


def _embed_over_http(port: int, texts: Sequence[str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    _post(connection, texts)
    connection.close()


def _post(connection: http.client.HTTPConnection, texts: Sequence[str]) -> None:
    body = json.dumps({"input": texts, "encoding_format": "base64"})
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise LoadFailed(f"/v1/embeddings answered {response.status}: {answer[:500]!r}")


def rss_mib(pid: int) -> float:
    """Resident memory of a process in MiB, from /proc."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise LoadFailed(f"process {pid} reports no VmRSS")


def _latency(name: str, plan: Plan) -> Figure:
    subject = SUBJECTS[name]
    with WorkerProcess(subject, plan.output / f"latency-{name}.log") as worker:
        worker.load(peers.Model("embed", peers.default_model(), peers.EXPORTS), plan.threads)
        worker.ask("latency", text=TEXT, times=20)
        seconds = worker.ask("latency", text=TEXT, times=plan.calls)["seconds"]
    return Figure(f"latency of one short text, offline, {subject.title}", "ms", tuple(s * 1e3 for s in seconds))


def checked(command: Sequence[str]) -> str:
    """Run a command and answer what it printed.

    Raises:
        LoadFailed: It ended with another status than 0.
    """
    done = subprocess.run(command, capture_output=True, text=True, env=_env(), cwd=peers.ROOT, check=False)
    if done.returncode:
        raise LoadFailed(f"{' '.join(command)[:120]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def _env() -> dict[str, str]:
    return peers.environment(in_peers=False)


def _write(plan: Plan, figures: Sequence[Figure], busy: float, console: Console) -> None:
    facts = machine.facts()
    named = [{"what": f.what, "unit": f.unit, "samples": f.samples} for f in figures]
    text = json.dumps({**facts, "busy_before": busy, "figures": named}, indent=2)
    (plan.output / "load.json").write_text(text + "\n")
    (plan.output / "load.md").write_text(report.markdown(COLUMNS, [figure.cells() for figure in figures]))
    report.print_busy(console, busy)
    console.print(
        f"wrote {plan.output / 'load.json'}\nwrote {plan.output / 'load.md'}", highlight=False, soft_wrap=True
    )
