"""The files of one module, of either generation, as a step. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ..checkpoint import Checkpoint
from ..errors import CheckpointError, UnknownModule
from ..hf import Raw
from ..steps import (
    CNN,
    LSTM,
    Dense,
    LayerNorm,
    LogitScore,
    Normalize,
    On,
    Pooling,
    SparseCode,
    Splade,
    Step,
    WeightedLayerPooling,
    WordWeights,
)
from .late_interaction import LateStep, RowMask, TokenPooling

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
_PLACES: Final[Mapping[str, On]] = {"sentence_embedding": "row", "token_embeddings": "tokens"}
_WHERE: Final = ("module_input_name", "module_output_name")


Read: TypeAlias = Step | LateStep | Splade | SparseCode
"""What a module is read as."""


@dataclass(frozen=True)
class Reader:
    """How the config of one kind of module becomes a step.

    Args:
        read: Config and path to the step; None where the module does nothing outside training.
        keys: That the config may have; another one could change the numbers, so it stops the start.
        file: The config's name in the module's folder.
    """

    read: Callable[[Raw, str], Read | None]
    keys: tuple[str, ...]
    file: str = "config.json"


def logit_score(path: str, checkpoint: Checkpoint) -> LogitScore:
    """The module that makes a score of a language model's logits.

    Raises:
        CheckpointError: Its config lacks the token, or reads something else than logits.
    """
    raw = checkpoint.json(f"{path}/config.json")
    config = Raw(raw if isinstance(raw, dict) else {})
    config.must_be("module_input_name", "causal_logits")
    false = None if config.value("false_token_id", None) is None else config.integer("false_token_id")
    return LogitScore(config.integer("true_token_id"), false, path)


def step(kind: str, path: str, checkpoint: Checkpoint, usual: str = "sentence_embedding") -> Read | None:
    """The step of a module, or None where it does nothing outside training.

    Args:
        usual: The `module_input_name` of a Dense that names none.

    Raises:
        CheckpointError: Its config lacks a key, or has one that is not known.
    """
    reader = READERS[kind]
    raw = checkpoint.json(f"{path}/{reader.file}" if path else reader.file)
    config = raw if isinstance(raw, dict) else {}
    check_keys(config, reader.keys, f"{path}/{reader.file} of {checkpoint.name}")
    if kind == "Dense":
        config = {"module_input_name": usual, **config}
    return reader.read(Raw(config), path)


def check_keys(config: Mapping[str, Any], keys: Sequence[str], what: str) -> None:
    """Raise `UnknownModule` where the config `what` has a key that is none of `keys`."""
    unknown = sorted(set(config) - set(keys))
    if unknown:
        raise UnknownModule(
            f"{what} says {', '.join(f'{key}={config[key]!r}' for key in unknown)}.",
            allowed=f"It has {', '.join(keys)}.",
            fix="Serving without it could give wrong numbers, so name another checkpoint.",
            param="model",
        )


def word_weights(config: Raw) -> tuple[float, ...]:
    """The weight of each word of `vocab`: its own, else that of its lower-cased form, else that of unknown words."""
    weights, unknown = config.value("word_weights", {}), config.number("unknown_word_weight", 1)
    return tuple(float(weights.get(word, weights.get(word.lower(), unknown))) for word in config.value("vocab"))


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
        modes = tuple(mode for key, mode in _OLD_MODES.items() if config.value(key, False))
    return Pooling(modes or ("mean",), bool(config.value("include_prompt", True)), path)


def _dense(config: Raw, path: str) -> Dense:
    return Dense(
        in_features=config.size("in_features"),
        out_features=config.size("out_features"),
        bias=bool(config.value("bias", True)),
        activation=str(config.value("activation_function", Dense(1, 1).activation)),
        path=path,
        on=_place(config, path),
        residual=bool(config.value("use_residual", False)),
    )


def _layer_norm(config: Raw, path: str) -> LayerNorm:
    return LayerNorm(config.size("dimension"), path)


def _normalize(config: Raw, path: str) -> Normalize:
    return Normalize(path, _place(config, path))


def _weighted_layers(config: Raw, path: str) -> WeightedLayerPooling:
    first, last = config.integer("layer_start", 4), config.size("num_hidden_layers", 12)
    if not 0 <= first <= last:
        raise CheckpointError(f"{path}/config.json says layer_start={first}.", allowed=f"It is from 0 to {last}.")
    return WeightedLayerPooling(_size(config, "embedding_dimension", "word_embedding_dimension"), first, last, path)


def _cnn(config: Raw, path: str) -> CNN:
    sizes = tuple(config.value("kernel_sizes", [1, 3, 5]))
    strides = set(config.value("stride_sizes", [1]))
    if strides != {1} or any(size % 2 == 0 for size in sizes):
        raise CheckpointError(
            f"{path}/cnn_config.json says kernel_sizes={list(sizes)} and strides of {sorted(strides)}.",
            allowed="Odd kernels and strides of 1; others give another number of rows than there are tokens.",
        )
    in_features = _size(config, "in_embedding_dimension", "in_word_embedding_dimension")
    return CNN(in_features, config.size("out_channels", 256), sizes, path)


def _lstm(config: Raw, path: str) -> LSTM:
    return LSTM(
        in_features=_size(config, "embedding_dimension", "word_embedding_dimension"),
        hidden_size=config.size("hidden_dim"),
        num_layers=config.size("num_layers", 1),
        bidirectional=bool(config.value("bidirectional", True)),
        path=path,
    )


def _word_weights(config: Raw, path: str) -> WordWeights:
    return WordWeights(word_weights(config), path)


def _row_mask(config: Raw, path: str) -> RowMask:
    only = config.value("keep_only_token_ids", None)
    return RowMask(
        words=tuple(config.value("skiplist_words", ())),
        input_types=_input_types(config, "skiplist_tasks"),
        only_ids=tuple(only) if only else None,
    )


def _token_pooling(config: Raw, path: str) -> TokenPooling:
    factor, protected = config.number("pool_factor", 1), config.integer("num_protected_tokens", 1)
    if factor < 1 or protected < 0:
        raise CheckpointError(
            f"{path}/config.json says pool_factor={factor} and num_protected_tokens={protected}.",
            allowed="They are at least 1 and at least 0.",
        )
    # Folders without the key are older than normalising.
    normalize = bool(config.value("normalize_embeddings", False))
    return TokenPooling(factor, protected, normalize, _input_types(config, "tasks"))


def _splade(config: Raw, path: str) -> Splade:
    pooling, activation = config.value("pooling_strategy", "max"), config.value("activation_function", "relu")
    if pooling not in ("max", "sum") or activation not in ("relu", "log1p_relu"):
        raise CheckpointError(
            f"{path}/config.json says pooling_strategy={pooling!r} and activation_function={activation!r}.",
            allowed="The first is max or sum, the second relu or log1p_relu.",
        )
    return Splade(pooling, 1 if activation == "relu" else 2, path)


def _sparse_code(config: Raw, path: str) -> SparseCode:
    in_features, out_features = config.size("input_dim"), config.size("hidden_dim", 512)
    standardizes = bool(config.value("normalize", False))
    return SparseCode(in_features, out_features, config.size("k", 8), standardizes, path=path)


def _input_types(config: Raw, key: str) -> tuple[str, ...]:
    named = config.value(key, "document")
    return (named,) if isinstance(named, str) else tuple(named)


def _size(config: Raw, name: str, old_name: str) -> int:
    return config.size(name if name in config.raw else old_name)


def _place(config: Raw, path: str) -> On:
    name = config.value("module_input_name", "sentence_embedding")
    output = config.value("module_output_name", name)
    if name not in _PLACES or output != name:
        raise CheckpointError(
            f"{path}/config.json says module_input_name={name!r} and module_output_name={output!r}.",
            allowed=f"Both are the same, one of {', '.join(_PLACES)}.",
        )
    return _PLACES[name]


READERS: Final[Mapping[str, Reader]] = {
    "Pooling": Reader(
        _pooling,
        ("embedding_dimension", "word_embedding_dimension", "pooling_mode", "include_prompt", *_OLD_MODES),
    ),
    "Dense": Reader(_dense, ("in_features", "out_features", "bias", "activation_function", "use_residual", *_WHERE)),
    "LayerNorm": Reader(_layer_norm, ("dimension",)),
    "Normalize": Reader(_normalize, _WHERE),
    "WeightedLayerPooling": Reader(
        _weighted_layers, ("embedding_dimension", "word_embedding_dimension", "layer_start", "num_hidden_layers")
    ),
    "CNN": Reader(
        _cnn,
        ("in_embedding_dimension", "in_word_embedding_dimension", "out_channels", "kernel_sizes", "stride_sizes"),
        "cnn_config.json",
    ),
    "LSTM": Reader(
        _lstm,
        ("embedding_dimension", "word_embedding_dimension", "hidden_dim", "num_layers", "dropout", "bidirectional"),
        "lstm_config.json",
    ),
    "WordWeights": Reader(_word_weights, ("vocab", "word_weights", "unknown_word_weight")),
    "MultiVectorMask": Reader(_row_mask, ("skiplist_words", "skiplist_tasks", "keep_only_token_ids")),
    "HierarchicalTokenPooling": Reader(
        _token_pooling, ("pool_factor", "num_protected_tokens", "normalize_embeddings", "tasks")
    ),
    "SpladePooling": Reader(
        _splade,
        ("pooling_strategy", "activation_function", "embedding_dimension", "word_embedding_dimension", "chunk_size"),
    ),
    "SparseAutoEncoder": Reader(_sparse_code, ("input_dim", "hidden_dim", "k", "k_aux", "normalize", "dead_threshold")),
    "Dropout": Reader(lambda config, path: None, ("dropout",)),
}
"""Kind of a module, as the last part of its type -> how it is read."""
