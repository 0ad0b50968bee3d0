"""A server under load: what a text costs it, beside the offline call and infinity, and who waits for whom."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from . import machine, peers
from .client import Answered, Client
from .driver import WorkerProcess
from .errors import LoadFailed, PeerUnavailable
from .mixed import mixed
from .parts import Aim, Panel, Part, Table, publish
from .rounds import rotated
from .servers import CENOTE, Kind, Server, served
from .subjects import SUBJECTS
from .texts import Workload, build, token_counter

LOADS = {"64 x 1": (64, 1), "16 x 32": (16, 32)}
"""Name -> connections, and texts in each request."""

COLUMNS = ("", "load", "texts/s", "CPU ms per text", "p50", "p99", "client's CPU")
_CPU_OF_OFFLINE = 1.15
_OVER_INFINITY = {"64 x 1": 4.0, "16 x 32": 2.3}
INFINITY = "infinity"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    Args:
        rounds: Turns of each load.
        seconds: Of each load in each round.
        num_texts: Distinct texts.
        threads: CPUs that all are bound to.
        output: Folder of the results.
        with_infinity: Whether infinity's server takes part.
    """

    rounds: int
    seconds: float
    num_texts: int
    threads: int
    output: Path
    with_infinity: bool


@dataclass(frozen=True, slots=True)
class Load:
    """One load on one server, in one round.

    Args:
        texts_per_s: Answered texts over the time that it took.
        cpu_ms: Processor time of the server per text.
        answered: What the client saw.
    """

    texts_per_s: float
    cpu_ms: float
    answered: Answered


def infinity() -> Kind:
    """infinity's server, with the default model and its own defaults for a CPU."""
    command = peers.python(INFINITY).with_name("infinity_emb")
    options = ("--model-id", str(peers.default_model()), "--served-model-name", "m", "--device", "cpu")
    flags = ("--engine", "torch", "--dtype", "float32", "--host", "127.0.0.1", "--port", "{port}")
    return Kind("infinity", (str(command), "v2", *options, *flags), "/embeddings", "m", in_peers=True)


def run(plan: Plan, console: Console) -> Part:
    """Measure, print, and write the results.

    Raises:
        LoadFailed, WorkerFailed: Cenote could not be started or did not answer.
    """
    plan.output.mkdir(parents=True, exist_ok=True)
    missing = _build_infinity(plan, console)
    machine.pin(plan.threads)
    busy = machine.busy_fraction()
    workload = build("short", plan.num_texts, token_counter(peers.default_model()))
    offline: list[Load] = []
    loads: dict[tuple[str, str], list[Load]] = {}
    with ExitStack() as stack, console.status("servers"):
        kinds = [CENOTE, *([infinity()] if plan.with_infinity and not missing else [])]
        running = [_start(stack, kind, plan, missing) for kind in kinds]
        worker = stack.enter_context(WorkerProcess(SUBJECTS["cenote"], plan.output / "serve-offline.log"))
        worker.load(peers.Model("embed", peers.default_model(), peers.EXPORTS), plan.threads)
        worker.ask("texts", texts=list(workload.texts), query=None)
        worker.ask("run", batch_size=None)
        for turn in range(plan.rounds):
            for server in rotated([server for server in running if server], turn):
                for name in LOADS:
                    loads.setdefault((server.kind.title, name), []).append(_load(server, name, workload, plan.seconds))
            offline.append(_offline(worker, workload))
    with console.status("mixed load"):
        beside = mixed(workload, plan.seconds, plan.threads, plan.output)
    part = found(offline, loads, beside, missing)
    publish(part, plan.output, busy, console)
    return part


def _build_infinity(plan: Plan, console: Console) -> dict[str, str]:
    try:
        if plan.with_infinity:
            peers.build_environment(console.print, INFINITY)
    except PeerUnavailable as error:
        return {"infinity": str(error)}
    return {}


def _start(stack: ExitStack, kind: Kind, plan: Plan, missing: dict[str, str]) -> Server | None:
    """A warm server; None, with the reason in `missing`, where it is a peer that does not start."""
    try:
        server = stack.enter_context(served(plan.output / f"serve-{kind.title.lower()}.log", kind, 120))
        server.embed(["A first text."] * 64)
    except LoadFailed as error:
        if kind is CENOTE:
            raise
        missing[kind.title] = str(error)
        return None
    return server


def _load(server: Server, name: str, workload: Workload, seconds: float) -> Load:
    connections, per_request = LOADS[name]
    texts = workload.texts
    bodies = [server.body(texts[at : at + per_request]) for at in range(0, len(texts), per_request)]
    before_s = server.cpu_s()
    answered = Client(server.port, server.kind.path, bodies, connections, seconds).answered()
    cpu_s = server.cpu_s() - before_s
    num_texts = len(answered.latencies_s) * per_request
    return Load(num_texts / answered.seconds, cpu_s / num_texts * 1e3, answered)


def _offline(worker: WorkerProcess, workload: Workload) -> Load:
    answer = worker.ask("run", batch_size=None)
    num_texts, seconds = len(workload.texts), answer["seconds"]
    return Load(num_texts / seconds, answer["cpu_s"] / num_texts * 1e3, Answered(seconds, (seconds,), 0.0))


def found(
    offline: Sequence[Load], loads: dict[tuple[str, str], list[Load]], beside: Part, missing: dict[str, str]
) -> Part:
    """What the loads amount to: medians over the rounds, and those of the mixed loads after them."""
    rate = {key: statistics.median(load.texts_per_s for load in rounds) for key, rounds in loads.items()}
    cpu = {key: statistics.median(load.cpu_ms for load in rounds) for key, rounds in loads.items()}
    own_cpu = statistics.median(load.cpu_ms for load in offline)
    own_rate = statistics.median(load.texts_per_s for load in offline)
    rows: list[tuple[str, ...]] = [
        ("Cenote, one offline call", "-", f"{own_rate:,.0f}", f"{own_cpu:.2f}", "-", "-", "-")
    ]
    rows += [_row(key, rate[key], cpu[key], rounds) for key, rounds in loads.items()]
    ours, theirs = CENOTE.title, "infinity"
    aims = [Aim(f"CPU per text / that offline, {name}", cpu[ours, name] / own_cpu, _CPU_OF_OFFLINE) for name in LOADS]
    aims += [
        Aim(f"texts/s / infinity's, {name}", rate[ours, name] / rate[theirs, name], bound, at_most=False)
        for name, bound in _OVER_INFINITY.items()
        if (theirs, name) in rate
    ]
    bars = {f"{title}, {name}": [(0.0, value)] for (title, name), value in rate.items()}
    tables = [Table("Servers under load", COLUMNS, tuple(rows)), *beside.tables]
    panels = [
        Panel("servers under load", "texts/s", "", {"Cenote, offline": [(0.0, own_rate)], **bars}),
        *beside.panels,
    ]
    raw = {
        "offline": [(load.texts_per_s, load.cpu_ms) for load in offline],
        "loads": {"/".join(key): [(load.texts_per_s, load.cpu_ms) for load in rounds] for key, rounds in loads.items()},
        "mixed": beside.raw,
    }
    return Part("serve", tables, [*aims, *beside.aims], panels, raw, missing)


def _row(key: tuple[str, str], rate: float, cpu_ms: float, rounds: Sequence[Load]) -> tuple[str, ...]:
    p50, p99 = (statistics.median(load.answered.quantile_ms(q) for load in rounds) for q in (0.5, 0.99))
    own = statistics.median(load.answered.cpu_s / load.answered.seconds for load in rounds)
    return *key, f"{rate:,.0f}", f"{cpu_ms:.2f}", f"{p50:.1f} ms", f"{p99:.1f} ms", f"{own:.0%}"
