"""Sentence-Transformers folders of both generations, with tiny random models.

The new generation is what the installed library saves. The old one (up to 5.3) is the same model with its files in the
old form, so both must give the same vectors.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense as DenseModule
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling

from .checkpoints import randomise, tiny_transformer
from .saving import PLAIN, Saved, read_json, restyle, write_json

Generation = Literal["old", "new"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]

# Old config key -> mode, in the order in which an old folder joins several modes.
OLD_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLING_MODES = tuple(OLD_POOLING_KEYS.values())
OLD_VERSIONS = {"sentence_transformers": "3.0.1", "transformers": "4.41.2", "pytorch": "2.3.1"}
PLACES = ("module_input_name", "module_output_name")
# Kind of a module -> its config and the key there that was about word embeddings.
OLD_SIZES = {
    "WeightedLayerPooling": ("config.json", "embedding_dimension"),
    "CNN": ("cnn_config.json", "in_embedding_dimension"),
    "LSTM": ("lstm_config.json", "embedding_dimension"),
}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class Dense:
    """One Dense module: its output size, an activation of `torch.nn` by name, the dtype its weights are stored in."""

    out_features: int = 28
    activation: str = "Tanh"
    bias: bool = True
    dtype: str = "float32"


def sentence_transformer(
    folder: Path,
    *,
    generation: Generation = "new",
    model_type: str = "bert",
    pooling: str | Sequence[str] = "mean",
    include_prompt: bool = True,
    dense: Dense | None = None,
    layer_norm: bool = False,
    normalize: bool = False,
    max_seq_length: int | None = None,
    do_lower_case: bool = False,
    prompts: Mapping[str, str] | None = None,
    default_prompt_name: str | None = None,
    similarity: Similarity | None = None,
    seed: int = 0,
    dtype: str = "float32",
    saved: Saved = PLAIN,
    **config_overrides: Any,
) -> Path:
    """Save Transformer, Pooling, then Dense, LayerNorm and Normalize as asked, and return `folder`.

    Args:
        folder: Made if need be; empty.
        generation: Which file forms.
        model_type: As in `tiny_transformer`, like `seed`, `dtype`, `saved` and `config_overrides`.
        pooling: A mode, or several to be joined. The old generation knows them in the order of `POOLING_MODES` only.
        include_prompt: Whether the prompt's tokens are pooled.
        dense, layer_norm, normalize: Modules after the pooling.
        max_seq_length: In the tokenizer's files (new) or in `sentence_bert_config.json` alone (old).
        do_lower_case: Lower-case a model whose own tokenizer keeps case: in `tokenizer.json` (new) or in
            `sentence_bert_config.json` alone (old).
        prompts, default_prompt_name, similarity: As in `config_sentence_transformers.json`.

    Raises:
        ValueError: The old generation cannot say this order of pooling modes.
    """
    modes = [pooling] if isinstance(pooling, str) else list(pooling)
    if generation == "old" and modes != [mode for mode in POOLING_MODES if mode in modes]:
        raise ValueError(f"An old folder joins pooling modes as {POOLING_MODES}; give {modes} in that order.")
    settings: dict[str, Any] = {
        "prompts": dict(prompts or {}),
        "default_prompt_name": default_prompt_name,
        "similarity_fn_name": similarity,
    }
    with tempfile.TemporaryDirectory() as scratch:
        base = tiny_transformer(
            model_type, Path(scratch), seed=seed, dtype=dtype, lowercase=not do_lower_case, **config_overrides
        )
        transformer = _transformer(base, max_seq_length, do_lower_case)
        width = transformer.get_embedding_dimension()
        modules = [transformer, Pooling(width, modes, include_prompt=include_prompt)]
        modules += _after_pooling(width * len(modes), dense, layer_norm, normalize, seed)
        model = SentenceTransformer(modules=modules, device="cpu", **settings)
        model.save_pretrained(str(folder), create_model_card=False)
        if dense is not None:
            _store_dense(folder, width * len(modes), dense, seed)
        if generation == "old":
            age(folder, base, max_seq_length, do_lower_case)
    return restyle(folder, saved)


def _transformer(base: Path, max_seq_length: int | None, do_lower_case: bool) -> Any:
    if do_lower_case:
        _read_tokenizer_as_it_stands(base)
    limits = {} if max_seq_length is None else {"model_max_length": max_seq_length}
    return Transformer(str(base), processor_kwargs=limits, do_lower_case=do_lower_case)


def _read_tokenizer_as_it_stands(base: Path) -> None:
    """Name the tokenizer class that takes `tokenizer.json` whole.

    The families' own classes of transformers 5 build their normalizer anew and lose the lower-casing that
    sentence-transformers put into the file.
    """
    path = base / "tokenizer_config.json"
    write_json(path, read_json(path) | {"tokenizer_class": "PreTrainedTokenizerFast"})


def _dense(width: int, dense: Dense, seed: int) -> DenseModule:
    activation = getattr(torch.nn, dense.activation)()
    module = DenseModule(width, dense.out_features, bias=dense.bias, activation_function=activation)
    randomise(module, seed)
    return module


def _store_dense(folder: Path, width: int, dense: Dense, seed: int) -> None:
    """Write the weights in their own dtype; the library saved them in that of the transformer."""
    state = _dense(width, dense, seed).to(getattr(torch, dense.dtype)).state_dict()
    save_file(state, folder / "2_Dense" / "model.safetensors")


def _after_pooling(width: int, dense: Dense | None, layer_norm: bool, normalize: bool, seed: int) -> list[Any]:
    modules: list[Any] = []
    if dense is not None:
        modules.append(_dense(width, dense, seed))
        width = dense.out_features
    if layer_norm:
        modules.append(LayerNorm(width))
        randomise(modules[-1], seed)
    if normalize:
        modules.append(Normalize())
    return modules


def age(folder: Path, base: Path, max_seq_length: int | None, do_lower_case: bool) -> None:
    """Turn a new folder into the old forms, in place; the tokenizer of `base` has no limit and no lower-casing."""
    for name in TOKENIZER_FILES:
        shutil.copyfile(base / name, folder / name)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_seq_length, "do_lower_case": do_lower_case})
    age_modules(folder)


def age_modules(folder: Path) -> None:
    """Turn the list of modules and their configs into the old forms, in place."""
    settings = read_json(folder / "config_sentence_transformers.json")
    del settings["model_type"]
    write_json(folder / "config_sentence_transformers.json", settings | {"__version__": OLD_VERSIONS})
    entries: list[dict[str, Any]] = read_json(folder / "modules.json")
    for entry in entries:
        kind = entry["type"].rsplit(".", 1)[-1]
        entry["type"] = f"sentence_transformers.models.{kind}"
        age_module(folder / entry["path"], kind)
    write_json(folder / "modules.json", entries)


def age_module(folder: Path, kind: str) -> None:
    """Turn the config of one module into its old form, in place."""
    path = folder / "config.json"
    if kind == "Normalize":
        if read_json(path)["module_input_name"] == "sentence_embedding":
            path.unlink()
    elif kind == "Pooling":
        new = read_json(path)
        modes = [new["pooling_mode"]] if isinstance(new["pooling_mode"], str) else new["pooling_mode"]
        flags = {key: mode in modes for key, mode in OLD_POOLING_KEYS.items()}
        old = {"word_embedding_dimension": new["embedding_dimension"], **flags, "include_prompt": new["include_prompt"]}
        write_json(path, old)
    elif kind == "Dense":
        new = read_json(path)
        named = {key for key in PLACES if new[key] == "sentence_embedding"}
        write_json(path, {key: value for key, value in new.items() if key not in named})
    elif kind in OLD_SIZES:
        name, key = OLD_SIZES[kind]
        new = read_json(folder / name)
        write_json(folder / name, {f"{key.replace('embedding', 'word_embedding')}": new.pop(key), **new})
