"""Requests with `data`, which an IO processor makes prompts of: the steps that all doors share."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from . import inputs, options
from .answers import pooling_outputs
from .errors import BadInput, CenoteError
from .io_plugins import TASK, IOPlugin
from .outputs import PoolingParams, PoolingRequestOutput
from .types import Input, Outcome

if TYPE_CHECKING:
    from .recipe import Recipe

_ids = itertools.count()


@dataclass(frozen=True)
class Planned:
    """What a plugin wants to know from the model.

    Args:
        inputs: Its prompts.
        task: What the model is read as.
        params: Options of that task: one for all prompts, or one for each.
    """

    inputs: Sequence[Input]
    task: str
    params: Sequence[Any]


@contextmanager
def handled(plugin: IOPlugin, asked_as: str = "plugin") -> Iterator[str]:
    """A request to a plugin, from its data to its answer, under an id that no other one has.

    Args:
        asked_as: What the id begins with.
    """
    request_id = f"{asked_as}-{next(_ids)}"
    try:
        yield request_id
    finally:
        # Plugins that were written for the reference have no such method.
        if hasattr(plugin, "end"):
            plugin.end(request_id)


def data_of(prompt: Any, pooling_task: str | None) -> Any:
    """The data of a prompt, if it is one for a plugin; else None.

    Raises:
        BadInput: It holds no data, or more than that.
    """
    if pooling_task != TASK or not isinstance(prompt, Mapping) or "data" not in prompt:
        return None
    unknown = sorted(set(prompt) - {"data", "data_format"})
    if unknown:
        what, allowed = f"The prompt has `data` and {unknown[0]}.", "Beside `data` it may have `data_format`."
        raise BadInput(what, allowed=allowed, param=unknown[0])
    if prompt["data"] is None:
        raise BadInput("The prompt's `data` is None.", allowed="It is what the plugin takes.", param="data")
    return prompt["data"]


def served(plugin: IOPlugin | None, param: str = "data") -> IOPlugin:
    """The plugin, if there is one; `param` is what asks for it.

    Raises:
        BadInput: There is none.
    """
    if plugin is None:
        raise BadInput(
            "The request is one for a plugin. No IOProcessor plugin installed for this model.",
            allowed="It takes texts and token ids.",
            fix="Open the model with io_processor_plugin.",
            param=param,
        )
    return plugin


@contextmanager
def blaming_data() -> Iterator[None]:
    """Let a `ValueError` of a plugin tell the caller that the data is at fault."""
    try:
        yield
    except CenoteError:
        raise
    except ValueError as error:
        raise BadInput(f"The plugin refuses the data: {error}", param="data") from error


def plan(
    recipe: Recipe, plugin: IOPlugin, prompts: Any, given: PoolingParams | Sequence[PoolingParams] | None, special: bool
) -> Planned:
    """Prompts of a plugin, and how the model reads them.

    Args:
        prompts: What its `pre_process` gave.
        given: The request's own options: of all prompts, or one per prompt.
        special: Whether special tokens are added.

    Raises:
        BadInput: A prompt or an option is not allowed, or the prompts are not all for one task.
        UnsupportedTask: The model cannot be read as that task.
    """
    parsed = inputs.parse(prompts)
    each = given if isinstance(given, Sequence) else [given]
    if isinstance(given, Sequence) and len(given) != len(parsed):
        what = f"The lengths of prompts ({len(parsed)}) and params ({len(given)}) must be the same."
        raise BadInput(what, param="pooling_params")
    with blaming_data():
        merged = [_ours(plugin.merge_pooling_params(one)) for one in each]
    tasks = sorted({_task(one, recipe) for one in merged})
    if len(tasks) > 1:
        what = f"The plugin reads the prompts of one request as {' and '.join(tasks)}."
        raise BadInput(what, allowed="All are read as one task.", param="task")
    task = tasks[0]
    params = [
        options.task_params(task, replace(one, task=task, extra_kwargs=None), 1, special, one.extra_kwargs or {})[0]
        for one in merged
    ]
    return Planned(parsed, task, params)


def outputs(planned: Planned, outcome: Outcome, recipe: Recipe) -> list[PoolingRequestOutput]:
    """What the model says to each prompt, for `post_process`."""
    return pooling_outputs(outcome, options.sparse_size(planned.task, recipe))


async def prompts_of(plugin: IOPlugin, data: Any, request_id: str) -> Any:
    """What `parse_data` and `pre_process` make of data.

    Raises:
        BadInput: The data is at fault.
    """
    with blaming_data():
        parsed = await asyncio.to_thread(plugin.parse_data, data)
        return await plugin.pre_process_async(parsed, request_id=request_id)


async def answer_of(plugin: IOPlugin, planned: Planned, outcome: Outcome, recipe: Recipe, request_id: str) -> Any:
    """What `post_process` makes of what the model says."""
    found = await asyncio.to_thread(outputs, planned, outcome, recipe)
    return await plugin.post_process_async(_one_by_one(found), request_id=request_id)


async def _one_by_one(found: Sequence[PoolingRequestOutput]) -> AsyncIterator[tuple[int, PoolingRequestOutput]]:
    for both in enumerate(found):
        yield both


def answered(answer: Any) -> list[PoolingRequestOutput]:
    """What a plugin answers, as `LLM.encode` gives it back: one output."""
    return [PoolingRequestOutput("", answer, [])]


def _task(params: PoolingParams, recipe: Recipe) -> str:
    return recipe.default_task if params.task in (None, TASK) else options.task_named(params.task, recipe)


def _ours(merged: Any) -> PoolingParams:
    """The reference's object of this name has all of our fields but those that it does not know."""
    if isinstance(merged, PoolingParams):
        return merged
    return PoolingParams(**{field.name: getattr(merged, field.name, None) for field in fields(PoolingParams)})
