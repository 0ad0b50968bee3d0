"""One batch through a runner: what it answers, and what happens where it raises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from .call import Call
from .errors import ForwardFailed, NotFinite
from .prefixes import share
from .scheduler import Pending
from .types import Batch, FloatArray, Rows


class RunsBatches(Protocol):
    """What an engine needs of a runner; `runner.Runner` is the real one.

    Attributes:
        num_workers: How many threads should call `run`.
        threads_per_worker: Compute threads of each.
        max_batch_tokens: Token budget of a batch.
        shares_prefixes: Whether what sequences of a batch begin with alike is to be computed once.
    """

    num_workers: int
    threads_per_worker: int
    max_batch_tokens: int
    shares_prefixes: bool

    def run(self, batch: Batch, *, alone: bool = False) -> list[Rows]:
        """The rows of every sequence of `batch`; several threads may call it at once.

        Args:
            alone: Whether nothing else is there to run on the cores of the other workers.
        """

    def rouse(self) -> None:
        """Have those cores ready, as a batch that is alone comes soon."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Sequences that went through the model, and one row for each.

    Args:
        batch: The sequences.
        rows: Their rows.
        num_shared: How many of their tokens begin another sequence of the batch too and were computed there.
    """

    batch: Sequence[Pending[Call]]
    rows: FloatArray | list[FloatArray]
    num_shared: int = 0

    def by_call(self) -> dict[Call, list[int]]:
        """Each call, and the positions of its sequences in the batch."""
        positions: dict[Call, list[int]] = {}
        for position, pending in enumerate(self.batch):
            positions.setdefault(pending.call, []).append(position)
        return positions

    def at(self, positions: list[int]) -> tuple[list[Pending[Call]], FloatArray | list[FloatArray]]:
        """The sequences at `positions`, and their rows."""
        rows = self.rows
        picked = rows[positions] if isinstance(rows, np.ndarray) else [rows[position] for position in positions]
        return [self.batch[position] for position in positions], picked

    def to_all(self, groups: list[list[Pending[Call]]]) -> Answered:
        """The same for all sequences of `groups`, whose first ones are `batch`: each has the row of its group."""
        everyone = [pending for group in groups for pending in group]
        if len(everyone) == len(groups):
            return self
        if isinstance(self.rows, np.ndarray):
            return Answered(everyone, np.repeat(self.rows, [len(group) for group in groups], axis=0))
        # Copies, so that no call can change what another was given.
        return Answered(everyone, [row.copy() for row, group in zip(self.rows, groups, strict=True) for _ in group])


@dataclass(frozen=True, slots=True)
class Failed:
    """One sequence that has no row, and why."""

    pending: Pending[Call]
    error: ForwardFailed


End: TypeAlias = "Answered | Failed"


def forward(runner: RunsBatches, batch: Sequence[Pending[Call]], *, alone: bool = False) -> Iterator[End]:
    """Run `batch`; each of its sequences is in exactly one of the ends.

    Where the runner raises, the batch is halved until the one at fault is alone; the others get their rows. Where it
    answers NaN or infinity, only those sequences fail. What is no `Exception` is passed on. `alone` is for the runner.
    """
    try:
        packed = Batch.pack([p.encoded for p in batch], [p.read for p in batch])
        packed = share(packed) if runner.shares_prefixes else packed
        answers = runner.run(packed, alone=alone)
        _check(answers, len(batch))
    except Exception as error:
        if len(batch) == 1:
            yield Failed(batch[0], _raised(batch[0], error))
            return
        middle = len(batch) // 2
        yield from forward(runner, batch[:middle])
        yield from forward(runner, batch[middle:])
        return
    for answer in answers:
        num_shared = 0 if packed.shared is None else int(packed.shared[answer.seqs].sum())
        yield from _sift([batch[seq] for seq in answer.seqs.tolist()], answer.rows, num_shared)


def _sift(batch: Sequence[Pending[Call]], rows: FloatArray | list[FloatArray], num_shared: int) -> Iterator[End]:
    finite = _are_finite(rows)
    if all(finite):
        yield Answered(batch, rows, num_shared)
        return
    good = [position for position, is_finite in enumerate(finite) if is_finite]
    if good:
        kept = rows[good] if isinstance(rows, np.ndarray) else [rows[position] for position in good]
        yield Answered([batch[position] for position in good], kept, num_shared)
    for pending, is_finite in zip(batch, finite, strict=True):
        if not is_finite:
            yield Failed(pending, _not_finite(pending))


def _check(answers: list[Rows], num_seqs: int) -> None:
    for answer in answers:
        if len(answer.rows) != len(answer.seqs):
            raise RuntimeError(f"The runner gave {len(answer.rows)} rows for {len(answer.seqs)} sequences.")
    answered = [seq for answer in answers for seq in answer.seqs.tolist()]
    if sorted(answered) != list(range(num_seqs)):
        raise RuntimeError(f"The runner answered the sequences {answered} of a batch of {num_seqs}, not each once.")


def _are_finite(rows: FloatArray | list[FloatArray]) -> list[bool]:
    if isinstance(rows, list):
        return [bool(np.isfinite(row).all()) for row in rows]
    finite = np.asarray(np.isfinite(rows).all(axis=tuple(range(1, rows.ndim))))
    return [bool(row) for row in finite]


def _not_finite(pending: Pending[Call]) -> NotFinite:
    return NotFinite(
        f"The model answered NaN or infinity for input {pending.index} of {pending.num_tokens} tokens.",
        fix="With a half dtype, try float32; else the weights may be damaged.",
        index=pending.index,
    )


def _raised(pending: Pending[Call], error: Exception) -> ForwardFailed:
    failure = ForwardFailed(
        f"The model raised on input {pending.index} of {pending.num_tokens} tokens: {error!r}.",
        fix="The log has the traceback; please report it with the input.",
        index=pending.index,
    )
    failure.__cause__ = error
    return failure
