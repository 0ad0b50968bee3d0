"""SparseEncoder folders with tiny random models, as the library saves them or in the form that it had up to 5.3."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder, SparseStaticEmbedding, SpladePooling

from .checkpoints import randomise, tiny_transformer
from .saving import read_json, write_json
from .sentence_folders import OLD_VERSIONS, Generation

WIDTH = 60
"""Of the transformer."""
PROMPTS = {"query": "look for: ", "document": "text: "}
_OLD_PACKAGE = "sentence_transformers.sparse_encoder.models"


def _masked(base: Path) -> Any:
    return Transformer(str(base), transformer_task="fill-mask")


def _words(base: Path) -> SparseStaticEmbedding:
    transformer = Transformer(str(base))
    tokenizer: Any = transformer.tokenizer
    weights = torch.rand(transformer.model.config.vocab_size, generator=torch.Generator().manual_seed(5))
    # Some words weigh nothing.
    return SparseStaticEmbedding(tokenizer, weights * (weights > 0.1), frozen=True)


def _routed(base: Path, pooling: SpladePooling) -> Router:
    return Router.for_query_document([_words(base)], [_masked(base), pooling])


def _code(*, normalize: bool) -> SparseAutoEncoder:
    module = SparseAutoEncoder(WIDTH, 4 * WIDTH + 3, k=11, k_aux=16, normalize=normalize)
    randomise(module, 3)
    return module


KINDS: Mapping[str, Callable[[Path], list[Any]]] = {
    "splade": lambda base: [_masked(base), SpladePooling()],
    "splade, sum": lambda base: [_masked(base), SpladePooling("sum", "log1p_relu")],
    "words": lambda base: [_words(base)],
    "router": lambda base: [_routed(base, SpladePooling("max", "log1p_relu"))],
    "code": lambda base: [Transformer(str(base)), Pooling(WIDTH, "mean", include_prompt=False), _code(normalize=False)],
    "code of unit rows": lambda base: [
        Transformer(str(base)),
        Pooling(WIDTH, "cls"),
        Normalize(),
        _code(normalize=True),
    ],
}
"""Names of folders -> their modules."""


def sparse_folder(folder: Path, kind: str, generation: Generation = "new", **settings: Any) -> Path:
    """Save the modules of `KINDS[kind]`, and return `folder`; `settings` are those of a SparseEncoder."""
    with tempfile.TemporaryDirectory() as scratch:
        base = tiny_transformer("bert", Path(scratch), head="masked_lm")
        model = SparseEncoder(modules=KINDS[kind](base), device="cpu", prompts=PROMPTS, **settings)
        model.save_pretrained(str(folder), create_model_card=False)
    if generation == "old":
        _age(folder)
    return folder


def _age(folder: Path) -> None:
    """Turn a SPLADE folder, or a Router with one, into the old forms; the transformer moves to the root."""
    settings = read_json(folder / "config_sentence_transformers.json")
    write_json(folder / "config_sentence_transformers.json", settings | {"__version__": OLD_VERSIONS})
    listed: list[dict[str, Any]] = read_json(folder / "modules.json")
    for module in listed:
        module["type"] = _aged(module["type"])
    write_json(folder / "modules.json", listed)
    router = folder / "router_config.json"
    if router.exists():
        raw = read_json(router)
        moved = folder / "document_0_Transformer"
        for path in moved.iterdir():
            shutil.move(path, folder / path.name)
        moved.rmdir()
        types = {"" if name == moved.name else name: _aged(dotted) for name, dotted in raw["types"].items()}
        raw["structure"]["document"] = ["", *raw["structure"]["document"][1:]]
        del raw["parameters"]["route_mappings"]
        write_json(router, raw | {"types": types})
    # Queries of a Router have the limit of their own tokenizer; one limit for both keeps texts equal.
    limit = 70 if router.exists() else 40
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": limit, "do_lower_case": False})
    for path in folder.glob("*_SpladePooling/config.json"):
        new = read_json(path)
        new["word_embedding_dimension"] = new.pop("embedding_dimension")
        write_json(path, new)


def _aged(dotted: str) -> str:
    kind = dotted.rsplit(".", 1)[-1]
    name = "MLMTransformer" if kind == "Transformer" else kind
    package = "sentence_transformers.models" if kind == "Router" else _OLD_PACKAGE
    return f"{package}.{name}"
