"""The random cross-encoder: its sizes, and the same weights every time."""

from __future__ import annotations

import torch
from bench.flops import Dims
from bench.reranker import SIZES, STD, fill
from transformers import BertConfig, BertForSequenceClassification

TINY = {**SIZES, "vocab_size": 50, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2}


def filled(seed: int) -> dict[str, torch.Tensor]:
    model = BertForSequenceClassification(BertConfig(**TINY))
    fill(model, seed)
    return dict(model.named_parameters())


def test_the_seed_alone_decides_the_weights() -> None:
    torch.manual_seed(1)
    first = filled(3)
    torch.manual_seed(2)
    again, other = filled(3), filled(4)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_norms_lie_around_one_and_all_else_around_nought() -> None:
    for name, parameter in filled(3).items():
        centre = 1.0 if name.endswith("LayerNorm.weight") else 0.0
        assert abs(parameter.mean().item() - centre) < 6 * STD / parameter.numel() ** 0.5, name


def test_it_has_the_sizes_of_minilm() -> None:
    assert Dims(SIZES["num_hidden_layers"], SIZES["hidden_size"], SIZES["intermediate_size"]) == Dims(6, 384, 1536)
    assert (SIZES["num_attention_heads"], SIZES["vocab_size"], SIZES["num_labels"]) == (12, 30522, 1)
