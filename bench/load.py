"""What starting costs: import, first vector, a server that answers; its memory; the latency of one text."""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from . import machine, peers, report, servers
from .driver import WorkerProcess
from .errors import LoadFailed
from .subjects import SUBJECTS

TEXT = "Packed batches waste nothing on padding."


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
        [*servers.CLI, "embed", TEXT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_env(),
        cwd=peers.ROOT,
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
        with servers.served(plan.output / "serve.log") as server:
            ready.append(time.perf_counter() - start)
            idle.append(servers.memory_mib(server.pid))
            calls += _http_latency_ms(server, max(plan.calls // plan.repeats, 20))
            server.embed([TEXT * 8] * 256)
            busy.append(servers.memory_mib(server.pid))
    return [
        Figure("process start until /health answers 200", "s", tuple(ready)),
        Figure("server memory (RSS), ready", "MiB", tuple(idle)),
        Figure("server memory (RSS), after 256 texts in one request", "MiB", tuple(busy)),
        Figure("latency of one short text, HTTP, kept-alive", "ms", tuple(calls)),
    ]


def _http_latency_ms(server: servers.Server, times: int) -> list[float]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    milliseconds = []
    for _ in range(times + 5):
        start = time.perf_counter()
        _post(connection, server)
        milliseconds.append((time.perf_counter() - start) * 1e3)
    connection.close()
    return milliseconds[5:]  # the first few warm up


def _post(connection: http.client.HTTPConnection, server: servers.Server) -> None:
    connection.request("POST", server.kind.path, server.body([TEXT]), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise LoadFailed(f"{server.kind.path} answered {response.status}: {answer[:500]!r}")


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
