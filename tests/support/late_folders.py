"""Folders of late-interaction models with tiny random weights: of MultiVectorEncoder, PyLate and Stanford's ColBERT."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling, MultiVectorMask

from .checkpoints import randomise, tiny_transformer
from .saving import read_json, write_json

ST_SETTINGS = "config_sentence_transformers.json"


def multi_vector(
    folder: Path,
    *,
    model_type: str = "bert",
    sizes: Sequence[int] = (12,),
    normalize: bool = True,
    mask: Mapping[str, Any] | None = None,
    pooling: Mapping[str, Any] | None = None,
    transformer: Mapping[str, Any] | None = None,
    max_seq_length: int | None = None,
    seed: int = 0,
    **settings: Any,
) -> Path:
    """Save Transformer, a Dense for each of `sizes`, MultiVectorMask, Normalize and HierarchicalTokenPooling.

    Args:
        mask, pooling: Arguments of the modules; None for no such module.
        transformer: Arguments of the Transformer: query_length, document_length, query_expansion.
        settings: Arguments of MultiVectorEncoder, such as prompts.
    """
    with tempfile.TemporaryDirectory() as scratch:
        base = tiny_transformer(model_type, Path(scratch), seed=seed)
        limits = {} if max_seq_length is None else {"model_max_length": max_seq_length}
        first = Transformer(str(base), processor_kwargs=limits, **(transformer or {}))
        modules: list[Any] = [first]
        width = first.get_embedding_dimension()
        for number, size in enumerate(sizes):
            dense = Dense(
                width, size, bias=bool(number), activation_function=torch.nn.Identity(), module_input_name=ON_TOKENS
            )
            randomise(dense, seed + number)
            modules.append(dense)
            width = size
        modules += [MultiVectorMask(**mask)] if mask is not None else []
        modules += [Normalize(module_input_name=ON_TOKENS)] if normalize else []
        modules += [HierarchicalTokenPooling(**pooling)] if pooling is not None else []
        model = MultiVectorEncoder(modules=modules, device="cpu", **settings)
        model.save_pretrained(str(folder), create_model_card=False)
    return folder


ON_TOKENS = "token_embeddings"


def pylate(folder: Path, *, size: int = 12, prompts: Mapping[str, str] | None = None, **said: Any) -> Path:
    """A folder as PyLate saves it: Transformer and Dense, and in the settings what its code does besides.

    Args:
        said: Keys of `config_sentence_transformers.json`, such as query_prefix and query_length.
    """
    multi_vector(folder, sizes=(size,))
    entries: list[dict[str, Any]] = read_json(folder / "modules.json")[:2]
    entries[0]["type"] = "sentence_transformers.models.Transformer"
    entries[1]["type"] = "pylate.models.Dense.Dense"
    write_json(folder / "modules.json", entries)
    dense = read_json(folder / entries[1]["path"] / "config.json")
    kept = {key: dense[key] for key in ("in_features", "out_features", "bias", "activation_function")}
    write_json(folder / entries[1]["path"] / "config.json", {**kept, "use_residual": False})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 179, "do_lower_case": False})
    settings = {"model_type": "ColBERT", "__version__": {"sentence_transformers": "5.1.1"}}
    named = {"prompts": dict(prompts or {}), "default_prompt_name": None, "similarity_fn_name": "MaxSim"}
    write_json(folder / ST_SETTINGS, {**settings, **named, **said})
    return folder


def stanford(
    folder: Path, *, model_type: str = "bert", size: int = 12, projection: str = "linear.weight", **metadata: Any
) -> Path:
    """A folder of Stanford's ColBERT: one file of weights with the projection in it, and `artifact.metadata`.

    Args:
        model_type: `bert`, or `jina_embeddings_v3` for what jina-colbert-v2 is made of, with markers of its own.
    """
    tiny_transformer(model_type, folder)
    prefix = {"bert": "bert", "jina_embeddings_v3": "roberta"}[model_type]
    weights = {f"{prefix}.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    width = read_json(folder / "config.json")["hidden_size"]
    weights[projection] = torch.randn(size, width, generator=torch.Generator().manual_seed(3)) / 4
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    write_json(folder / "config.json", read_json(folder / "config.json") | {"architectures": ["HF_ColBERT"]})
    if model_type == "bert":
        _name_unused(folder)
    else:
        metadata = {"query_token_id": JINA_MARKERS[0], "doc_token_id": JINA_MARKERS[1], **metadata}
        _add_markers(folder)
    write_json(folder / "artifact.metadata", metadata)
    return folder


JINA_MARKERS = ("[QueryMarker]", "[DocumentMarker]")


def _add_markers(folder: Path) -> None:
    """Make two tokens of their own of the last pieces of the vocabulary."""
    tokenizer = read_json(folder / "tokenizer.json")
    vocab: list[list[Any]] = tokenizer["model"]["vocab"]
    for name, number in zip(JINA_MARKERS, (len(vocab) - 4, len(vocab) - 3), strict=True):
        vocab[number][0] = name
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        tokenizer["added_tokens"].append({"id": number, "content": name, **flags})
    tokenizer["added_tokens"].sort(key=lambda token: token["id"])
    write_json(folder / "tokenizer.json", tokenizer)


def _name_unused(folder: Path) -> None:
    """Give the last two words of the vocabulary the names that BERT's unused tokens have."""
    tokenizer = read_json(folder / "tokenizer.json")
    vocab: dict[str, int] = tokenizer["model"]["vocab"]
    last = sorted(vocab, key=lambda word: vocab[word])[-2:]
    for number, word in enumerate(last):
        vocab[f"[unused{number}]"] = vocab.pop(word)
    write_json(folder / "tokenizer.json", tokenizer)
