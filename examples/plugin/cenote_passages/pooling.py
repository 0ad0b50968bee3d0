"""A mode of pooling: the mean without what the tokenizer puts around a text."""

from __future__ import annotations

from dataclasses import replace

import torch

from cenote.layers.pooling import Spans, mean


def inner_mean(hidden_QD: torch.Tensor, spans: Spans) -> torch.Tensor:
    """The mean over the tokens but the first and the last; over all where there are no others."""
    has_inner_S = (spans.ends_S - spans.starts_S > 2).long()
    return mean(hidden_QD, replace(spans, starts_S=spans.starts_S + has_inner_S, ends_S=spans.ends_S - has_inner_S))
