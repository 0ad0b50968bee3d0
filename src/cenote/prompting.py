"""The prompts of a checkpoint: which text goes before an input, and what says so. No torch.

The names of a query's and of a document's prompt are those of sentence-transformers' `encode_query` and
`encode_document`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .errors import BadInput, CheckpointError
from .types import InputType

if TYPE_CHECKING:
    from .recipe import Recipe

log = logging.getLogger(__name__)

QUERY: Final = ("query",)
DOCUMENT: Final = ("document", "passage", "corpus")
"""Names of prompts that `encode_query` and `encode_document` look for, in this order."""

# What the field's interfaces call an input -> names that its prompt may have.
_QUERIES: Final = (*QUERY, "search_query", "retrieval.query")
_DOCUMENTS: Final = (*DOCUMENT, "search_document", "retrieval.passage")
INPUT_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys((*_QUERIES, "retrieval_query"), _QUERIES),
    **dict.fromkeys((*_DOCUMENTS, "retrieval_document"), _DOCUMENTS),
}
"""Types of input that every checkpoint knows, whatever prompts it has."""


def role(input_type: str | None) -> InputType | None:
    """What a type of input is to a model that reads queries and documents in ways of their own; None for neither."""
    names = INPUT_TYPES.get((input_type or "").lower())
    return None if names is None else "query" if names is _QUERIES else "document"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a type of input chooses.

    Args:
        prompt_name: Name of a prompt; None for the checkpoint's default one.
        prompt: "" where the type is not known, so that there is none; else None.
    """

    prompt_name: str | None = None
    prompt: str | None = None


def declared(
    modules: Mapping[str, Any], raw: Mapping[str, Any], sources: dict[str, str]
) -> tuple[dict[str, str], str | None]:
    """The prompts of a checkpoint by name, and the name of its default one.

    Args:
        modules: `config_sentence_transformers.json`.
        raw: `config.json`, whose `task_instructions` win.

    Raises:
        CheckpointError: They are no texts, or the default one is none of them.
    """
    prompts = _texts(modules.get("prompts"), "config_sentence_transformers.json says prompts")
    instructions = _texts(raw.get("task_instructions"), "config.json says task_instructions")
    default = modules.get("default_prompt_name")
    if default is not None and default not in {**prompts, **instructions}:
        raise CheckpointError(
            f"config_sentence_transformers.json says default_prompt_name={default!r}.",
            allowed=f"Its prompts are {', '.join(prompts) or 'none'}.",
        )
    named = ("config_sentence_transformers.json" if prompts else "", "config.json: task_instructions")
    sources["prompts"] = ", ".join(filter(None, named)) if instructions else named[0] or "default"
    sources["default_prompt_name"] = "config_sentence_transformers.json" if default else "default"
    return {**prompts, **instructions}, default


def _texts(given: Any, what: str) -> dict[str, str]:
    texts = {} if given is None else given
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise CheckpointError(f"{what}={given!r}.", allowed="Names and texts.")
    return texts


def fitting(recipe: Recipe, input_type: str) -> list[str]:
    """Names of the prompts that fit a type of input, the one of its own name first, then those with a text."""
    wanted = input_type.lower()
    by_name = {name.lower(): name for name in recipe.prompts}
    others = [by_name[name] for name in INPUT_TYPES.get(wanted, ()) if name in by_name and name != wanted]
    # Checkpoints may list an empty prompt of one name beside one of another name that has text.
    others.sort(key=lambda name: not recipe.prompts[name])
    names = [by_name[wanted], *others] if wanted in by_name else others
    if adapter(recipe, input_type) is not None:
        # It was trained with its instruction, beside which saved files may list an empty prompt of the type's own name.
        names.sort(key=lambda name: not recipe.prompts[name])
    return names


def by_input_type(recipe: Recipe, input_type: str) -> Chosen:
    """The prompt for a type of input; a known type without one leaves it to the checkpoint's default prompt."""
    names = fitting(recipe, input_type)
    if names:
        return Chosen(prompt_name=names[0])
    is_known = input_type.lower() in INPUT_TYPES or recipe.routing is not None
    return Chosen() if is_known else Chosen(prompt="")


def adapter(recipe: Recipe, input_type: str | None) -> str | None:
    """The checkpoint's adapter for a type of input: the one of its own name, else one of a name for the same."""
    if input_type is None:
        return None
    wanted = input_type.lower()
    return next((name for name in (wanted, *INPUT_TYPES.get(wanted, ())) if name in recipe.adapters), None)


def chooses_reading(recipe: Recipe, input_type: str | None) -> bool:
    """Whether a type of input decides more than a prompt: a route or an adapter."""
    return recipe.routing is not None or adapter(recipe, input_type) is not None


def preferring(names: Sequence[str], recipe: Recipe, options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` of a call with the first prompt of `names` that there is, unless they choose one themselves.

    A checkpoint with routes or with adapters for such texts is told what they are, too.
    """
    chosen = dict(options)
    if options.get("adapter") is None and adapter(recipe, names[0]) is not None:
        return {**chosen, "input_type": names[0]} if options.get("input_type") is None else chosen
    if not any(options.get(name) is not None for name in ("prompt", "prompt_name", "input_type")):
        found = next((name for name in names if name in recipe.prompts), recipe.default_prompt_name)
        chosen |= {"prompt": ""} if found is None else {"prompt_name": found}
    if recipe.routing is not None and options.get("input_type") is None:
        chosen["input_type"] = names[0]
    return chosen


def text_before(recipe: Recipe, *, prompt: str | None, prompt_name: str | None, input_type: str | None = None) -> str:
    """What is put before each text: `prompt`, else the prompt of that name, else that of the type of input, else the
    checkpoint's default one, else "".

    Raises:
        BadInput: The checkpoint has no prompt of that name.
    """
    if prompt is None and prompt_name is None and input_type is not None:
        chosen = by_input_type(recipe, input_type)
        if chosen.prompt is not None:
            _warn_unknown(recipe.name, input_type, tuple(recipe.prompts))
        prompt, prompt_name = chosen.prompt, chosen.prompt_name
    if prompt is not None:
        return prompt
    name = prompt_name if prompt_name is not None else recipe.default_prompt_name
    if name is None:
        return ""
    if name not in recipe.prompts:
        raise BadInput(
            f"{recipe.name} has no prompt named {name!r}.",
            allowed=f"Its prompts are {', '.join(recipe.prompts) or 'none'}.",
            param="prompt_name",
        )
    return recipe.prompts[name]


def route(recipe: Recipe, input_type: str | None) -> str:
    """Name of the route that reads a type of input; "" where the checkpoint has no routes.

    Raises:
        BadInput: There is no route for it, or the checkpoint wants to be told a type.
    """
    routing = recipe.routing
    if routing is None:
        return ""
    names = () if input_type is None else (input_type, *INPUT_TYPES.get(input_type.lower(), ()))
    found = routing.route(next((name for name in names if name in routing.tasks), input_type))
    if found is None:
        raise BadInput(
            f"{recipe.name} has no route for input_type {input_type!r}."
            if input_type is not None
            else f"{recipe.name} reads its texts by routes, and none was chosen.",
            allowed=f"It has routes for {', '.join(routing.tasks)}.",
            fix="Name one as input_type, or call embed_query and embed_document.",
            param="input_type",
        )
    return found


def say_unchosen(recipe: Recipe) -> None:
    """Once for each model: it was trained with prompts, and a call chose none."""
    # Files that sentence-transformers saves name a query's and a document's prompt even where both are empty.
    names = tuple(name for name, text in recipe.prompts.items() if text)
    if names and recipe.default_prompt_name is None:
        _warn_unchosen(recipe.name, names)


@functools.lru_cache
def _warn_unknown(name: str, input_type: str, prompts: tuple[str, ...]) -> None:
    known = ", ".join(dict.fromkeys((*prompts, *INPUT_TYPES)))
    log.warning("%s knows no input_type %r, so no prompt goes before the texts; known are %s.", name, input_type, known)


@functools.lru_cache
def _warn_unchosen(name: str, names: tuple[str, ...]) -> None:
    log.warning(
        "%s has prompts (%s) and texts came without one, which most such models answer worse. "
        "Choose one by prompt_name or input_type, or call embed_query and embed_document.",
        name,
        ", ".join(names),
    )
