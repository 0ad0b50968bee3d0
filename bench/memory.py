"""Anonymous memory: of servers of well-known shapes beside their weights, and after many texts of random lengths."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from rich.console import Console

from . import machine, peers
from .checkpoints import SHAPES
from .driver import WorkerProcess
from .parts import Aim, Panel, Part, Table, publish
from .servers import cenote, memory_mib, served
from .subjects import SUBJECTS
from .texts import random_words, single_token_words

SERVED = ("bert-base", "modernbert-base", "qwen3-4-layers", "deberta-v3-base", "qwen3-0.6b")
COLUMNS = ("server", "weights", "anonymous, ready", "anonymous, after 32 texts", "mapped files", "ready over weights")
SLOPE_COLUMNS = ("texts of random lengths", "anonymous memory")

MIB = 2**20
_ABOVE_WEIGHTS_MIB = 350e6 / MIB
_SLOPE_MIB = 1e6 / MIB
_START_TIMEOUT_S = 180.0
_BYTES = {"float32": 4, "bfloat16": 2}
_LONGEST = 128


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    Args:
        shapes: Names of `checkpoints.SHAPES` that are served.
        pieces: How often `per_piece` texts of random lengths are embedded; 0 for never.
        per_piece: How many they are; the slope is told for as many.
        threads: CPUs that all are bound to.
        output: Folder of the results.
    """

    shapes: tuple[str, ...]
    pieces: int
    per_piece: int
    threads: int
    output: Path


@dataclass(frozen=True, slots=True)
class Held:
    """Memory of one server, in MiB.

    Args:
        what: Its shape, and its precision where that is not the stored one.
        weights: All stored numbers in the precision that is computed in.
        ready, after: Anonymous memory when it is ready, and after one request.
        mapped: Mapped files when it is ready.
    """

    what: str
    weights: float
    ready: float
    after: float
    mapped: float


def run(plan: Plan, console: Console) -> Part:
    """Measure, print, and write the results.

    Raises:
        PeerUnavailable: A checkpoint could not be made.
        LoadFailed, WorkerFailed: Cenote could not be started or did not answer.
    """
    plan.output.mkdir(parents=True, exist_ok=True)
    models = {name: peers.build_shape(name, console.print) for name in (*plan.shapes, "tiny")}
    machine.pin(plan.threads)
    busy = machine.busy_fraction()
    held: list[Held] = []
    with console.status("servers") as status:
        for name in plan.shapes:
            for dtype in ("float32", "bfloat16") if name == "qwen3-0.6b" else ("float32",):
                status.update(f"{name}, {dtype}")
                held.append(_held(name, models[name].folder, dtype, plan.output))
        status.update("texts of random lengths")
        anonymous = list(_after_pieces(models["tiny"], plan))
    part = found(held, anonymous, plan.per_piece)
    publish(part, plan.output, busy, console)
    return part


def _held(name: str, folder: Path, dtype: str, output: Path) -> Held:
    words = single_token_words(folder)
    with served(output / "memory-serve.log", cenote(folder, "--dtype", dtype), _START_TIMEOUT_S) as server:
        ready, mapped = memory_mib(server.pid, "RssAnon"), memory_mib(server.pid, "RssFile")
        server.embed(random_words(words, [254] * 32, seed=1))
        after = memory_mib(server.pid, "RssAnon")
    return Held(f"{SHAPES[name].title}, {dtype}", num_weights(folder) * _BYTES[dtype] / MIB, ready, after, mapped)


def num_weights(folder: Path) -> int:
    """How many numbers the safetensors files of a checkpoint hold."""
    return sum(
        int(np.prod(entry["shape"]))
        for path in folder.glob("*.safetensors")
        for name, entry in _header(path).items()
        if name != "__metadata__"
    )


def _header(path: Path) -> dict[str, dict[str, list[int]]]:
    with path.open("rb") as file:
        found: dict[str, dict[str, list[int]]] = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return found


def _after_pieces(model: peers.Model, plan: Plan) -> Iterator[float]:
    """Anonymous memory of a worker after each piece of its work, in MiB."""
    if plan.pieces == 0:
        return
    words, random = single_token_words(model.folder), Random(7)
    with WorkerProcess(SUBJECTS["cenote"], plan.output / "memory-worker.log") as worker:
        worker.load(model, plan.threads)
        for piece in range(plan.pieces):
            lengths = [random.randint(1, _LONGEST) for _ in range(plan.per_piece)]
            worker.ask("texts", texts=random_words(words, lengths, seed=piece), query=None)
            worker.ask("run", batch_size=None)
            yield memory_mib(worker.pid, "RssAnon")


def slope(values: Sequence[float]) -> float:
    """Growth from one value to the next, by least squares, without the first fifth, in which buffers fill."""
    steady = values[len(values) // 5 :]
    return float(np.polyfit(np.arange(len(steady)), steady, 1)[0]) if len(steady) > 1 else 0.0


def found(held: Sequence[Held], anonymous: Sequence[float], per_piece: int) -> Part:
    """What the figures amount to.

    Args:
        anonymous: MiB after each piece of `per_piece` texts; none where that was not measured.
    """
    rows = tuple(
        (one.what, *(f"{value:,.0f} MiB" for value in (one.weights, one.ready, one.after, one.mapped)), _over(one))
        for one in held
    )
    aims = [
        Aim(
            f"{one.what}: anonymous memory over the weights, {when}",
            value - one.weights,
            _ABOVE_WEIGHTS_MIB,
            unit=" MiB",
        )
        for one in held
        for when, value in (("ready", one.ready), ("after a request", one.after))
    ]
    counted = [((number + 1) * per_piece, value) for number, value in enumerate(anonymous)]
    if anonymous:
        aims.append(Aim(f"growth for {per_piece:,} texts of random lengths", slope(anonymous), _SLOPE_MIB, unit=" MiB"))
    tables = [
        Table("Memory of servers", COLUMNS, rows),
        Table("Memory after texts", SLOPE_COLUMNS, tuple((f"{n:,}", f"{value:.1f} MiB") for n, value in counted)),
    ]
    panels = [
        Panel("anonymous memory, ready", "MiB", "", {one.what: [(0.0, one.ready)] for one in held}),
        Panel("after texts of random lengths", "texts", "MiB", {"anonymous": counted}),
    ]
    shown = [panel for panel in panels if any(panel.lines.values())]
    return Part("memory", tables, aims, shown, {"held": [one.what for one in held]})


def _over(one: Held) -> str:
    return f"{one.ready - one.weights:+,.0f} MiB"
