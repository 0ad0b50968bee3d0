"""Rewards: raw values of a classifier, per text or per token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UnsupportedTask

if TYPE_CHECKING:
    from ..recipe import Recipe


def task(recipe: Recipe) -> str:
    """The task that reads the rewards of a checkpoint.

    Raises:
        UnsupportedTask: It has no classifier.
    """
    if recipe.classifier is None:
        raise UnsupportedTask(
            f"{recipe.name} gives no rewards.",
            allowed="Rewards are the values of a classifier.",
            fix=f"Read it as {' or '.join(recipe.tasks)}.",
            param="model",
        )
    return "classify" if recipe.classifier.head == "sequence" else "token_classify"


def options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the task: no activation unless one is asked for."""
    asked = given.get("pooling_params") is not None or given.get("use_activation") is not None
    return dict(given) if asked else {**given, "use_activation": False}
