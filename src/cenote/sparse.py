"""What makes the sparse rows of a checkpoint, and what their dimensions are. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .errors import CheckpointError
from .steps import MaskedLM, Splade
from .types import FloatArray, IntArray

if TYPE_CHECKING:
    from .models import ModelConfig

SparseStep = Splade

ARCHITECTURES = ("BertSpladeSparseEmbeddingModel",)
"""Names by which the reference asks for sparse vectors, through `hf_overrides`."""


@dataclass(frozen=True)
class Sparse:
    """How a checkpoint is read as sparse rows.

    Args:
        step: What makes them.
        size: How many dimensions there are.
        of_words: Whether a dimension is a token of the vocabulary.
        similarity: How two rows are compared, one of `recipe.SIMILARITIES`.
        max_active: At most so many dimensions of a row are not zero; None for no limit.
    """

    step: SparseStep
    size: int
    of_words: bool = True
    similarity: str = "dot"
    max_active: int | None = None


class Reading(NamedTuple):
    """What a checkpoint is read with beside its pooling.

    Args:
        masked_lm: Its masked-language-model head.
        sparse: What makes its sparse rows.
        alone: Why it makes no other vectors, or None where it does.
    """

    masked_lm: MaskedLM | None = None
    sparse: Sparse | None = None
    alone: str | None = None


def reading(
    plain: bool,
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
        architecture: The class that `config.json` names.
        is_stored: Whether a tensor of that name is among the weights.

    Raises:
        CheckpointError: It is to make sparse rows, and its head is not stored.
    """
    sources["masked_lm"] = sources["sparse"] = "none: the checkpoint is no masked language model"
    if not plain:
        return Reading()
    head = model.nature.masked_lm
    alone = architecture in ARCHITECTURES
    # Embedders are often saved under the name of the masked language model that they were, without its head.
    if head is not None and is_stored(f"{head.dense}.weight"):
        sources["masked_lm"] = "the weights"
        sources["sparse"] = "default: a masked language model without modules.json"
        why_alone = f"config.json says {architecture}" if alone else None
        return Reading(head, Sparse(Splade(), model.vocab_size), why_alone)
    if alone:
        raise CheckpointError(
            f"config.json says architectures=[{architecture!r}], and no masked-language-model head is stored.",
            fix="Name a checkpoint that was saved with its head.",
        )
    return Reading()


def parted(row_n2: FloatArray) -> tuple[IntArray, FloatArray]:
    """Dimensions and values of one sparse row, as the task `sparse` gives it."""
    return row_n2[:, 0].astype(np.int32), np.ascontiguousarray(row_n2[:, 1])
