"""The random checkpoints: their sizes, the same weights every time, and files that libraries agree on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from bench.checkpoints import RERANKER, SHAPES, Shape, build, make
from bench.flops import Dims
from bench.memory import num_weights
from bench.peers import default_model
from sentence_transformers import SentenceTransformer

from cenote import LLM

SMALLER = {"num_hidden_layers": 2, "hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 4}
SMALL_VOCABULARY = {"vocab_size": 30522}


def smaller(name: str) -> Shape:
    shape = SHAPES[name]
    sizes = {**shape.sizes, **SMALLER, **SMALL_VOCABULARY}
    if "head_dim" in sizes:
        sizes |= {"head_dim": 16, "num_key_value_heads": 2}
    return replace(shape, sizes=sizes, std=0.1)


def test_the_seed_alone_decides_the_weights() -> None:
    torch.manual_seed(1)
    first = dict(build(smaller(RERANKER)).named_parameters())
    torch.manual_seed(2)
    again = dict(build(smaller(RERANKER)).named_parameters())
    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize("name", [RERANKER, "modernbert-base", "qwen3-4-layers", "deberta-v3-base"])
def test_norms_lie_around_one_and_all_else_around_nought(name: str) -> None:
    shape = smaller(name)
    for key, parameter in build(shape).named_parameters():
        centre = 1.0 if key.lower().endswith("norm.weight") else 0.0
        assert abs(parameter.mean().item() - centre) < 6 * shape.std / parameter.numel() ** 0.5, key


def test_the_reranker_has_the_sizes_of_minilm() -> None:
    sizes = SHAPES[RERANKER].sizes
    assert Dims(sizes["num_hidden_layers"], sizes["hidden_size"], sizes["intermediate_size"]) == Dims(6, 384, 1536)
    assert (sizes["num_attention_heads"], sizes["vocab_size"], sizes["num_labels"]) == (12, 30522, 1)


@pytest.mark.parametrize("name", ["bert-base", "modernbert-base", "qwen3-4-layers", "deberta-v3-base", "tiny"])
def test_both_libraries_read_the_folder_alike(name: str, tmp_path: Path) -> None:
    shape = smaller(name)
    make(shape, default_model(), tmp_path)
    texts = ["One text.", "A second, longer one of more tokens than the first."]
    with LLM(str(tmp_path)) as llm:
        ours = llm.embed(texts, output="numpy", use_tqdm=False)
    theirs = SentenceTransformer(str(tmp_path), device="cpu").encode(texts)
    assert np.abs(ours - theirs).max() < 1e-5
    assert num_weights(tmp_path) == sum(parameter.numel() for parameter in build(shape).parameters())


def test_sizes_are_read_back_from_the_folder(tmp_path: Path) -> None:
    make(smaller("qwen3-4-layers"), default_model(), tmp_path)
    expected = Dims(2, 48, 64, query=64, key_value=32, is_gated=True, is_causal=True)
    assert Dims.of_folder(tmp_path) == expected
    assert json.loads((tmp_path / "config.json").read_text())["rope_theta"] == 1e6
