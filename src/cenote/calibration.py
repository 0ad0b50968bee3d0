"""Where the ranges of one-byte vectors come from: the user's calibration, else a sample of texts that ships here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from . import precisions
from .errors import BadInput
from .tasks import embed
from .types import FloatArray, Length, Outcome

if TYPE_CHECKING:
    from .engine import Engine
    from .recipe import Recipe

log = logging.getLogger(__name__)

SAMPLE: Final = "calibration.txt"
"""The shipped texts, one a line: everyday prose, questions, headlines, code, numbers, in several languages."""


def quantized(engine: Engine, rows: FloatArray, precision: str, params: embed.Params) -> tuple[NDArray[Any], str]:
    """Rows in `precision`; blocks while the sample runs, once for each form of vectors.

    Args:
        engine: The model that made them.
        rows: float32 `[N, E]`.
        params: What they were made with.

    Returns:
        The rows, as `precisions.quantize` has them, and a warning where their ranges are those of the sample, else "".
    """
    if precision not in precisions.WITH_RANGES:
        return precisions.quantize(rows, precision), ""
    known = engine.calibration
    if known is not None and known.size == rows.shape[1] and _is_of(known, engine.recipe, params):
        return precisions.quantize(rows, precision, known.ranges), ""
    return precisions.quantize(rows, precision, _sample_ranges(engine, params)), _warning(engine, rows.shape[1])


def in_precision(engine: Engine, params: Sequence[embed.Params], outcome: Outcome, precision: str) -> Outcome:
    """`outcome` with its rows in `precision`; blocks as `quantized` does.

    Args:
        params: What the rows were made with: one, or several where prompts had options of their own.

    Raises:
        BadInput: The rows are of several forms, which have no ranges in common.
    """
    if precision == "float32":
        return outcome
    forms = {_form(engine.recipe, one) if precision in precisions.WITH_RANGES else one.dimensions for one in params}
    if len(forms) > 1:
        raise BadInput(
            f"The prompts ask for {len(forms)} forms of vectors, and precision={precision!r} is for one.",
            fix="Embed prompts of other dimensions, normalize or pooling in a call of their own.",
            param="precision",
        )
    rows, _ = quantized(engine, np.stack(list(outcome.rows)), precision, params[0])
    return replace(outcome, rows=rows)


@cache
def sample_texts() -> tuple[str, ...]:
    """The shipped texts."""
    text = resources.files(__package__).joinpath(SAMPLE).read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line)


def _sample_ranges(engine: Engine, params: embed.Params) -> FloatArray:
    form = _form(engine.recipe, params)
    ranges = engine.sample_ranges.get(form)
    if ranges is None:
        outcome = engine.run_call(embed.NAME, sample_texts(), form, length=Length("cut"), lane="bulk", wait=True)
        assert not isinstance(outcome.rows, list)
        # Two threads may come here at once; both find the same.
        engine.sample_ranges[form] = ranges = precisions.ranges_of(outcome.rows)
        log.warning("%s", _warning(engine, ranges.shape[1]))
    return ranges


def _form(recipe: Recipe, params: embed.Params) -> embed.Params:
    """What of `params` decides the ranges; those of queries and documents are the same, so that their codes compare."""
    routing = recipe.routing
    kind = None if routing is None or routing.default is not None else routing.tasks[0]
    return embed.Params(params.normalize, params.dimensions, prompt="", input_type=kind, pooling=params.pooling)


def _is_of(known: precisions.Calibration, recipe: Recipe, params: embed.Params) -> bool:
    """Whether vectors are normalised and pooled as those were that a calibration measured."""
    asked, measured = (recipe.normalize if one is None else one for one in (params.normalize, known.normalize))
    of_its_pooling = embed.read_key(recipe, replace(params, pooling=known.pooling or None))
    return asked == measured and embed.read_key(recipe, params) == of_its_pooling


def _warning(engine: Engine, size: int) -> str:
    known = engine.calibration
    why = "without a calibration" if known is None else f"and the calibration has {known.size}"
    if known is not None and known.size == size:
        why = "that are normalised or pooled in another way than those of the calibration"
    return (
        f"int8 and uint8 vectors of {engine.name} have {size} numbers {why}: their ranges are those of "
        f"{len(sample_texts())} sample texts. Run `cenote calibrate` on texts of your own."
    )
