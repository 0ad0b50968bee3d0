"""Steps on the rows of tokens, before the pooling, on packed rows and in float32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..steps import CNN, LSTM, WeightedLayerPooling, WordWeights, layers_read
from .convolution import Kernel, around
from .pooling import Spans


@dataclass(frozen=True, eq=False)
class TokenRows:
    """The rows of a batch's tokens on their way to the pooling.

    Args:
        rows_QD: One per token, float32.
        ids_Q: Their token ids.
        layers: Number of a layer -> the same tokens' rows after it, where a step asked for it.
        spans: Whose rows are whose, for all sequences of the batch.
    """

    rows_QD: Tensor
    ids_Q: Tensor
    layers: Mapping[int, Tensor]
    spans: Spans


class WeightedLayers(nn.Module):
    """The weighted mean of each token's rows after several layers."""

    def __init__(self, step: WeightedLayerPooling) -> None:
        super().__init__()
        self.numbers = layers_read(step)
        self.layer_weights = nn.Parameter(torch.empty(len(self.numbers)), requires_grad=False)

    def forward(self, tokens: TokenRows) -> TokenRows:
        """`[Q, D]` to the same."""
        layers_NQD = torch.stack([tokens.layers[number].float() for number in self.numbers])
        rows_QD = torch.einsum("nqd,n->qd", layers_NQD, self.layer_weights) / self.layer_weights.sum()
        return replace(tokens, rows_QD=rows_QD)


class WeightedWords(nn.Module):
    """Each row times the weight of its word."""

    def __init__(self, step: WordWeights) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(len(step.weights)), requires_grad=False)

    def forward(self, tokens: TokenRows) -> TokenRows:
        """`[Q, D]` to the same; means will divide by the weights of all words of a text, a prompt's included."""
        weights_Q1 = self.weights[tokens.ids_Q.long()][:, None]
        spans = replace(tokens.spans, weights_S1=tokens.spans.sums(weights_Q1))
        return replace(tokens, rows_QD=tokens.rows_QD * weights_Q1, spans=spans)


class Convolutions(nn.Module):
    """Convolutions over the tokens of each text, as if zeros stood before and after it."""

    def __init__(self, step: CNN) -> None:
        super().__init__()
        self.reach = max(step.kernel_sizes) // 2
        self.convs = nn.ModuleList(Kernel(step.in_features, step.out_channels, size) for size in step.kernel_sizes)

    def forward(self, tokens: TokenRows) -> TokenRows:
        """`[Q, D]` to `[Q, out_channels * number of kernels]`."""
        rows_QD, spans = tokens.rows_QD, tokens.spans
        lengths_Q = spans.of_rows(spans.ends_S - spans.firsts_S)
        around_QWD = around(rows_QD, spans.index_Q, lengths_Q, self.reach)
        return replace(tokens, rows_QD=torch.cat([conv(around_QWD) for conv in self.convs], dim=1))


class Recurrent(nn.Module):
    """An LSTM over the tokens of each text, all texts at once and none padded."""

    def __init__(self, step: LSTM) -> None:
        super().__init__()
        self.encoder = nn.LSTM(
            step.in_features, step.hidden_size, num_layers=step.num_layers, bidirectional=step.bidirectional
        )

    def forward(self, tokens: TokenRows) -> TokenRows:
        """`[Q, D]` to `[Q, hidden size * directions]`."""
        index_Q, spans = tokens.spans.index_Q, tokens.spans
        if len(index_Q) == 0:
            num_out = self.encoder.hidden_size * (2 if self.encoder.bidirectional else 1)
            return replace(tokens, rows_QD=tokens.rows_QD.new_zeros(0, num_out))
        # Step by step, the longest text first: the packed form that torch runs without padding.
        rank_S = torch.argsort(torch.argsort(spans.ends_S - spans.firsts_S, descending=True, stable=True))
        order_Q = torch.argsort(index_Q * len(rank_S) + spans.of_rows(rank_S))
        by_step = PackedSequence(tokens.rows_QD[order_Q], torch.bincount(index_Q).cpu())
        stepped_QD = self.encoder(by_step)[0].data
        rows_QD = torch.empty_like(stepped_QD)
        rows_QD[order_Q] = stepped_QD
        return replace(tokens, rows_QD=rows_QD)
