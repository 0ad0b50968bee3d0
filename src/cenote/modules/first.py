"""The first module: what makes rows of a text. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..checkpoint import Checkpoint
from ..hf import Raw
from ..steps import Bag, PresentWords, Step
from .readers import check_keys, word_weights
from .sparse import present_words

_TRANSFORMER_CONFIGS: Final = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)


@dataclass(frozen=True)
class First:
    """What the files of a first module say.

    Args:
        stated: What stands for `config.json`; None for a transformer, which has one.
        steps: What it does itself of what others leave to a Pooling.
        max_seq_length: Its length limit, if it states one.
        limit_file: Where that stands.
        do_lower_case: Whether text is lower-cased before tokenising.
        classifies: Whether it may stand alone, as a classifier.
        fills: Whether it gives the logits of words in the place of each token, which a SpladePooling reads.
        beside: The config beside a transformer, raw.
        generates: Whether it gives the logits of tokens, which a LogitScore reads.
        words: The weights of words, where they are all of the model.
        reads_messages: Whether the two texts of a pair are messages of a conversation.
    """

    stated: Mapping[str, Any] | None = None
    steps: tuple[Step, ...] = ()
    max_seq_length: int | None = None
    limit_file: str = "sentence_bert_config.json"
    do_lower_case: bool = False
    classifies: bool = False
    fills: bool = False
    words: PresentWords | None = None
    beside: Mapping[str, Any] = field(default_factory=dict)
    generates: bool = False
    reads_messages: bool = False


def read(kind: str, path: str, checkpoint: Checkpoint) -> First:
    """Read the first module of `kind`, one of `FIRSTS`, in the folder `path`.

    Raises:
        CheckpointError: Its config lacks a key, or has one that is not known.
    """
    return FIRSTS[kind](path, checkpoint)


def _transformer(path: str, checkpoint: Checkpoint, task: str = "feature-extraction") -> First:
    found = (_json(checkpoint, path, name) for name in _TRANSFORMER_CONFIGS)
    raw: Mapping[str, Any] = next((config for config in found if config), {})
    task = raw.get("transformer_task", task)
    return First(
        max_seq_length=_max_seq_length(raw),
        do_lower_case=bool(raw.get("do_lower_case")),
        classifies=task == "sequence-classification",
        beside=raw,
        fills=task == "fill-mask",
        generates=task == "text-generation",
        reads_messages="message" in (raw.get("modality_config") or {}),
    )


def _masked_lm(path: str, checkpoint: Checkpoint) -> First:
    return _transformer(path, checkpoint, "fill-mask")


def _present_words(path: str, checkpoint: Checkpoint) -> First:
    words = present_words(path, checkpoint)
    return First({"model_type": "present_words", "vocab_size": len(words.weights)}, words=words)


def _static(path: str, checkpoint: Checkpoint) -> First:
    return First({"model_type": "static_embedding"}, (Bag(path),))


def _bag_of_words(path: str, checkpoint: Checkpoint) -> First:
    keys = ("vocab", "word_weights", "unknown_word_weight", "cumulative_term_frequency")
    config = _strict(checkpoint, path, "config.json", keys)
    vocab = list(dict.fromkeys(Raw(config).value("vocab")))
    weights = word_weights(Raw({**config, "vocab": vocab}))
    return First({**config, "model_type": "bow", "vocab": vocab, "weights": weights}, (Bag(path),))


def _word_embeddings(path: str, checkpoint: Checkpoint) -> First:
    name = "wordembedding_config.json"
    config = _strict(checkpoint, path, name, ("tokenizer_class", "update_embeddings", "max_seq_length"))
    return First(
        {"model_type": "word_embeddings", "tokenizer_class": config.get("tokenizer_class")},
        max_seq_length=_max_seq_length({"max_seq_length": 1_000_000, **config}),
        limit_file=name,
    )


def _strict(checkpoint: Checkpoint, path: str, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
    config = _json(checkpoint, path, name)
    check_keys(config, keys, f"{path}/{name} of {checkpoint.name}")
    return config


def _json(checkpoint: Checkpoint, path: str, name: str) -> dict[str, Any]:
    raw = checkpoint.json(f"{path}/{name}" if path else name)
    return raw if isinstance(raw, dict) else {}


def _max_seq_length(config: Mapping[str, Any]) -> int | None:
    value = config.get("max_seq_length")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


FIRSTS: Final[Mapping[str, Callable[[str, Checkpoint], First]]] = {
    "Transformer": _transformer,
    "MLMTransformer": _masked_lm,
    "SparseStaticEmbedding": _present_words,
    "StaticEmbedding": _static,
    "WordEmbeddings": _word_embeddings,
    "BoW": _bag_of_words,
}
"""Kind of a module, as the last part of its type -> how it is read."""
