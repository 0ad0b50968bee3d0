"""Sentence-Transformers folders with modules before the pooling, saved by the library in its new form, or aged."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import (
    CNN,
    LSTM,
    Dropout,
    LayerNorm,
    Pooling,
    WeightedLayerPooling,
    WordWeights,
)

from .checkpoints import randomise, tiny_transformer
from .sentence_folders import Generation, age

WIDTH, NUM_LAYERS = 60, 3
"""Of the transformer."""
MIXED = 24
TOKENS = "token_embeddings"

Chain = Callable[[Transformer], list[Any]]


def _weighted(first: int = 1) -> WeightedLayerPooling:
    module = WeightedLayerPooling(WIDTH, num_hidden_layers=NUM_LAYERS, layer_start=first)
    module.layer_weights.data = torch.linspace(0.5, 2.0, NUM_LAYERS + 1 - first)
    return module


def _words(transformer: Transformer) -> WordWeights:
    tokenizer: Any = transformer.tokenizer
    ids: dict[str, int] = tokenizer.get_vocab()
    vocab = sorted(ids, key=lambda word: ids[word])
    # Some are missing, and some are there in lower case only.
    weights = {word.lower(): 0.2 + index % 7 for index, word in enumerate(vocab) if index % 5}
    return WordWeights(vocab, weights, unknown_word_weight=0.7)


def _everything(transformer: Transformer) -> list[Any]:
    return [
        _weighted(),
        Dense(WIDTH, MIXED, module_input_name=TOKENS),
        _words(transformer),
        CNN(MIXED, 8, [1, 5]),
        Normalize(module_input_name=TOKENS),
        Pooling(16, ["max", "mean", "mean_sqrt_len_tokens", "weightedmean"]),
        Dense(64, 20, activation_function=torch.nn.GELU(), use_residual=True),
        Dropout(0.3),
        LayerNorm(20),
        Normalize(),
    ]


CHAINS: Mapping[str, Chain] = {
    "WeightedLayerPooling": lambda t: [_weighted(0), Pooling(WIDTH, "mean")],
    "WeightedLayerPooling, cls": lambda t: [_weighted(), Pooling(WIDTH, "cls")],
    "CNN": lambda t: [CNN(WIDTH, 8, [1, 3, 5]), Pooling(24, "mean")],
    "LSTM": lambda t: [LSTM(WIDTH, 12, num_layers=2), Pooling(24, "mean")],
    "LSTM of one direction": lambda t: [LSTM(WIDTH, 12, bidirectional=False), Pooling(12, "lasttoken")],
    "WordWeights": lambda t: [_words(t), Pooling(WIDTH, ["mean", "mean_sqrt_len_tokens", "weightedmean"])],
    "Dense of tokens": lambda t: [Dense(WIDTH, MIXED, module_input_name=TOKENS), Pooling(MIXED, "max")],
    "residual": lambda t: [Pooling(WIDTH, "mean"), Dense(WIDTH, WIDTH, use_residual=True)],
    "everything": _everything,
}


def save_chain(
    folder: Path, chain: str, generation: Generation = "new", *, seed: int = 0, **config_overrides: Any
) -> Path:
    """Save a tiny BERT with the modules of `CHAINS[chain]`, and return `folder`."""
    with tempfile.TemporaryDirectory() as scratch:
        base = tiny_transformer("bert", Path(scratch), seed=seed, output_hidden_states=True, **config_overrides)
        transformer = Transformer(str(base))
        modules = [transformer, *CHAINS[chain](transformer)]
        for module in modules[1:]:
            if not isinstance(module, WordWeights | WeightedLayerPooling):
                randomise(module, seed)
        model = SentenceTransformer(modules=modules, device="cpu")
        model.save_pretrained(str(folder), create_model_card=False)
        if generation == "old":
            age(folder, base, None, False)
    return folder


def give_lengths(model: SentenceTransformer) -> None:
    """Let a Transformer say how long its texts are, which the library's LSTM asks for and only WordEmbeddings say."""

    def with_lengths(module: Any, arguments: Any, features: dict[str, Any]) -> dict[str, Any]:
        return {**features, "sentence_lengths": features["attention_mask"].sum(1)}

    model[0].register_forward_hook(with_lengths)
