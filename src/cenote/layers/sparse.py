"""Hidden states to sparse rows: of many dimensions few are not zero, and only those leave the device."""

from __future__ import annotations

from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from ..steps import Splade
from .masked_lm import MaskedLMHead
from .pooling import Ragged, Spans


class SparseHead(nn.Module):
    """Hidden states to sparse rows.

    Args:
        dense: What makes rows of all dimensions, `(hidden_QD, spans) -> rows_SV`.
    """

    def __init__(self, dense: nn.Module) -> None:
        super().__init__()
        self.dense = dense

    def forward(self, hidden_QD: Tensor, spans: Spans) -> Ragged:
        """What is not zero of each row, as pairs of dimension and value `[n, 2]`, by dimension.

        A dimension is a float32 like its value; all below 2^24 are exact.
        """
        rows_SV: Tensor = self.dense(hidden_QD, spans)
        rows_n, columns_n = rows_SV.nonzero(as_tuple=True)
        pairs_n2 = torch.stack([columns_n.float(), rows_SV[rows_n, columns_n]], dim=1)
        return Ragged(pairs_n2, torch.bincount(rows_n, minlength=len(rows_SV)))


class SpladeLayer(nn.Module):
    """Weights of words from the logits of a masked language model (Formal et al. 2021, arXiv 2109.10086).

    All tokens count, special ones included, as in sentence-transformers' `SpladePooling`.
    """

    def __init__(self, step: Splade, head: MaskedLMHead) -> None:
        super().__init__()
        self.step, self.head = step, head

    def forward(self, hidden_QD: Tensor, spans: Spans) -> Tensor:
        """`[Q, D]` to `[S, V]`, none below 0."""
        ends = list(accumulate(spans.lengths.tolist(), initial=0))
        rows_SV = torch.zeros(len(ends) - 1, self.head.vocab_size, device=hidden_QD.device)
        for start, logits_nV in self.head.blocks(spans.rows(hidden_QD)):
            # Weights grow with their logits, so the largest is found before they are made.
            weights_nV = logits_nV if self.step.pooling == "max" else self._weights(logits_nV)
            for row_V, (first, end) in zip(rows_SV, pairwise(ends), strict=True):
                part_nV = weights_nV[max(first - start, 0) : max(end - start, 0)]
                if len(part_nV):
                    self._add(row_V, part_nV)
        return self._weights(rows_SV) if self.step.pooling == "max" else rows_SV

    def _add(self, row_V: Tensor, part_nV: Tensor) -> None:
        if self.step.pooling == "max":
            torch.maximum(row_V, part_nV.amax(0), out=row_V)
        else:
            row_V += part_nV.sum(0)

    def _weights(self, logits: Tensor) -> Tensor:
        weights = torch.relu(logits)
        for _ in range(self.step.num_logs):
            weights = torch.log1p(weights)
        return weights


def build_sparse(step: Splade, masked_lm: MaskedLMHead | None) -> SparseHead:
    """What a step asks for, on the head that it reads."""
    assert masked_lm is not None
    return SparseHead(SpladeLayer(step, masked_lm))
