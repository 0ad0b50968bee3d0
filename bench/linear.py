"""Whether cost grows with tokens alone: over ever more texts, and over ever longer ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from . import machine, peers
from .driver import WorkerProcess
from .flops import Dims, text_flops
from .parts import Aim, Panel, Part, Table, publish
from .servers import Peak
from .subjects import SUBJECTS
from .texts import random_words, single_token_words, token_counter

COUNTS = (100, 1_000, 10_000, 100_000)
LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
TOKENS_PER_LENGTH = 16_384
COLUMNS = (
    "",
    "texts",
    "tokens each",
    "seconds",
    "us per token",
    "GFLOP/s",
    "peak over idle",
    "bytes per token under way",
)

_BATCH_TOKENS = 1024
_OF_SMALL = 1.1
_OF_SHORT = 1.5
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    Args:
        counts: Numbers of short texts.
        lengths: Tokens of a text, special ones included.
        num_tokens: Of all texts of one length together.
        threads: CPUs that all are bound to.
        output: Folder of the results.
    """

    counts: tuple[int, ...]
    lengths: tuple[int, ...]
    num_tokens: int
    threads: int
    output: Path


@dataclass(frozen=True, slots=True)
class Point:
    """One call.

    Args:
        kind: What is varied: `number` or `length`.
        num_texts: How many texts.
        tokens: Mean length in tokens.
        seconds: Of the call.
        flops: Of all texts.
        peak_mib: Anonymous memory at its highest above what there was before.
        under_way: Tokens that may be computed at once, over all workers.
    """

    kind: str
    num_texts: int
    tokens: float
    seconds: float
    flops: int
    peak_mib: float
    under_way: int

    @property
    def us_per_token(self) -> float:
        return self.seconds / (self.num_texts * self.tokens) * 1e6

    @property
    def bytes_per_token(self) -> float:
        return self.peak_mib * _MIB / self.under_way


def run(plan: Plan, console: Console) -> Part:
    """Measure, print, and write the results.

    Raises:
        PeerUnavailable: A checkpoint could not be made.
        WorkerFailed: Cenote could not be started or did not answer.
    """
    plan.output.mkdir(parents=True, exist_ok=True)
    default, long = peers.build_model("embed", console.print), peers.build_shape("long", console.print)
    machine.pin(plan.threads)
    busy = machine.busy_fraction()
    points: list[Point] = []
    with console.status("") as status:
        for count in plan.counts:
            status.update(f"{count:,} texts")
            points.append(_counted(default, count, plan))
        for length in plan.lengths:
            status.update(f"texts of {length:,} tokens")
            points.append(_long(long, length, plan))
    part = found(points)
    publish(part, plan.output, busy, console)
    return part


def _counted(model: peers.Model, count: int, plan: Plan) -> Point:
    texts = [f"Row {number} of the table." for number in range(count)]
    lengths = token_counter(model.folder)(texts)
    return _point("number", model, texts, lengths, plan)


def _long(model: peers.Model, length: int, plan: Plan) -> Point:
    num_texts = max(plan.threads, plan.num_tokens // length)
    texts = random_words(single_token_words(model.folder), [length - 2] * num_texts, seed=length)
    return _point("length", model, texts, [length] * num_texts, plan)


def _point(kind: str, model: peers.Model, texts: list[str], lengths: Sequence[int], plan: Plan) -> Point:
    """One call in a process of its own, since memory that was freed stays with a process."""
    dims = Dims.of_folder(model.folder)
    with WorkerProcess(SUBJECTS["cenote"], plan.output / "linear-worker.log") as worker:
        worker.load(model, plan.threads)
        worker.ask("texts", texts=[f"A text to begin with, {number}." for number in range(64)], query=None)
        worker.ask("run", batch_size=None)
        worker.ask("texts", texts=texts, query=None)
        with Peak(worker.pid) as peak:
            seconds = worker.ask("run", batch_size=None)["seconds"]
    return Point(
        kind,
        len(texts),
        sum(lengths) / len(texts),
        seconds,
        sum(text_flops(dims, length) for length in lengths),
        peak.mib - peak.before_mib,
        plan.threads * max(_BATCH_TOKENS, *lengths),
    )


def found(points: Sequence[Point]) -> Part:
    """What the calls amount to."""
    rows = tuple(
        (
            point.kind,
            f"{point.num_texts:,}",
            f"{point.tokens:,.1f}",
            f"{point.seconds:.2f}",
            f"{point.us_per_token:.1f}",
            f"{point.flops / point.seconds / 1e9:.0f}",
            f"{point.peak_mib:,.0f} MiB",
            f"{point.bytes_per_token:,.0f}",
        )
        for point in points
    )
    aims: list[Aim] = []
    counted = {point.num_texts: point for point in points if point.kind == "number"}
    long = {round(point.tokens): point for point in points if point.kind == "length"}
    if len(counted) > 1:
        small, large = (counted[n] for n in (sorted(counted)[-2], max(counted)))
        what = f"time per token, {large.num_texts:,} texts / {small.num_texts:,}"
        aims.append(Aim(what, large.us_per_token / small.us_per_token, _OF_SMALL))
    if _BATCH_TOKENS in long and max(long) > _BATCH_TOKENS:
        short, longest = long[_BATCH_TOKENS], long[max(long)]
        what = f"memory per token under way, texts of {max(long):,} tokens / of {_BATCH_TOKENS:,}"
        aims.append(Aim(what, longest.bytes_per_token / short.bytes_per_token, _OF_SHORT))
    panels = []
    if counted:
        line = [(point.num_texts, point.seconds) for point in counted.values()]
        panels.append(Panel("short texts", "texts", "seconds", {"one call": line}))
    if long:
        times = [(point.tokens, point.us_per_token) for point in long.values()]
        memory = [(point.tokens, max(point.peak_mib, 0.1)) for point in long.values()]
        panels.append(Panel("time", "tokens of a text", "us per token", {"Cenote": times}))
        panels.append(Panel("anonymous memory over idle", "tokens of a text", "MiB", {"peak": memory}))
    return Part("linear", [Table("Cost and tokens", COLUMNS, rows)], aims, panels)
