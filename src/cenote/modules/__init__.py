"""`modules.json` of a Sentence-Transformers folder, both generations, as steps. No torch.

The first generation (up to 5.3) names classes `sentence_transformers.models.X`, says pooling in booleans and keeps the
length limit in `sentence_bert_config.json`; the second has one module path per class and `pooling_mode`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..checkpoint import Checkpoint
from ..errors import CheckpointError, UnknownModule
from ..steps import Pooling, Step, layers_read, on_tokens
from . import readers

FIRST: Final = "Transformer"

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
    if kinds[:1] != [FIRST]:
        raise _disordered(kinds, checkpoint)
    found = [
        readers.step(kind, str(module.get("path") or ""), checkpoint)
        for kind, module in zip(kinds[1:], listed[1:], strict=True)
    ]
    steps = tuple(step for step in found if step is not None)
    classifies = not steps and transformer.get("transformer_task") == "sequence-classification"
    if not (classifies or _in_order(steps)):
        raise _disordered(kinds, checkpoint)
    settings = checkpoint.json("config_sentence_transformers.json")
    return Modules(
        folder=folder,
        steps=steps,
        max_seq_length=_max_seq_length(transformer),
        do_lower_case=bool(transformer.get("do_lower_case")),
        settings=settings if isinstance(settings, dict) else {},
    )


def _kind(module: Mapping[str, Any], checkpoint: Checkpoint) -> str:
    dotted = str(module.get("type", ""))
    kind = dotted.rsplit(".", 1)[-1]
    if not dotted.startswith(_PACKAGES) or kind not in (FIRST, *readers.READERS):
        raise UnknownModule(
            f"modules.json of {checkpoint.name} has a module of type {dotted!r}.",
            allowed=f"Known are {FIRST}, {', '.join(readers.READERS)} of sentence-transformers.",
            fix="Serving without it would give wrong numbers, so name another checkpoint.",
            param="model",
        )
    return kind


def _in_order(steps: Sequence[Step]) -> bool:
    """Whether there are steps on tokens, then one Pooling, then steps on its row."""
    places = [1 if isinstance(step, Pooling) else 0 if on_tokens(step) else 2 for step in steps]
    # Rows of layers replace whatever was made of the last one, so nothing stands before them.
    replaces = any(layers_read(step) for step in steps[1:])
    return places.count(1) == 1 and places == sorted(places) and not replaces


def _disordered(kinds: Sequence[str], checkpoint: Checkpoint) -> CheckpointError:
    return CheckpointError(
        f"modules.json of {checkpoint.name} lists {list(kinds)}.",
        allowed=f"A {FIRST}, what changes rows of tokens (WeightedLayerPooling, then CNN, LSTM, WordWeights, Dense or "
        "Normalize of token_embeddings), one Pooling, then Dense, LayerNorm, Normalize or Dropout.",
    )


def _transformer_config(checkpoint: Checkpoint, folder: str) -> Mapping[str, Any]:
    for name in _TRANSFORMER_CONFIGS:
        raw = checkpoint.json(f"{folder}/{name}" if folder else name)
        if isinstance(raw, dict):
            return raw
    return {}


def _max_seq_length(transformer: Mapping[str, Any]) -> int | None:
    value = transformer.get("max_seq_length")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
