"""How requests follow each other: each client waits for its answer, or they come at a rate whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Literal, TypeAlias

import numpy as np

Arrivals: TypeAlias = Literal["poisson", "constant"]


@dataclass(frozen=True)
class Closed:
    """So many clients, each of which asks again once it is answered: a slow server is asked less often.

    Args:
        concurrency: Clients.
    """

    concurrency: int

    @property
    def max_connections(self) -> int:
        """Connections that may be open."""
        return self.concurrency

    @property
    def label(self) -> str:
        """What tables call it."""
        return f"{self.concurrency:,} at once"


@dataclass(frozen=True)
class Open:
    """Requests that come at their times, however slow the answers are, as those of many independent users.

    Latency counts from when a request was due, so one that had to wait for those before it is not made to look fast
    (no coordinated omission).

    Args:
        rate: Requests a second.
        arrivals: `poisson` comes at random, `constant` in equal steps.
        max_connections: Requests under way; further ones wait, and their wait counts.
    """

    rate: float
    arrivals: Arrivals
    max_connections: int

    @property
    def label(self) -> str:
        """What tables call it."""
        return f"{self.rate:g}/s {self.arrivals}"

    def due_s(self, seed: int) -> Iterator[float]:
        """When each request is due, in seconds from the start, without end."""
        if self.arrivals == "constant":
            yield from (number / self.rate for number in count())
        rng, now_s = np.random.default_rng(seed), 0.0
        while True:
            for gap_s in rng.exponential(1 / self.rate, 256).tolist():
                yield now_s
                now_s += gap_s


Load: TypeAlias = "Closed | Open"


@dataclass(frozen=True)
class Until:
    """When a run ends: after so many seconds or so many requests, one of which is None."""

    seconds: float | None = None
    requests: int | None = None
