"""A few rows of a language-model head as a classifier; the rest of it is never loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from torch import Tensor

from .errors import ConfigError, WeightMismatch
from .models import Architecture
from .steps import HeadRows, Stage

STAGES: Final = (Stage("score", bias=None, row="last"),)
"""The one layer that it becomes."""


def wanted(architecture: Architecture, tokens: HeadRows | None) -> dict[str, Sequence[int]]:
    """Stored matrices, without prefix -> the rows of them that make the classifier.

    Raises:
        ConfigError: The family has no language-model head.
    """
    if tokens is None:
        return {}
    if not hasattr(architecture, "LM_HEAD"):
        raise ConfigError(
            "The labels are tokens, but this family of models has no language-model head.",
            allowed="Language models have one.",
            fix="Leave classifier_from_token out.",
            param="hf_overrides",
        )
    ids = [*tokens.ids, *([] if tokens.less is None else [tokens.less])]
    head, words = architecture.LM_HEAD
    return {f"{head}.weight": ids, f"{head}.bias": ids, f"{words}.weight": ids}


def classifier(
    architecture: Architecture, tokens: HeadRows, kept: Mapping[str, Tensor], *, is_tied: bool | None, name: str
) -> dict[str, Tensor]:
    """The tensors of `STAGES`, in float32: rows of the head, or of the table of words where it is tied to that.

    Args:
        kept: What was stored of `wanted`.
        is_tied: Whether the config ties them; None where it does not say, so that they are if no head is stored.
        name: Of the checkpoint, for the message.

    Raises:
        WeightMismatch: Neither is stored.
    """
    head, words = architecture.LM_HEAD
    if is_tied is None:
        is_tied = f"{head}.weight" not in kept
    matrix = words if is_tied else head
    if f"{matrix}.weight" not in kept:
        raise WeightMismatch(f"{name} has no {matrix}.weight, of which its labels are rows.", fix="Fetch it again.")
    found = {"score.weight": kept[f"{matrix}.weight"]}
    if f"{head}.bias" in kept:
        found["score.bias"] = kept[f"{head}.bias"]
    if tokens.less is not None:
        found = {key: rows[:-1] - rows[-1:] for key, rows in found.items()}
    return found
