"""Hidden states to sparse rows: of many dimensions few are not zero, and only those leave the device."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..steps import SparseCode, Splade, TokenWeights
from .heads import NORM_EPS, Head, fill
from .linear import Linear, prepare
from .masked_lm import MaskedLMHead
from .pooling import Ragged, Spans

STANDARD_EPS = 1e-5
"""Added to the deviation that rows are divided by."""

_MOST_WORDS = 2**24
_DECODER = "decoder.linear.weight"
_COUNTER = "stats_last_nonzero"


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


class SparseCodeLayer(nn.Module):
    """The largest values of a wide linear layer on pooled rows (Wen et al. 2025, arXiv 2503.01776)."""

    def __init__(self, step: SparseCode) -> None:
        super().__init__()
        self.step = step
        self.pre_bias = nn.Parameter(torch.empty(step.in_features), requires_grad=False)
        self.latent_bias = nn.Parameter(torch.empty(step.out_features), requires_grad=False)
        self.encoder = Linear(step.in_features, step.out_features, bias=False)

    def forward(self, rows_SE: Tensor) -> Tensor:
        """`[S, E]` to `[S, V]`, none below 0 and `k` of them at most above it."""
        if self.step.of_unit:
            rows_SE = F.normalize(rows_SE, dim=-1, eps=NORM_EPS)
        if self.step.standardizes:
            rows_SE = rows_SE - rows_SE.mean(dim=-1, keepdim=True)
            rows_SE = rows_SE / (rows_SE.std(dim=-1, keepdim=True) + STANDARD_EPS)
        codes_SV = self.encoder(rows_SE - self.pre_bias) + self.latent_bias
        largest = torch.topk(codes_SV, min(self.step.k, codes_SV.shape[1]), dim=-1)
        return torch.zeros_like(codes_SV).scatter_(-1, largest.indices, torch.relu(largest.values))


class Coded(nn.Module):
    """Hidden states to pooled rows to codes."""

    def __init__(self, pooled: Head, layer: SparseCodeLayer) -> None:
        super().__init__()
        self.pooled, self.layer = pooled, layer

    def forward(self, hidden_QD: Tensor, spans: Spans) -> Tensor:
        """`[Q, D]` to `[S, V]`."""
        codes_SV: Tensor = self.layer(self.pooled(hidden_QD, spans))
        return codes_SV


class TokenWeightsHead(nn.Module):
    """Hidden states to sparse rows of the tokens that stand in a text (BGE-M3, arXiv 2402.03216)."""

    def __init__(self, step: TokenWeights) -> None:
        super().__init__()
        self.linear = Linear(step.in_features, 1, activation="relu")
        self.without = step.without

    def forward(self, hidden_QD: Tensor, spans: Spans) -> Ragged:
        """As `SparseHead.forward`; of a token that stands there more than once the largest value."""
        assert spans.ids_Q is not None
        lengths_S, ids_T = spans.lengths, spans.rows(spans.ids_Q).long()
        weights_T = self.linear(spans.rows(hidden_QD).float())[:, 0]
        seqs_T = torch.repeat_interleave(torch.arange(len(lengths_S), device=ids_T.device), lengths_S)
        counts_T = (weights_T > 0) & ~torch.isin(ids_T, ids_T.new_tensor(self.without))
        # A text and a token as one number: by text, then by token.
        both_n, place = torch.unique(seqs_T[counts_T] * _MOST_WORDS + ids_T[counts_T], return_inverse=True)
        largest_n = torch.zeros(len(both_n), device=weights_T.device)
        largest_n.scatter_reduce_(0, place, weights_T[counts_T], "amax")
        pairs_n2 = torch.stack([(both_n % _MOST_WORDS).float(), largest_n], dim=1)
        return Ragged(pairs_n2, torch.bincount(both_n // _MOST_WORDS, minlength=len(lengths_S)))


def build_token_weights(step: TokenWeights, tensors: Mapping[str, Tensor], device: torch.device) -> TokenWeightsHead:
    """Weights of tokens.

    Args:
        tensors: `weight` and `bias` of the linear layer.

    Raises:
        WeightMismatch: One is missing, or has another shape.
    """
    with torch.device("meta"):
        head = TokenWeightsHead(step)
    head = head.to_empty(device=device)
    fill(f"{type(step).__name__} in {step.path!r}", head, {f"linear.{name}": tensors[name] for name in tensors})
    prepare(head)
    return head.eval()


def build_splade(step: Splade, masked_lm: MaskedLMHead) -> SparseHead:
    """Weights of words, of the logits of a head."""
    return SparseHead(SpladeLayer(step, masked_lm))


def build_sparse_code(
    step: SparseCode, pooled: Head, tensors: Mapping[str, Tensor], device: torch.device
) -> SparseHead:
    """Codes of pooled rows.

    Args:
        pooled: What pools them.
        tensors: Name -> tensor of the module.

    Raises:
        WeightMismatch: A weight is missing, or has another shape, or nobody uses one.
    """
    # The decoder, which nobody runs, has the encoder's weights, and files hold them under either name.
    kept = {name: tensor for name, tensor in tensors.items() if name not in (_DECODER, _COUNTER)}
    if _DECODER in tensors:
        kept.setdefault("encoder.weight", tensors[_DECODER])
    with torch.device("meta"):
        layer = SparseCodeLayer(step)
    layer = layer.to_empty(device=device)
    fill(f"{type(step).__name__} in {step.path!r}", layer, kept)
    prepare(layer)
    return SparseHead(Coded(pooled, layer).eval())
