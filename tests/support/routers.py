"""Sentence-Transformers folders with a Router, saved by the library in its new form, or aged to an Asym."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from tokenizers import Tokenizer

from .checkpoints import randomise, tiny_transformer
from .saving import read_json, write_json
from .sentence_folders import Generation, age_module, age_modules

WIDTH = 60
"""Of the transformers."""
TOKENS = "token_embeddings"


def _transformer(base: Path, model_type: str, seed: int) -> Transformer:
    folder = tiny_transformer(model_type, base / f"{model_type}-{seed}", seed=seed, num_hidden_layers=1)
    made: Transformer = Transformer(str(folder))
    return made


def _static(base: Path) -> StaticEmbedding:
    tokenizer = Tokenizer.from_file(str(tiny_transformer("roberta", base / "words") / "tokenizer.json"))
    rows = torch.randn(tokenizer.get_vocab_size(), 20, generator=torch.Generator().manual_seed(3))
    return StaticEmbedding(tokenizer, embedding_weights=rows)


def _dense(width: int, seed: int, size: int = 24, **more: Any) -> Dense:
    module = Dense(width, size, **more)
    randomise(module, seed)
    return module


def _static_queries(base: Path) -> list[Any]:
    """Routes that share nothing, of which one has no transformer."""
    documents = [_transformer(base, "bert", 0), Pooling(WIDTH, "mean"), _dense(WIDTH, 1)]
    return [Router.for_query_document([_static(base), _dense(20, 2)], documents), Normalize()]


def _two_transformers(base: Path) -> list[Any]:
    """Two architectures with tokenizers of their own; what is no query goes to the first route."""
    queries, documents = _transformer(base, "roberta", 0), _transformer(base, "bert", 1)
    inside = {"query": [queries, Pooling(WIDTH, "cls")], "document": [documents, Pooling(WIDTH, "mean")]}
    return [Router(inside), _dense(WIDTH, 3)]


def _two_denses(base: Path) -> list[Any]:
    """One transformer, and a Dense for each side after its pooling, in a folder of the Router's own."""
    router = Router.for_query_document([_dense(WIDTH, 1)], [_dense(WIDTH, 2)], default_route="query")
    return [_transformer(base, "bert", 0), Pooling(WIDTH, "mean"), router]


def _shared(base: Path) -> list[Any]:
    """One transformer in both routes, whose tokens are changed in one of them; no default."""
    transformer = _transformer(base, "bert", 0)
    queries = [transformer, _dense(WIDTH, 1, WIDTH, module_input_name=TOKENS), Pooling(WIDTH, "cls")]
    inside = {"q": queries, "doc": [transformer, Pooling(WIDTH, "lasttoken")]}
    rules: dict[Any, str] = {("query", "text"): "q", ("document", None): "doc", ("query", None): "doc"}
    return [Router(inside, allow_empty_key=False, route_mappings=rules)]


ROUTERS: Mapping[str, Callable[[Path], list[Any]]] = {
    "static queries": _static_queries,
    "two transformers": _two_transformers,
    "two Denses": _two_denses,
    "shared": _shared,
}


def save_router(folder: Path, name: str, generation: Generation = "new", **settings: Any) -> Path:
    """Save `ROUTERS[name]`, and return `folder`; the old form is an Asym, which knows no route but by its name."""
    with tempfile.TemporaryDirectory() as scratch:
        model = SentenceTransformer(modules=ROUTERS[name](Path(scratch)), device="cpu", **settings)
        model.save_pretrained(str(folder), create_model_card=False)
    if generation == "old":
        _age(folder)
    return folder


def _age(folder: Path) -> None:
    age_modules(folder)
    entries = read_json(folder / "modules.json")
    for entry in entries:
        if entry["type"].endswith(".Router"):
            entry["type"] = "sentence_transformers.models.Asym"
            _age_router(folder / entry["path"])
    write_json(folder / "modules.json", entries)


def _age_router(folder: Path) -> None:
    config = read_json(folder / "router_config.json")
    (folder / "router_config.json").unlink()
    kinds = {inside: dotted.rsplit(".", 1)[-1] for inside, dotted in config["types"].items()}
    for inside, kind in kinds.items():
        age_module(folder / inside, kind)
    types = {inside: f"sentence_transformers.models.{kind}" for inside, kind in kinds.items()}
    write_json(folder / "config.json", config | {"types": types, "parameters": {"allow_empty_key": True}})
