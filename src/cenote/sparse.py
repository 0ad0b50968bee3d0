"""What makes the sparse rows of a checkpoint, and what their dimensions are. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .errors import CheckpointError
from .modules import Modules
from .modules.sparse import SparseModules
from .steps import Dense, MaskedLM, PresentWords, SparseCode, SparseStep, Splade
from .types import FloatArray, InputType, IntArray

if TYPE_CHECKING:
    from .models import ModelConfig

ARCHITECTURES = ("BertSpladeSparseEmbeddingModel",)
"""Names by which the reference asks for sparse vectors, through `hf_overrides`."""


@dataclass(frozen=True)
class Sparse:
    """How a checkpoint is read as sparse rows.

    Args:
        step: What makes them of what the model reads.
        size: How many dimensions there are.
        of_words: Whether a dimension is a token of the vocabulary.
        similarity: How two rows are compared, one of `recipe.SIMILARITIES`.
        max_active: At most so many dimensions of a row are not zero, where a request says nothing; None for no limit.
        words: What makes rows of texts that the model does not read, or None.
        by_words: Which texts those are; None stands for those that are neither queries nor documents.
        is_main: Whether the checkpoint was made for sparse rows, whatever others it has.
    """

    step: SparseStep
    size: int
    of_words: bool = True
    similarity: str = "dot"
    max_active: int | None = None
    words: PresentWords | None = None
    by_words: tuple[InputType | None, ...] = ()
    is_main: bool = False


class Reading(NamedTuple):
    """What a checkpoint is read with beside its pooling.

    Args:
        masked_lm: Its masked-language-model head.
        sparse: What makes its sparse rows.
        alone: Why it makes no other vectors, or None where it does.
        multi_vector: What makes vectors of its tokens, where those are not made as a text's are.
    """

    masked_lm: MaskedLM | None = None
    sparse: Sparse | None = None
    alone: str | None = None
    multi_vector: Dense | None = None


def reading(
    plain: bool,
    listed: Modules | None,
    architecture: str,
    model: ModelConfig,
    is_stored: Callable[[str], bool],
    sources: dict[str, str],
) -> Reading:
    """How a checkpoint is read as words and as sparse rows.

    A masked language model without `modules.json` makes sparse rows by SPLADE's maximum, as sentence-transformers
    takes it.

    Args:
        plain: Whether it is no classifier, no late interaction, and has no `modules.json`.
        listed: Its modules, or None.
        architecture: The class that `config.json` names.
        is_stored: Whether a tensor of that name is among the weights.

    Raises:
        CheckpointError: It is to make sparse rows, and its head is not stored.
    """
    sources["masked_lm"] = sources["sparse"] = "none: the checkpoint is no masked language model"
    if listed is not None and listed.sparse is not None:
        return _from_modules(listed.sparse, listed.settings, model, is_stored, sources)
    if not plain:
        return Reading()
    head = model.nature.masked_lm
    alone = architecture in ARCHITECTURES
    # Embedders are often saved under the name of the masked language model that they were, without its head.
    if head is not None and is_stored(f"{head.dense}.weight"):
        sources["masked_lm"] = "the weights"
        sources["sparse"] = "default: a masked language model without modules.json"
        why_alone = f"config.json says {architecture}" if alone else None
        return Reading(head, Sparse(Splade(), model.vocab_size, is_main=alone), why_alone)
    if alone:
        raise _headless(f"config.json says architectures=[{architecture!r}]")
    return Reading()


def _from_modules(
    made: SparseModules,
    settings: Mapping[str, Any],
    model: ModelConfig,
    is_stored: Callable[[str], bool],
    sources: dict[str, str],
) -> Reading:
    sources["sparse"] = "modules.json"
    step, head = made.step, None
    alone: str | None = "modules.json makes sparse vectors"
    size, max_active = model.vocab_size, settings.get("max_active_dims")
    if isinstance(step, Splade):
        head = model.nature.masked_lm
        if head is None or not is_stored(f"{head.dense}.weight"):
            raise _headless("modules.json has a SpladePooling")
        sources["masked_lm"] = "the weights"
        size = max(size, len(made.words.weights) if made.words else 0)
    elif isinstance(step, SparseCode):
        size, alone = step.out_features, None
        # As the reference: how many values there are is what the folder says, else what the module was trained with.
        step = replace(step, k=max_active or step.k)
    similarity = str(settings.get("similarity_fn_name") or Sparse.similarity)
    of_words = not isinstance(step, SparseCode)
    return Reading(head, Sparse(step, size, of_words, similarity, max_active, made.words, made.by_words, True), alone)


def _headless(why: str) -> CheckpointError:
    return CheckpointError(
        f"{why}, and no masked-language-model head is stored.", fix="Name a checkpoint that was saved with its head."
    )


def parted(row_n2: FloatArray) -> tuple[IntArray, FloatArray]:
    """Dimensions and values of one sparse row, as the task `sparse` gives it."""
    return row_n2[:, 0].astype(np.int32), np.ascontiguousarray(row_n2[:, 1])
