"""`modules.json` of a Sentence-Transformers folder, both generations, as steps. No torch.

The first generation (up to 5.3) names classes `sentence_transformers.models.X`, says pooling in booleans and keeps the
length limit in `sentence_bert_config.json`; the second has one module path per class and `pooling_mode`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .checkpoint import Checkpoint
from .errors import CheckpointError, UnknownModule
from .hf import Raw
from .steps import Dense, LayerNorm, Normalize, Pooling, Step

# Packages whose classes are the ones below; a class of the same name from elsewhere may compute something else.
_PACKAGES: Final = ("sentence_transformers.", "pylate.models.")

_TRANSFORMER_CONFIGS: Final = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)

# Order counts: several modes at once are put side by side in this one.
_OLD_MODES: Final[Mapping[str, str]] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "last",
}
_NEW_MODES: Final[Mapping[str, str]] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weightedmean",
    "lasttoken": "last",
}


@dataclass(frozen=True)
class Modules:
    """What a Sentence-Transformers folder says.

    Args:
        folder: Where the transformer's own files are, relative to the checkpoint.
        steps: What comes after the transformer, in order; () where it is a classifier by itself.
        max_seq_length: Its length limit, if it states one.
        do_lower_case: Whether text is lower-cased before tokenising.
        settings: `config_sentence_transformers.json`, raw.
    """

    folder: str
    steps: tuple[Step, ...]
    max_seq_length: int | None
    do_lower_case: bool
    settings: Mapping[str, Any]


def read(checkpoint: Checkpoint) -> Modules | None:
    """Read the modules, or None where there is no `modules.json`.

    Raises:
        UnknownModule: A module is not known.
        CheckpointError: The modules are not a transformer, a pooling and what may follow them.
    """
    listed = checkpoint.json("modules.json")
    if listed is None:
        return None
    if not isinstance(listed, list) or not all(isinstance(module, dict) for module in listed):
        raise CheckpointError(f"modules.json of {checkpoint.name} is not a list of modules.")
    kinds = [_kind(module, checkpoint) for module in listed]
    folder = str(listed[0].get("path") or "") if listed else ""
    transformer = _transformer_config(checkpoint, folder)
    classifies = kinds == ["Transformer"] and transformer.get("transformer_task") == "sequence-classification"
    if kinds[:2] != ["Transformer", "Pooling"] and not classifies:
        raise CheckpointError(
            f"modules.json of {checkpoint.name} lists {kinds}.",
            allowed="A Transformer, a Pooling, then Dense, LayerNorm, Normalize or Dropout.",
        )
    steps = [_step(kind, str(module.get("path") or ""), checkpoint) for kind, module in zip(kinds, listed, strict=True)]
    settings = checkpoint.json("config_sentence_transformers.json")
    return Modules(
        folder=folder,
        steps=tuple(step for step in steps if step is not None),
        max_seq_length=_max_seq_length(transformer),
        do_lower_case=bool(transformer.get("do_lower_case")),
        settings=settings if isinstance(settings, dict) else {},
    )


def _kind(module: Mapping[str, Any], checkpoint: Checkpoint) -> str:
    dotted = str(module.get("type", ""))
    kind = dotted.rsplit(".", 1)[-1]
    if not dotted.startswith(_PACKAGES) or kind not in ("Transformer", *_READERS, "Dropout"):
        raise UnknownModule(
            f"modules.json of {checkpoint.name} has a module of type {dotted!r}.",
            allowed=f"Known are Transformer, {', '.join(_READERS)} and Dropout of sentence-transformers.",
            fix="Serving without it would give wrong numbers, so name another checkpoint.",
            param="model",
        )
    return kind


def _step(kind: str, path: str, checkpoint: Checkpoint) -> Step | None:
    # Dropout does nothing outside training.
    if kind in ("Transformer", "Dropout"):
        return None
    raw = checkpoint.json(f"{path}/config.json" if path else "config.json")
    return _READERS[kind](Raw(raw if isinstance(raw, dict) else {}), path)


def _pooling(config: Raw, path: str) -> Pooling:
    mode = config.value("pooling_mode", None)
    if mode is not None:
        names = [mode] if isinstance(mode, str) else list(mode)
        unknown = [name for name in names if name not in _NEW_MODES]
        if unknown:
            raise UnknownModule(
                f"{path}/config.json asks for pooling {unknown}.", allowed=f"Known: {list(_NEW_MODES)}."
            )
        modes = tuple(_NEW_MODES[name] for name in names)
    else:
        flags = [key for key, on in config.raw.items() if key.startswith("pooling_mode_") and on]
        unknown = [key for key in flags if key not in _OLD_MODES]
        if unknown:
            raise UnknownModule(f"{path}/config.json asks for {unknown}.", allowed=f"Known: {list(_OLD_MODES)}.")
        modes = tuple(mode for key, mode in _OLD_MODES.items() if key in flags)
    return Pooling(modes or ("mean",), bool(config.value("include_prompt", True)), path)


def _dense(config: Raw, path: str) -> Dense:
    config.must_be("module_input_name", "sentence_embedding")
    config.must_be("module_output_name", "sentence_embedding")
    config.must_be("use_residual", False)
    return Dense(
        in_features=config.size("in_features"),
        out_features=config.size("out_features"),
        bias=bool(config.value("bias", True)),
        activation=str(config.value("activation_function", Dense(1, 1).activation)),
        path=path,
    )


def _layer_norm(config: Raw, path: str) -> LayerNorm:
    return LayerNorm(config.size("dimension"), path)


def _normalize(config: Raw, path: str) -> Normalize:
    config.must_be("module_input_name", "sentence_embedding")
    config.must_be("module_output_name", "sentence_embedding")
    return Normalize(path)


_READERS: Final[Mapping[str, Callable[[Raw, str], Step]]] = {
    "Pooling": _pooling,
    "Dense": _dense,
    "LayerNorm": _layer_norm,
    "Normalize": _normalize,
}


def _transformer_config(checkpoint: Checkpoint, folder: str) -> Mapping[str, Any]:
    for name in _TRANSFORMER_CONFIGS:
        raw = checkpoint.json(f"{folder}/{name}" if folder else name)
        if isinstance(raw, dict):
            return raw
    return {}


def _max_seq_length(transformer: Mapping[str, Any]) -> int | None:
    value = transformer.get("max_seq_length")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
