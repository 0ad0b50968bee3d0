"""Rewards: raw values of a classifier, per text or per token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import UnsupportedTask
from ..outputs import PoolingParams

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
    """Options of the task: no activation where none is asked for."""
    asked: Any = given.get("pooling_params")
    if given.get("use_activation") is not None:
        return dict(given)
    without = {name: value for name, value in given.items() if name != "use_activation"}
    if asked is None or isinstance(asked, PoolingParams):
        return {**without, "pooling_params": _raw(asked or PoolingParams())}
    return {**without, "pooling_params": [_raw(one) for one in asked]}


def _raw(params: PoolingParams) -> PoolingParams:
    return params if params.use_activation is not None else replace(params, use_activation=False)
