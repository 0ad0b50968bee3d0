"""One short text at a time on an idle engine: called offline by each library, and over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
from rich.console import Console

from . import machine, peers, servers
from .client import quantile
from .compare import Contest, LineUp, Plan
from .driver import WorkerProcess
from .errors import LoadFailed
from .parts import Aim, Panel, Part, Table, publish
from .rounds import rotated
from .subjects import SUBJECTS

TEXT = "Packed batches waste nothing on padding."
SUBJECTS_TIMED = ("cenote", "cenote-int8", "st-torch", "st-onnx", "st-openvino")
HTTP = "cenote-http"
COLUMNS = ("", "p50", "p99", "least", "p50 / ST ONNX O3")

_UNCOUNTED = 5  # calls after each change of turn: caches are somebody else's then
_OF_ONNX = {"cenote": 0.7, "cenote-int8": 0.5}
_HTTP_ADDS_MS = 1.5


@dataclass(frozen=True, slots=True)
class Sizes:
    """How often.

    Args:
        rounds: Turns of each subject.
        calls: Counted calls of each turn.
    """

    rounds: int
    calls: int


def run(plan: Plan, sizes: Sizes, console: Console) -> Part:
    """Take turns, print, and write the results.

    Raises:
        PeerUnavailable, WorkerFailed: A subject is missing and the plan does not allow that.
        LoadFailed: The server could not be started, or did not answer.
    """
    plan.output.mkdir(parents=True, exist_ok=True)
    model = peers.build_model("embed", console.print)
    line_up = LineUp(plan, Contest("latency", model, (), SUBJECTS_TIMED), console)
    line_up.build()
    machine.pin(plan.threads)
    busy = machine.busy_fraction()
    with ExitStack() as stack:
        asks: dict[str, Callable[[int], list[float]]] = {}
        for worker in line_up.start(stack):
            asks[worker.subject.name] = partial(_offline, worker)
        asks[HTTP] = _over_http(stack, plan.output / "latency-serve.log")
        seconds: dict[str, list[float]] = {name: [] for name in asks}
        with console.status("latency"):
            for turn in range(sizes.rounds):
                for name in rotated(list(asks), turn):
                    seconds[name] += asks[name](_UNCOUNTED + sizes.calls)[_UNCOUNTED:]
    part = found(seconds, line_up.missing)
    publish(part, plan.output, busy, console)
    return part


def found(seconds: dict[str, Sequence[float]] | dict[str, list[float]], missing: dict[str, str]) -> Part:
    """What the calls of each subject amount to.

    Args:
        seconds: Name -> of each counted call.
        missing: Name -> why it is not there.
    """
    p50 = {name: quantile(values, 0.5) * 1e3 for name, values in seconds.items()}
    onnx = p50.get("st-onnx")
    rows = tuple(
        (
            _title(name),
            f"{p50[name]:.2f} ms",
            f"{quantile(values, 0.99) * 1e3:.2f} ms",
            f"{min(values) * 1e3:.2f} ms",
            f"{p50[name] / onnx:.2f}x" if onnx else "-",
        )
        for name, values in seconds.items()
    )
    aims = [Aim("HTTP over offline, p50", p50[HTTP] - p50["cenote"], _HTTP_ADDS_MS, unit=" ms")]
    if onnx:
        aims += [
            Aim(f"{_title(name)}, p50 / that of ST ONNX O3", p50[name] / onnx, bound)
            for name, bound in _OF_ONNX.items()
        ]
    bars = Panel("median of one short text", "ms", "", {_title(name): [(0, value)] for name, value in p50.items()})
    table = Table("One short text at a time", COLUMNS, rows)
    named = {SUBJECTS[name].title: why for name, why in missing.items()}
    return Part("latency", [table], aims, [bars], {"seconds": seconds}, named)


def _title(name: str) -> str:
    return "Cenote over HTTP, httpx, kept alive" if name == HTTP else SUBJECTS[name].title


def _offline(worker: WorkerProcess, times: int) -> list[float]:
    seconds: list[float] = worker.ask("latency", text=TEXT, times=times)["seconds"]
    return seconds


def _over_http(stack: ExitStack, log: Path) -> Callable[[int], list[float]]:
    server = stack.enter_context(servers.served(log))
    client = stack.enter_context(httpx.Client(timeout=60))
    body = server.body([TEXT])
    url = f"http://127.0.0.1:{server.port}{server.kind.path}"

    def ask(times: int) -> list[float]:
        seconds = []
        for _ in range(times):
            start = time.perf_counter()
            answer = client.post(url, content=body, headers={"Content-Type": "application/json"})
            seconds.append(time.perf_counter() - start)
            if answer.status_code != 200:
                raise LoadFailed(f"{url} answered {answer.status_code}: {answer.text[:500]}")
        return seconds

    return ask
