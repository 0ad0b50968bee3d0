"""Sentence-Transformers folders without a transformer: static embeddings, word embeddings, bags of words."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import (
    CNN,
    LSTM,
    BoW,
    LayerNorm,
    Pooling,
    StaticEmbedding,
    WordEmbeddings,
    WordWeights,
)
from sentence_transformers.sentence_transformer.modules.tokenizer import (
    PhraseTokenizer,
    TransformersTokenizerWrapper,
    WhitespaceTokenizer,
)
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from .checkpoints import randomise, tiny_transformer
from .saving import read_json, write_json
from .sentence_folders import Generation, age_modules

WIDTH = 20
VOCAB = ["PADDING_TOKEN", "the", "New_York", "new", "york", "in_the_house", "house", "in", "Word", "is", "big-ish", "x"]
STOP = ["is", "of"]
TEXTS = (
    "the house is in New York",
    "In the house, the big-ish (WORD) x!",
    "nothing here",
    "",
    "x",
    "new york New_York in the house Word. new York",
)
"""Some words are known only in lower case or without punctuation, some are stopped, some texts have none at all."""


def _rows(count: int) -> torch.Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(count))


def _fast(base: Path) -> Tokenizer:
    return Tokenizer.from_file(str(base / "tokenizer.json"))


def _static(base: Path, dtype: torch.dtype = torch.float32) -> StaticEmbedding:
    tokenizer = _fast(base)
    return StaticEmbedding(tokenizer, embedding_weights=_rows(tokenizer.get_vocab_size()).to(dtype))


def _words(tokenizer: Any, max_seq_length: int = 1_000_000) -> WordEmbeddings:
    return WordEmbeddings(tokenizer, _rows(len(VOCAB)), max_seq_length=max_seq_length)


def _wrapped(base: Path) -> WordEmbeddings:
    tokenizer = AutoTokenizer.from_pretrained(base)
    return WordEmbeddings(TransformersTokenizerWrapper(tokenizer), _rows(len(tokenizer)))


def _whitespace(**options: Any) -> WordEmbeddings:
    return _words(WhitespaceTokenizer(VOCAB, STOP, **options))


WEIGHTS = {"the": 0.3, "word": 2.5, "x": 1.5, "house": 0.1}
MODELS: Mapping[str, Callable[[Path], list[Any]]] = {
    "static": lambda base: [_static(base)],
    "static, halves": lambda base: [_static(base, torch.float16)],
    "static, more": lambda base: [_static(base), Dense(WIDTH, 12), LayerNorm(12), Normalize()],
    "words": lambda base: [_whitespace(), Pooling(WIDTH, "mean")],
    "words, lower case": lambda base: [_whitespace(do_lower_case=True), Pooling(WIDTH, ["mean", "weightedmean"])],
    "phrases": lambda base: [_words(PhraseTokenizer(VOCAB, STOP)), Pooling(WIDTH, "mean_sqrt_len_tokens")],
    "words of a transformer": lambda base: [_wrapped(base), Pooling(WIDTH, "lasttoken")],
    "words, weights": lambda base: [_whitespace(), WordWeights(VOCAB, WEIGHTS, 0.7), Pooling(WIDTH, "mean")],
    "words, LSTM": lambda base: [_whitespace(), LSTM(WIDTH, 12, num_layers=2), Pooling(24, "mean"), Normalize()],
    "words, CNN": lambda base: [_whitespace(), CNN(WIDTH, 8), Pooling(24, "mean")],
    "bag of words": lambda base: [BoW(VOCAB, WEIGHTS, 0.7), Normalize()],
    "set of words": lambda base: [BoW(VOCAB, WEIGHTS, cumulative_term_frequency=False), Dense(len(VOCAB), 9)],
}


def save_words(folder: Path, name: str, generation: Generation = "new", **settings: Any) -> Path:
    """Save `MODELS[name]`, and return `folder`; the old form has pickles, and all modules in folders of their own."""
    with tempfile.TemporaryDirectory() as scratch:
        modules = MODELS[name](tiny_transformer("bert", Path(scratch)))
        for module in modules[1:]:
            if not isinstance(module, WordWeights):
                randomise(module, 0)
        SentenceTransformer(modules=modules, device="cpu", **settings).save_pretrained(
            str(folder), create_model_card=False
        )
    if generation == "old":
        age_modules(folder)
        for path in folder.rglob("model.safetensors"):
            torch.save(load_file(path), path.with_name("pytorch_model.bin"))
            path.unlink()
        _move_first(folder)
    return folder


def _move_first(folder: Path) -> None:
    entries = read_json(folder / "modules.json")
    if entries[0]["path"]:
        return
    entries[0]["path"] = f"0_{entries[0]['type'].rsplit('.', 1)[-1]}"
    inside = folder / entries[0]["path"]
    inside.mkdir()
    for path in folder.iterdir():
        if path.is_file() and path.name not in ("modules.json", "config_sentence_transformers.json"):
            path.rename(inside / path.name)
    write_json(folder / "modules.json", entries)


def save_model2vec(folder: Path, *, listed: bool, normalize: bool = True) -> Path:
    """Save a folder as model2vec does: a table of fewer rows than tokens, a mapping and weights, and return it.

    Args:
        listed: Whether there is a `modules.json` for sentence-transformers, as most such folders have.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = _fast(tiny_transformer("bert", Path(scratch)))
    tokenizer.save(str(folder / "tokenizer.json"))
    count = tokenizer.get_vocab_size()
    source = torch.Generator().manual_seed(7)
    weights = torch.rand(count, generator=source, dtype=torch.float64) + 0.5
    mapping = torch.randint(0, 30, (count,), generator=source)
    tensors = {"embeddings": _rows(30), "mapping": mapping, "weights": weights}
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": WIDTH, "normalize": normalize}
    write_json(folder / "config.json", config)
    if listed:
        kinds = (("StaticEmbedding", "."), ("Normalize", "1_Normalize"))
        write_json(
            folder / "modules.json",
            [
                {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
                for at, (kind, path) in enumerate(kinds)
            ],
        )
        (folder / "1_Normalize").mkdir()
    return folder
