"""A real runner with faults that poison tokens set off, so that the product needs no hooks for its tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cenote.call import Call
from cenote.config import MachineSettings
from cenote.engine import Engine
from cenote.recipe import Recipe
from cenote.registry import Registry
from cenote.runner import Runner
from cenote.types import Batch, Rows, Tokens

RAISES, GIVES_NAN, KILLS, WAITS = 886, 885, 884, 883
"""Token ids: the runner raises, answers NaN for that sequence, kills its thread, waits until `gate` opens."""

WAIT_S = 30.0
"""How long a test waits for what must happen; a test that reaches it fails."""


class FaultyRunner(Runner):
    """Does what the poison tokens of a batch say, and remembers its batches.

    Attributes:
        gate: Opened by the test to let batches with `WAITS` go on.
        waiting: Released once for each batch that reached the gate.
        batches: All batches it was given.
    """

    def __init__(self, recipe: Recipe, machine: MachineSettings) -> None:
        super().__init__(recipe, machine)
        self.gate = threading.Event()
        self.waiting = threading.Semaphore(0)
        self.batches: list[Batch] = []

    def run(self, batch: Batch, *, alone: bool = False) -> list[Rows]:
        self.batches.append(batch)
        if WAITS in batch.ids:
            self.waiting.release()
            assert self.gate.wait(WAIT_S)
        if KILLS in batch.ids:
            raise SystemExit("poison")
        if RAISES in batch.ids:
            raise RuntimeError("poison")
        return [self._poisoned(batch, answer) for answer in super().run(batch, alone=alone)]

    def wait_until_waiting(self) -> None:
        """Return once a worker stands at the gate."""
        assert self.waiting.acquire(timeout=WAIT_S)

    def _poisoned(self, batch: Batch, answer: Rows) -> Rows:
        for position, seq in enumerate(answer.seqs):
            if GIVES_NAN in batch.ids[batch.bounds[seq] : batch.bounds[seq + 1]]:
                answer.rows[position][0] = np.nan
        return answer


def tokens(*ids: int) -> Tokens:
    """An input of these token ids."""
    return Tokens(np.array(ids, np.int32))


@dataclass
class Served:
    """A registry with one engine, whose runner does what poison tokens say."""

    registry: Registry
    engine: Engine
    runner: FaultyRunner

    def occupy(self) -> Call:
        """Hold one worker at the gate, and return its call."""
        call = self.engine.submit("embed", [tokens(2, WAITS, 3)], use_cache=False)
        self.runner.wait_until_waiting()
        return call

    def wait_for_queue(self, num_seqs: int) -> None:
        """Return once so many sequences wait."""
        until(lambda: self.engine.snapshot().waiting_seqs == num_seqs)


Serve = Callable[..., Served]


def until(condition: Callable[[], bool]) -> None:
    """Return once `condition` holds; fail if it never does."""
    ends_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends_s, "what the test waits for did not happen"
        time.sleep(0.001)
