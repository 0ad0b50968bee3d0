"""Options under the reference's names, as Cenote's own records. Shared by every door that speaks them."""

from __future__ import annotations

import functools
import logging
import typing
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, Literal, cast

import numpy as np

from . import conversion
from .config import MachineSettings, ModelSettings, OnLong, resolve
from .errors import BadInput, ConfigError, UnsupportedTask
from .outputs import PoolingParams
from .pooler import renamed_task
from .recipe import Recipe
from .tasks import Task, find, names
from .types import Length
from .uses import Use, score
from .values import kinds_of

log = logging.getLogger(__name__)

_SAME: Final[Mapping[str, str]] = {"max_num_batched_tokens": "max_batch_tokens", "max_num_seqs": "max_batch_seqs"}
# Settings of the reference that tune its own machine; the result is the same without them.
_NOTED: Final = (
    "disable_log_stats",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "enforce_eager",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "seed",
    "swap_space",
    "tokenizer_mode",
)
# Settings that would change the result, or that ask for a machine which Cenote does not have.
_REFUSED: Final = (
    "chat_template",
    "compilation_config",
    "data_parallel_size",
    "enable_lora",
    "enable_prompt_embeds",
    "limit_mm_per_prompt",
    "mm_processor_kwargs",
    "pipeline_parallel_size",
    "skip_tokenizer_init",
    "tensor_parallel_size",
)
_HARMLESS: Final[tuple[Any, ...]] = (None, False, 1, {})

# Each changes what the model reads in a way that Cenote does not do: nothing is ever padded, and text is not altered.
_REFUSED_TOKENIZATION: Final = ("pad_prompt_tokens", "padding", "do_lower_case")
_IDLE_TOKENIZATION: Final = ("needs_detokenization",)
_TRUNCATIONS: Final = (None, True, False, "longest_first", "do_not_truncate")
_TOKENIZATION: Final = (
    "truncate_prompt_tokens",
    "truncation_side",
    "truncation",
    "max_length",
    "add_special_tokens",
)


# Of extra_kwargs: keys of caches that Cenote does not have.
_IDLE_EXTRA: Final = ("cache_salt",)

# Options of the reference's PoolingParams that each task has -> our names for them.
_TOKEN_EMBED: Final = {"use_activation": "normalize", "dimensions": "dimensions"}
_EMBED: Final = {**_TOKEN_EMBED, "pooling": "pooling"}
_CLASSIFY: Final = {"use_activation": "use_activation"}
_POOLING_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "embed": _EMBED,
    "token_embed": _TOKEN_EMBED,
    "classify": _CLASSIFY,
    "token_classify": _CLASSIFY,
    "sparse": {},
    "hybrid": _EMBED,
}


def llm_settings(given: Mapping[str, Any]) -> tuple[ModelSettings, MachineSettings]:
    """Arguments of `LLM`, the reference's names included, as settings.

    Raises:
        ConfigError: One is unknown, or names what Cenote does not have.
    """
    renamed = {_SAME.get(name, name): value for name, value in given.items()}
    refused = [name for name, value in renamed.items() if name in _REFUSED and not _is_harmless(value)]
    if refused:
        what = f"LLM() was given {refused[0]}={renamed[refused[0]]!r}, which Cenote does not have."
        raise ConfigError(what, fix="Leave it out.", param=refused[0])
    noted = [name for name in renamed if name in _NOTED]
    if noted:
        log.info("These settings tune the reference and change nothing here: %s.", ", ".join(noted))
    kept = {name: value for name, value in renamed.items() if name not in _NOTED and name not in _REFUSED}
    machine = {field.name for field in fields(MachineSettings)}
    return (
        resolve(ModelSettings, {name: value for name, value in kept.items() if name not in machine}).settings,
        resolve(MachineSettings, {name: value for name, value in kept.items() if name in machine}).settings,
    )


def _is_harmless(value: Any) -> bool:
    # True equals 1, but a switch that is on asks for something, and one of anything does not.
    return value is not True and value in _HARMLESS


_CALLED: Final = {
    "embed": "Embedding",
    "classify": "Classification",
    "token_embed": "Token embedding",
    "sparse": "Sparse embedding",
    "hybrid": "Hybrid embedding",
}


def check_served(task: str, recipe: Recipe) -> None:
    """Raise `UnsupportedTask`, in the reference's words, where a model cannot be read as `task`."""
    if not find(task).serves(recipe):
        raise UnsupportedTask(
            f"{_CALLED[task]} API is not supported by this model.",
            allowed=f"Supported tasks of {recipe.name}: {recipe.tasks}",
            fix="Name a checkpoint that has it.",
            param="model",
        )


def sparse_size(task: str, recipe: Recipe) -> int | None:
    """How many dimensions the sparse rows of `task` have; None for another task."""
    return recipe.sparse.size if task == "sparse" and recipe.sparse is not None else None


def task_named(name: str | None, recipe: Recipe) -> str:
    """A task by its name, or by one of the reference's old names, which warn.

    Raises:
        UnsupportedTask: There is none, or the model does not serve it.
    """
    if name is None:
        allowed = f"Choose one of {names()}."
        raise BadInput("pooling_task is required for LLM.encode.", allowed=allowed, param="pooling_task")
    task, warning = renamed_task(name, recipe)
    if task not in recipe.tasks:
        allowed = f"Supported tasks: {recipe.tasks}"
        raise UnsupportedTask(f"Unsupported task: {name!r}", allowed=allowed, param="pooling_task")
    if warning:
        warnings.warn(warning, DeprecationWarning, stacklevel=3)
    return task


_OLD_TASKS: Final = {
    "embed": "LLM.embed",
    "embedding": "LLM.embed",
    "classify": "LLM.classify",
    "score": "LLM.score",
    "reward": "LLM.reward",
    "encode": "LLM.encode with pooling_task='token_embed' or 'token_classify'",
}


def old_task(task: str) -> None:
    """Accept the reference's old switch with a warning, or refuse it. All tasks are live whatever it says.

    Raises:
        UnsupportedTask: It is not a task that is served.
    """
    if task == "generate":
        conversion.check_runner(task)
    if task not in _OLD_TASKS:
        raise UnsupportedTask(f"Unsupported task: {task!r}", allowed=f"Supported tasks: {names()}", param="task")
    warnings.warn(
        f"task={task!r} is an old name and decides nothing; call {_OLD_TASKS[task]}.", DeprecationWarning, stacklevel=3
    )


def length_of(truncate_prompt_tokens: int | None, truncation_side: str | None, max_len: int, default: Length) -> Length:
    """The reference's truncation options as a `Length`.

    Args:
        truncate_prompt_tokens: None leaves it to `default`; -1 cuts at the model's limit; else the limit.
        truncation_side: `left`, `right`, or None for the right.
        max_len: The model's limit in tokens.
        default: What the door does where nothing was asked for.

    Raises:
        BadInput: The limit is above the model's, or there is no such side.
    """
    if truncation_side not in (None, "left", "right"):
        raise BadInput(f"truncation_side={truncation_side!r}.", allowed="It is left or right.", param="truncation_side")
    side = cast(Literal["left", "right"], truncation_side or "right")
    if truncate_prompt_tokens is None:
        return default if side == default.side else replace(default, side=side)
    wanted = truncate_prompt_tokens
    if wanted > max_len:
        # Two sentences of the reference: its server says the first, its offline API the second.
        raise BadInput(
            "truncate_prompt_tokens value is greater than max_model_len. Please request a smaller truncation size.",
            allowed=f"truncate_prompt_tokens={wanted} cannot be greater than max_model_len = {max_len}.",
            param="truncate_prompt_tokens",
        )
    if wanted < 1 and wanted != -1:
        raise BadInput(
            f"truncate_prompt_tokens={wanted} leaves nothing of an input.",
            allowed=f"It takes 1 to {max_len}, or -1 for the model's limit.",
            param="truncate_prompt_tokens",
        )
    return Length("cut", side, None if wanted == -1 else wanted, explicit=True)


def default_length(
    lora_request: None, settings: OnLong | None, on_long: OnLong | None = None, chunk_overlap: int | None = None
) -> Length:
    """What happens to long inputs where the reference's options do not say: as asked, else as the settings say.

    Raises:
        BadInput: An adapter is asked for, or there is no such way.
    """
    if lora_request is not None:
        raise BadInput("lora_request was given, but Cenote serves no adapters.", param="lora_request")
    if on_long not in (None, "refuse", "cut", "chunk"):
        raise BadInput(f"on_long={on_long!r}.", allowed="It is refuse, cut or chunk.", param="on_long")
    if chunk_overlap is not None and (isinstance(chunk_overlap, bool) or not isinstance(chunk_overlap, int)):
        raise BadInput(f"chunk_overlap={chunk_overlap!r}.", allowed="It is a whole number.", param="chunk_overlap")
    return Length(on_long or settings or "refuse", overlap=chunk_overlap, explicit=on_long is not None)


def tokenization(kwargs: Mapping[str, Any] | None, recipe: Recipe, default: Length) -> tuple[Length, bool]:
    """`tokenization_kwargs` as a `Length` and whether special tokens are added.

    Raises:
        BadInput: An option is unknown, or one that Cenote refuses.
    """
    given = {name: value for name, value in (kwargs or {}).items() if name not in _IDLE_TOKENIZATION}
    for name, value in given.items():
        if name in _REFUSED_TOKENIZATION:
            if value not in (None, False, "do_not_pad"):
                raise BadInput(f"tokenization_kwargs has {name}={value!r}, which Cenote does not do.", param=name)
        elif name not in _TOKENIZATION:
            allowed = f"Known are {', '.join(_TOKENIZATION)}."
            raise BadInput(f"tokenization_kwargs has {name!r}.", allowed=allowed, param=name)
    if given.get("truncation") not in _TRUNCATIONS:
        what = f"tokenization_kwargs has truncation={given['truncation']!r}."
        raise BadInput(what, allowed=f"Allowed are {', '.join(map(repr, _TRUNCATIONS))}.", param="truncation")
    for name in ("truncate_prompt_tokens", "max_length"):
        value = given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            what = f"tokenization_kwargs has {name}={value!r}."
            raise BadInput(what, allowed="It is a whole number of tokens.", param=name)
    special = given.get("add_special_tokens", True)
    if not isinstance(special, bool):
        what = f"tokenization_kwargs has add_special_tokens={special!r}."
        raise BadInput(what, allowed="It is True or False.", param="add_special_tokens")
    limit = given.get("truncate_prompt_tokens")
    if limit is None and given.get("truncation") not in (None, False, "do_not_truncate"):
        limit = -1 if given.get("max_length") is None else given["max_length"]
    length = length_of(limit, given.get("truncation_side"), recipe.max_len, default)
    return length, special


def task_params(
    task: str,
    given: PoolingParams | Sequence[PoolingParams] | None,
    num_prompts: int,
    add_special_tokens: bool,
    more: Mapping[str, Any],
) -> list[Any]:
    """Pooling options of the reference as those of a task: one for all prompts, or one for each.

    Args:
        more: Fields of the task's `Params`, by their names or the reference's, which win.

    Raises:
        BadInput: An option is not one of this task, or there are not as many as prompts.
        UnsupportedTask: There is no such task.
    """
    if given is None and not more:
        return [_unasked(cast(Any, find(task)), add_special_tokens)]
    default = find(task).default_params()
    known = {field.name for field in fields(cast(Any, default))}
    ours = _ours(task, known)
    twice = [name for name in more if name in ours and ours[name] != name and ours[name] in more]
    if twice:
        what = f"Both {twice[0]} and {ours[twice[0]]} are given, which are one option."
        raise BadInput(what, fix="Give one of them.", param=twice[0])
    more = {ours.get(name, name): value for name, value in more.items()}
    # A plugin's task need not have this one.
    has_special = "add_special_tokens" in known or not add_special_tokens
    special = {"add_special_tokens": add_special_tokens} if has_special else {}
    unknown = [name for name in (*more, *special) if name not in known]
    if unknown:
        raise BadInput(f"{task} has no option {unknown[0]!r}.", allowed=f"It has {sorted(known)}.", param=unknown[0])

    def one(params: PoolingParams) -> Any:
        _check(params, task, ours)
        named = {own: value for theirs, own in ours.items() if (value := getattr(params, theirs)) is not None}
        return typed(replace(cast(Any, default), **{**named, **special, **more}))

    if given is None or isinstance(given, PoolingParams):
        return [one(given or PoolingParams())]
    if len(given) != num_prompts:
        what = f"The lengths of prompts ({num_prompts}) and params ({len(given)}) must be the same."
        raise BadInput(what, param="pooling_params")
    return [one(params) for params in given]


@functools.lru_cache(maxsize=64)
def _unasked(task: Task, add_special_tokens: bool) -> Any:
    """What `task_params` gives where nothing is asked for: the same for every call, and frozen."""
    (params,) = task_params(task.NAME, PoolingParams(), 1, add_special_tokens, {})
    return params


def score_options(
    params: PoolingParams | None, template: str | None, add_special_tokens: bool, more: Mapping[str, Any]
) -> score.Options:
    """Options of scoring: those of the reference, and `more` by our names, which win.

    Raises:
        BadInput: An option is unknown.
    """
    params = params or PoolingParams()
    if not isinstance(params, PoolingParams):
        raise BadInput("pooling_params of a score is one object for all pairs.", param="pooling_params")
    extra = {name: value for name, value in (params.extra_kwargs or {}).items() if name not in _IDLE_EXTRA}
    given: dict[str, Any] = {
        "use_activation": params.use_activation,
        "dimensions": params.dimensions,
        "template": template,
        "add_special_tokens": add_special_tokens,
    }
    given["template_kwargs"] = extra.pop("chat_template_kwargs", None)
    given.update(extra)
    given.update(more)
    known = {field.name for field in fields(score.Options)}
    unknown = [name for name in given if name not in known]
    unknown += [name for name in params.given() if name not in ("use_activation", "dimensions", "extra_kwargs")]
    if unknown:
        raise BadInput(f"Scoring has no option {unknown[0]!r}.", allowed=f"It has {sorted(known)}.", param=unknown[0])
    return score.Options(**given)


def use_options(use: Use, more: Mapping[str, Any]) -> Any:
    """Options of a plugin's use by their names; raises `BadInput` where one is unknown or of another type."""
    default = use.Options()
    known = [field.name for field in fields(default)]
    unknown = [name for name in more if name not in known]
    if unknown:
        raise BadInput(f"{use.NAME} has no option {unknown[0]!r}.", allowed=f"It has {known}.", param=unknown[0])
    return typed(replace(default, **more))


def typed(record: Any) -> Any:
    """`record`, whose fields come from a caller, if each has the type that its class says; else raises `BadInput`."""
    cls: Any = type(record)
    for name, kinds in _kinds_of_fields(cls).items():
        value = getattr(record, name)
        value = value.item() if isinstance(value, np.generic) else value
        if (isinstance(value, bool) and bool not in kinds) or not isinstance(value, kinds):
            allowed = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
            raise BadInput(f"{name}={value!r}.", allowed=f"Its type is {allowed}.", param=name)
    return record


@functools.cache
def _kinds_of_fields(cls: Any) -> dict[str, tuple[type, ...]]:
    kinds_by_name = {name: kinds_of(hint) for name, hint in typing.get_type_hints(cls).items()}
    return {name: (int, *kinds) if float in kinds else kinds for name, kinds in kinds_by_name.items()}


def _ours(task: str, known: Collection[str]) -> Mapping[str, str]:
    """Options of the reference's `PoolingParams` that a task has -> our names for them; a plugin's has them as such."""
    of_guests = {name: name for name in (*_EMBED, "use_activation") if name in known}
    return _POOLING_NAMES.get(task, of_guests)


def _check(params: PoolingParams, task: str, ours: Collection[str]) -> None:
    if params.task is not None and params.task != task:
        raise BadInput(f"You cannot overwrite param.task={params.task!r} with pooling_task={task!r}!", param="task")
    allowed = sorted(ours)
    extra = [name for name in params.given() if name not in allowed]
    if extra:
        what = f"Task {task!r} only supports {allowed} parameters, does not support {extra} parameters."
        raise BadInput(what, param=extra[0])
