"""One recipe of several: each route of a checkpoint has its own, and all are served as one model. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import prompting
from .config import ModelSettings
from .errors import BadInput, CheckpointError, ConfigError
from .modules.routing import Routing

if TYPE_CHECKING:
    from .recipe import Recipe

_SOURCE = "modules.json: Router"


def keyed(prompts: Any, recipe: Recipe) -> tuple[Any, str | None]:
    """Prompts of the old form `{"query": text}`, without their key, and the key; other prompts as they are, and None.

    Raises:
        BadInput: They have several keys, or some have none.
    """
    kinds = _kinds(recipe)
    if not kinds:
        return prompts, None
    first = prompts if isinstance(prompts, Mapping) else prompts[0] if isinstance(prompts, list) and prompts else None
    key = next(iter(first)) if isinstance(first, Mapping) and len(first) == 1 else None
    if key not in kinds:
        return prompts, None
    each = [prompts] if isinstance(prompts, Mapping) else prompts
    others = [one for one in each if not isinstance(one, Mapping) or set(one) != {key}]
    if others:
        named = sorted(others[0]) if isinstance(others[0], Mapping) else type(others[0]).__name__
        raise BadInput(
            f"The first prompt has the key {key!r}, and another has {named}.",
            allowed="All prompts of a call have the same key, which says what they are.",
            fix="Make a call for each.",
            param="prompts",
        )
    texts = [one[key] for one in each]
    wrong = next((at for at, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        what = f"Prompt {wrong} has {key!r} of type {type(texts[wrong]).__name__}."
        raise BadInput(what, allowed="A text.", param="prompts", index=wrong)
    return texts[0] if isinstance(prompts, Mapping) else texts, key


def of_kind(key: str, recipe: Recipe, options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` of a call for prompts of a key, which chooses no prompt, as in sentence-transformers.

    Raises:
        BadInput: They say what the prompts are, too.
    """
    if options.get("input_type") is not None:
        what = f"The prompts have the key {key!r}, and input_type={options['input_type']!r} was given."
        raise BadInput(what, fix="Give one of them.", param="input_type")
    if options.get("prompt") is None and options.get("prompt_name") is None:
        options = {**options, "prompt": prompting.text_before(recipe, prompt=None, prompt_name=None)}
    return {**options, "input_type": key}


def _kinds(recipe: Recipe) -> tuple[str, ...]:
    """Keys of prompts for models that read queries and documents by modules of their own."""
    if recipe.routing is not None:
        return (*recipe.routing.tasks, *recipe.routing.names)
    return ("query", "document") if recipe.sparse is not None and recipe.sparse.by_words else ()


def joined(found: Mapping[str, Recipe], routing: Routing, settings: ModelSettings) -> Recipe:
    """The recipe of a checkpoint with routes: that of its default route, and all of them in it.

    Args:
        found: Name of a route -> the recipe of it alone.

    Raises:
        CheckpointError: The routes make rows that cannot be compared, or none that all make.
        ConfigError: A setting is for one tokenizer, and each route has its own.
    """
    first = routing.default or routing.names[0]
    routes = {first: found[first], **found}
    main = routes[first]
    if settings.tokenizer is not None:
        raise ConfigError(
            f"tokenizer={settings.tokenizer!r}, but each route of {main.name} has its own.",
            fix="Leave it out.",
            param="tokenizer",
        )
    made = {name: f"{one.default_task} rows of {_size(one)}" for name, one in routes.items()}
    if len({*made.values()}) > 1 or main.convert != "embed" or any(one.late_interaction for one in routes.values()):
        raise CheckpointError(
            f"The routes of {main.name} make {made}.",
            allowed="All routes of a Router make one vector per text, of the same size.",
            fix="Name another checkpoint.",
        )
    # A route without a limit says nothing about what the model takes.
    longest = max(routes.values(), key=lambda one: -1 if one.model.nature.bag else one.max_len)
    sources = {**main.sources, "routes": _SOURCE, "default_route": _SOURCE, "max_len": longest.sources["max_len"]}
    return replace(main, max_len=longest.max_len, routing=routing, routes=routes, sources=sources)


def _size(recipe: Recipe) -> int:
    return recipe.embedding_size if recipe.sparse is None else recipe.sparse.size
