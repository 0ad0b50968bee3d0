"""Hidden states of each sequence to one row. One function a mode, all in float32, all on packed rows.

The modes and their corner cases are those of sentence-transformers' `Pooling` module. Tokens that a sequence skips
(those of a prompt, where the checkpoint says `include_prompt: false`) count for no mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import plugins
from ..errors import ConfigError
from ..types import IntArray


@dataclass(frozen=True, eq=False)
class Spans:
    """Whose rows are whose, for pooling.

    Args:
        firsts_S: First row of each sequence, int64.
        starts_S: First row of each sequence that counts, int64.
        ends_S: One past its last row, int64.
        bounds_S1: Where the rows of each sequence of the batch start, and the end, int64, on the host.
        weights_S1: What means divide by where words have weights; None for the number of tokens that count.
        ids_Q: Token id of each row; None where rows are not those of tokens.
    """

    firsts_S: Tensor
    starts_S: Tensor
    ends_S: Tensor
    bounds_S1: NDArray[np.int64]
    weights_S1: Tensor | None = None
    ids_Q: Tensor | None = None

    @cached_property
    def index_Q(self) -> Tensor:  # noqa: N802  # named as the fields are, by its shape
        """Index of each row inside its sequence, counted with skipped tokens, int64."""
        index_Q = np.arange(self.bounds_S1[-1]) - np.repeat(self.bounds_S1[:-1], np.diff(self.bounds_S1))
        return torch.from_numpy(index_Q).to(self.firsts_S.device)

    def of_seqs(self, seqs: Tensor) -> Spans:
        """The spans of some sequences, in ascending order; the rows stay where they are."""
        weights = None if self.weights_S1 is None else self.weights_S1[seqs]
        return replace(
            self,
            firsts_S=self.firsts_S[seqs],
            starts_S=self.starts_S[seqs],
            ends_S=self.ends_S[seqs],
            weights_S1=weights,
        )

    @property
    def lengths(self) -> Tensor:
        """How many rows each sequence has, skipped ones included, `[S]`."""
        return self.ends_S - self.firsts_S

    def ragged(self, rows_nE: Tensor) -> Ragged:
        """Rows that were made of `rows`, one of each."""
        return Ragged(rows_nE, self.lengths)

    def rows(self, hidden_QD: Tensor) -> Tensor:
        """The rows of these spans, one after the other, skipped ones included."""
        lengths = self.lengths
        total = int(lengths.sum())
        if total == len(hidden_QD):
            return hidden_QD
        offsets = self.firsts_S - torch.cat([lengths.new_zeros(1), lengths.cumsum(0)[:-1]])
        return hidden_QD[torch.arange(total, device=lengths.device) + torch.repeat_interleave(offsets, lengths)]

    @classmethod
    def of(cls, bounds_S1: IntArray, skip_S: IntArray, device: torch.device, ids_Q: Tensor | None = None) -> Spans:
        """From the bounds of the sequences and how many leading rows each skips, both on the host.

        Args:
            device: Where the rows are.
            ids_Q: As the field.
        """
        bounds = bounds_S1.astype(np.int64)
        edges = np.empty((3, len(bounds) - 1), np.int64)
        edges[0], edges[2] = bounds[:-1], bounds[1:]
        np.minimum(edges[0] + skip_S, edges[2], out=edges[1])
        firsts_S, starts_S, ends_S = torch.from_numpy(edges).to(device).unbind()
        return cls(firsts_S, starts_S, ends_S, bounds, ids_Q=ids_Q)

    def of_rows(self, values_S: Tensor) -> Tensor:
        """Values of all sequences of the batch, repeated for each of their rows: `[Q]`."""
        return torch.repeat_interleave(values_S, self.lengths, output_size=int(self.bounds_S1[-1]))

    def sums(self, values_Q1: Tensor) -> Tensor:
        """Sums over all rows of each sequence, skipped ones included: `[S, 1]`."""
        return _reduce(values_Q1, replace(self, starts_S=self.firsts_S), "sum")

    def counts(self) -> Tensor:
        """What means divide by, as a float32 column `[S, 1]` that is never 0: how many rows count, or their weights."""
        if self.weights_S1 is not None:
            return self.weights_S1.clamp(min=1e-9)
        return (self.ends_S - self.starts_S).clamp(min=1).float()[:, None]


class Ragged(NamedTuple):
    """Rows of which each sequence has a number of its own.

    Args:
        rows_nE: All of them, one sequence after the other, float32.
        lengths_S: How many each sequence has, int64.
    """

    rows_nE: Tensor
    lengths_S: Tensor


Pool: TypeAlias = Callable[[Tensor, Spans], Tensor]
"""`(hidden_QD, spans) -> rows_SD`, float32."""


def cls(hidden_QD: Tensor, spans: Spans) -> Tensor:
    """The first token that counts, or the first of all where a prompt is the whole text."""
    return hidden_QD[torch.where(spans.starts_S < spans.ends_S, spans.starts_S, spans.firsts_S)].float()


def last(hidden_QD: Tensor, spans: Spans) -> Tensor:
    """The last token."""
    return hidden_QD[spans.ends_S - 1].float()


def mean(hidden_QD: Tensor, spans: Spans) -> Tensor:
    """The mean over the tokens."""
    if spans.weights_S1 is None:
        return _reduce(hidden_QD, spans, "mean")
    return _reduce(hidden_QD, spans, "sum") / spans.counts()


def mean_sqrt_len(hidden_QD: Tensor, spans: Spans) -> Tensor:
    """The sum over the tokens, divided by the square root of their number."""
    return _reduce(hidden_QD, spans, "sum") / spans.counts().sqrt()


def max_over_tokens(hidden_QD: Tensor, spans: Spans) -> Tensor:
    """The largest value of each dimension."""
    rows_SD = _reduce(hidden_QD, spans, "max")
    # What the reference's fill value gives where a prompt is the whole text.
    return torch.where((spans.ends_S > spans.starts_S)[:, None], rows_SD, torch.full_like(rows_SD, -1e9))


def weighted_mean(hidden_QD: Tensor, spans: Spans) -> Tensor:
    """The mean with weights 1, 2, 3, ... (SGPT, arXiv 2202.08904), counted from the sequence's first token."""
    weights_Q1 = (spans.index_Q + 1).float()[:, None]
    sums_SD = _reduce(hidden_QD.float() * weights_Q1, spans, "sum")
    if spans.weights_S1 is not None:
        return sums_SD / spans.counts()
    return sums_SD / _reduce(weights_Q1, spans, "sum").clamp(min=1e-9)


POOLS: Final[Mapping[str, Pool]] = {
    "cls": cls,
    "max": max_over_tokens,
    "mean": mean,
    "mean_sqrt_len": mean_sqrt_len,
    "weightedmean": weighted_mean,
    "last": last,
}
"""The modes, in the order in which several at once are put side by side."""


def find(mode: str) -> Pool:
    """The function of a mode, one of `POOLS` or a guest's.

    Raises:
        ConfigError: There is none, or it cannot be imported.
    """
    return POOLS.get(mode) or _checked(mode, plugins.pooling(mode))


def _checked(mode: str, pool: Pool) -> Pool:
    """A guest's function, whose rows must be as many and as long as they are to be."""

    def checked(hidden_QD: Tensor, spans: Spans) -> Tensor:
        rows_SD = pool(hidden_QD, spans)
        wanted = (len(spans.firsts_S), hidden_QD.shape[1])
        if tuple(rows_SD.shape) != wanted or rows_SD.dtype != torch.float32:
            raise ConfigError(
                f"The pooling {mode!r} of a plugin gives {rows_SD.dtype} rows of shape {tuple(rows_SD.shape)}.",
                allowed=f"They are torch.float32, of shape {wanted}: one per text, as long as hidden states.",
                param="pooling",
            )
        return rows_SD

    return checked


def _reduce(hidden_QD: Tensor, spans: Spans, how: str) -> Tensor:
    """Sum, mean or maximum over the rows of each span, float32 `[S, D]`; sum and mean of no rows are 0."""
    if how != "max" and hidden_QD.device.type == "cpu":
        return _added(hidden_QD.float(), spans, is_mean=how == "mean")
    # Edges of span, gap, span, ...: the gaps are what is skipped, and every other result is dropped.
    edges = torch.stack([spans.starts_S, spans.ends_S], dim=1).flatten()
    initial = None if how == "max" else 0
    return torch.segment_reduce(hidden_QD.float(), how, offsets=edges, unsafe=True, initial=initial)[::2]


def _added(hidden_QD: Tensor, spans: Spans, *, is_mean: bool) -> Tensor:
    """Sum or mean by NumPy, which adds row to row as PyTorch does and takes a third of the time."""
    rows_QD, bounds = hidden_QD.numpy(), zip(spans.starts_S.tolist(), spans.ends_S.tolist(), strict=True)
    sums_SD = np.empty((len(spans.starts_S), hidden_QD.shape[1]), np.float32)
    for sum_D, (start, end) in zip(sums_SD, bounds, strict=True):
        np.add.reduce(rows_QD[start:end], axis=0, out=sum_D)
        if is_mean:
            sum_D /= max(end - start, 1)
    return torch.from_numpy(sums_SD)
