"""`modules.json` of a Sentence-Transformers folder, both generations, as steps. No torch.

The first generation (up to 5.3) names classes `sentence_transformers.models.X`, says pooling in booleans and keeps the
length limit in `sentence_bert_config.json`; the second has one module path per class and `pooling_mode`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ..checkpoint import Checkpoint
from ..errors import CheckpointError, UnknownModule
from ..steps import Bag, LogitScore, Pooling, SparseCode, Step, layers_read, on_tokens
from . import late_interaction, readers, sparse
from .first import FIRSTS, First
from .first import read as read_first
from .late_interaction import LateInteraction, RowMask, TokenPooling
from .sparse import ROUTER, SparseModules

SCORE: Final = "LogitScore"
KINDS: Final = (*FIRSTS, SCORE, ROUTER, *readers.READERS)

# Packages whose classes are the ones below; a class of the same name from elsewhere may compute something else.
_PACKAGES: Final = ("sentence_transformers.", "pylate.models.")

# The makers' own first module of checkpoints with adapters: it does what a Transformer does, and chooses the adapter.
_WITH_ADAPTERS: Final = "custom_st.Transformer"


@dataclass(frozen=True)
class Modules:
    """What a Sentence-Transformers folder says.

    Args:
        folder: Where the first module's own files are, relative to the checkpoint.
        first: What they say.
        steps: What comes after the backbone, in order; () where it is a classifier by itself.
        settings: `config_sentence_transformers.json`, raw.
        late_interaction: How a late-interaction model reads texts; None for any other model.
        sparse: What makes rows of a SparseEncoder; None for any other model.
        logit_score: What makes a score of a language model's logits, if there is such a module.
    """

    folder: str
    first: First
    steps: tuple[Step, ...]
    settings: Mapping[str, Any]
    logit_score: LogitScore | None = None
    late_interaction: LateInteraction | None = None
    sparse: SparseModules | None = None


def read(checkpoint: Checkpoint, listed: Any = None) -> Modules | None:
    """Read the modules, or None where there is no `modules.json`.

    Args:
        listed: What stands for `modules.json`, such as the modules of one route; None to read the file.

    Raises:
        UnknownModule: A module is not known.
        CheckpointError: The modules do not follow each other as they can.
    """
    listed = checkpoint.json("modules.json") if listed is None else listed
    if listed is None:
        return None
    if not isinstance(listed, list) or not all(isinstance(module, dict) for module in listed):
        raise CheckpointError(f"modules.json of {checkpoint.name} is not a list of modules.")
    routes, kinds = None, [_kind(module, checkpoint) for module in listed]
    if kinds == [ROUTER]:
        routes = sparse.routes(_path(listed[0]), checkpoint)
        listed = routes.documents
        kinds = [_kind(module, checkpoint) for module in listed]
    folder, *paths = [_path(module) for module in listed] or [""]
    if not kinds or kinds[0] not in FIRSTS or any(kind in FIRSTS for kind in kinds[1:]):
        raise _disordered(kinds, checkpoint)
    first = read_first(kinds[0], folder, checkpoint)
    logit_score = None
    if kinds[1:] == [SCORE] and first.generates:
        logit_score, kinds, paths = readers.logit_score(paths[0], checkpoint), kinds[:1], []
    elif SCORE in kinds:
        raise _disordered(kinds, checkpoint)
    raw = checkpoint.json("config_sentence_transformers.json")
    settings: Mapping[str, Any] = raw if isinstance(raw, dict) else {}
    is_late = late_interaction.is_late(kinds, settings)
    usual = "token_embeddings" if is_late else "sentence_embedding"
    read_ones = [readers.step(kind, path, checkpoint, usual) for kind, path in zip(kinds[1:], paths, strict=True)]
    parts = [step for step in read_ones if step is not None]
    found, made = sparse.from_modules(parts, first.words, routes)
    if is_late and len(found) == len(parts):
        late_steps, late = late_interaction.from_modules(
            [*first.steps, *found], settings, first.beside, checkpoint.name
        )
        return Modules(folder, first, late_steps, settings, late_interaction=late)
    steps = (*first.steps, *(step for step in found if not isinstance(step, (RowMask, TokenPooling))))
    if kinds[0] != "Transformer":
        # Only a Transformer says how long a prompt is, so the reference leaves no other module's out.
        steps = tuple(replace(step, include_prompt=True) if isinstance(step, Pooling) else step for step in steps)
    is_whole = len(steps) == len(first.steps) + len(parts) - (made is not None and not first.words)
    # What pools logits of words pools them by itself, and nothing else does.
    weighs_words = made is not None and not isinstance(made.step, SparseCode)
    is_alone = first.classifies or logit_score or (weighs_words and (first.fills or first.words))
    in_order = not (weighs_words or first.fills) and _in_order(steps)
    if not is_whole or not (in_order or (is_alone and not steps)):
        raise _disordered(kinds, checkpoint)
    return Modules(folder, first, steps, settings, logit_score, sparse=made)


def _path(module: Mapping[str, Any]) -> str:
    path = str(module.get("path") or "")
    return "" if path == "." else path


def _kind(module: Mapping[str, Any], checkpoint: Checkpoint) -> str:
    dotted = str(module.get("type", ""))
    kind = dotted.rsplit(".", 1)[-1]
    if dotted == _WITH_ADAPTERS and checkpoint.config.get("lora_adaptations"):
        return kind
    if not dotted.startswith(_PACKAGES) or kind not in KINDS:
        raise UnknownModule(
            f"modules.json of {checkpoint.name} has a module of type {dotted!r}.",
            allowed=f"Known are {', '.join(KINDS)} of sentence-transformers.",
            fix="Serving without it would give wrong numbers, so name another checkpoint.",
            param="model",
        )
    return kind


def _in_order(steps: Sequence[Step]) -> bool:
    """Whether there are steps on tokens, then one Pooling or Bag, then steps on its row."""
    places = [1 if isinstance(step, (Pooling, Bag)) else 0 if on_tokens(step) else 2 for step in steps]
    # Rows of layers replace whatever was made of the last one, so nothing stands before them.
    replaces = any(layers_read(step) for step in steps[1:])
    return places.count(1) == 1 and places == sorted(places) and not replaces


def _disordered(kinds: Sequence[str], checkpoint: Checkpoint) -> CheckpointError:
    return CheckpointError(
        f"modules.json of {checkpoint.name} lists {list(kinds)}.",
        allowed="A Transformer or WordEmbeddings, what changes rows of tokens (WeightedLayerPooling, then CNN, LSTM, "
        "WordWeights, Dense or Normalize of token_embeddings), one Pooling, then Dense, LayerNorm, Normalize or "
        "Dropout; or a StaticEmbedding or BoW and what may follow a Pooling; of a classifier a Transformer alone, of a "
        f"language model that scores pairs a Transformer and a {SCORE}; of a SparseEncoder a Transformer of masked "
        "words and a SpladePooling, a SparseStaticEmbedding, a Router of both, or a SparseAutoEncoder after all else.",
    )
