"""A run: a warm-up, then the requests that count, each exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from .client import Asked, Client, Sample
from .loads import Closed, Load, Open, Until

_LOOK_EVERY_S = 0.1


@dataclass
class Phase:
    """A part of a run, and what it has brought so far.

    Args:
        until: When no further request is sent; those under way are waited for.

    Attributes:
        began_s: When it began, of `time.perf_counter`.
        num_begun: Requests that were sent or are due.
        samples: One for each request that has ended.
    """

    until: Until
    began_s: float = field(default_factory=time.perf_counter)
    num_begun: int = 0
    samples: list[Sample] = field(default_factory=list)

    def begin(self, due_s: float) -> bool:
        """Whether a request that is due at `due_s` still belongs here; counts it if so."""
        if self.until.requests is not None and self.num_begun >= self.until.requests:
            return False
        if self.until.seconds is not None and due_s >= self.began_s + self.until.seconds:
            return False
        self.num_begun += 1
        return True

    @property
    def share_done(self) -> float:
        """How much of it is over, from 0 to 1."""
        if self.until.requests is not None:
            return len(self.samples) / self.until.requests
        return min(1.0, (time.perf_counter() - self.began_s) / (self.until.seconds or 1.0))


@dataclass(frozen=True)
class Measured:
    """A finished run.

    Args:
        load: How requests followed each other.
        samples: Those that count.
        warmup: Those of the warm-up.
        began_s: When the part that counts began.
        cpu_s: Seconds of a processor that this process used for it.
    """

    load: Load
    samples: list[Sample]
    warmup: list[Sample]
    began_s: float
    cpu_s: float


Watch = Callable[[Phase, bool], None]
"""Is told now and then how far a phase is, and whether it is the warm-up."""


async def run(asked: Asked, load: Load, until: Until, *, warmup_s: float, seed: int, watch: Watch) -> Measured:
    """Warm up, then measure; over fresh connections."""
    async with Client(asked, load.max_connections) as client:
        warmup = await _phase(client, load, Until(seconds=warmup_s), seed + 1, lambda phase: watch(phase, True))
        cpu_s = time.process_time()
        phase = await _phase(client, load, until, seed, lambda phase: watch(phase, False))
        return Measured(load, phase.samples, warmup.samples, phase.began_s, time.process_time() - cpu_s)


async def _phase(client: Client, load: Load, until: Until, seed: int, watch: Callable[[Phase], None]) -> Phase:
    phase = Phase(until)
    watching = asyncio.create_task(_look(phase, watch))
    try:
        async with asyncio.TaskGroup() as group:
            if isinstance(load, Closed):
                for _ in range(load.concurrency):
                    group.create_task(_ask_again(client, phase))
            else:
                await _ask_when_due(client, phase, load, seed, group)
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        watch(phase)
    assert len(phase.samples) == phase.num_begun
    return phase


async def _look(phase: Phase, watch: Callable[[Phase], None]) -> None:
    while True:
        watch(phase)
        await asyncio.sleep(_LOOK_EVERY_S)


async def _ask_again(client: Client, phase: Phase) -> None:
    while phase.begin(now_s := time.perf_counter()):
        phase.samples.append(await client.send(now_s))


async def _ask_when_due(client: Client, phase: Phase, load: Open, seed: int, group: asyncio.TaskGroup) -> None:
    for at_s in load.due_s(seed):
        due_s = phase.began_s + at_s
        if not phase.begin(due_s):
            return
        # Also where it is late already: the answers need their turn.
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        group.create_task(_ask_once(client, phase, due_s))


async def _ask_once(client: Client, phase: Phase, due_s: float) -> None:
    phase.samples.append(await client.send(due_s))
