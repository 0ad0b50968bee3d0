"""The inputs of a request: texts, pairs, token ids, or conversations made to texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from .. import inputs, prompting, routes
from ..errors import BadInput
from ..types import Input
from . import chat
from .notes import Notes
from .schemas import PromptFields

if TYPE_CHECKING:
    from ..engine import Engine
    from ..recipe import Recipe
    from .door import Door

INNER_NAMES = {"prompts": "input", "prompt_token_ids": "input"}
"""What the field `input` is called further in."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """What a request asks about.

    Args:
        inputs: Parsed inputs.
        add_special_tokens: Whether the tokenizer adds its special tokens.
        prompt_name: Name of the checkpoint's prompt that goes before each, None for its default one.
        prompt: A text that goes before each, if there is one; wins over `prompt_name`.
        input_type: What they are, for models that do not read all inputs alike.
    """

    inputs: Sequence[Input]
    add_special_tokens: bool
    prompt_name: str | None = None
    prompt: str | None = None
    input_type: str | None = None


async def read(door: Door, engine: Engine, body: PromptFields, notes: Notes) -> Prompts:
    """The inputs of `body`; what has no effect goes into `notes`.

    Raises:
        BadInput: There are none, there are two kinds, or one is not allowed.
    """
    how = chat.style(
        door,
        template=body.chat_template,
        variables=body.chat_template_kwargs,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
    )
    listed = _conversations(body)
    door.allow_listed(body.input if listed is None else listed, "prompts")
    if listed is None:
        given, key = routes.keyed(body.input, engine.recipe)
        if key is not None:
            said = {"input_type": body.input_type, "prompt_name": body.prompt_name, "prompt": body.prompt}
            chosen = routes.of_kind(key, engine.recipe, said)
            return Prompts(inputs.parse(given), body.add_special_tokens is not False, **chosen)
        add = True if body.add_special_tokens is None else body.add_special_tokens
        return Prompts(inputs.parse(body.input), add, *_prompt(engine, body, notes), body.input_type)
    if body.prompt is not None or body.prompt_name is not None:
        raise BadInput(
            "The request has a conversation and a prompt.",
            fix="Put the prompt into the first message.",
            param="prompt_name" if body.prompt is None else "prompt",
        )
    if body.input_type is not None and not prompting.chooses_reading(engine.recipe, body.input_type):
        notes.ignored.append("input_type")
    texts: list[Input] = [*await chat.render(engine, listed, how)]
    # A conversation says how it starts, so not even the checkpoint's default prompt goes before it.
    return Prompts(texts, bool(body.add_special_tokens), prompt="", input_type=body.input_type)


def by_type(recipe: Recipe, input_type: str | None, notes: Notes, field: str) -> prompting.Chosen:
    """The prompt that a type of input chooses; where it chooses none, `notes` says so.

    Args:
        field: What the request calls the type.
    """
    if input_type is None:
        return prompting.Chosen()
    chosen = prompting.by_input_type(recipe, input_type)
    if chosen.prompt_name is None and not prompting.chooses_reading(recipe, input_type):
        notes.ignored.append(field)
    if chosen.prompt is not None:
        notes.warnings.append(f"{field} is not one that is known, so no prompt was put before the inputs")
    return chosen


def _prompt(engine: Engine, body: PromptFields, notes: Notes) -> tuple[str | None, str | None]:
    """Name and text of the prompt that `body` chooses."""
    if body.input_type is None:
        return body.prompt_name, body.prompt
    chooses_reading = prompting.chooses_reading(engine.recipe, body.input_type)
    if body.prompt is not None or body.prompt_name is not None:
        if not chooses_reading:
            notes.ignored.append("input_type")
        return body.prompt_name, body.prompt
    chosen = by_type(engine.recipe, body.input_type, notes, "input_type")
    return chosen.prompt_name, chosen.prompt


def _conversations(body: PromptFields) -> list[chat.Conversation] | None:
    if body.messages is not None:
        if body.input is not msgspec.UNSET:
            raise BadInput("The request has both `input` and `messages`.", fix="Send one of them.", param="messages")
        return chat.conversations(body.messages, "messages")
    if body.input is msgspec.UNSET:
        raise BadInput("The field `input` is missing.", fix="Send a text or a list of texts as `input`.", param="input")
    given: Any = body.input
    return chat.conversations(given, "input") if _has_messages(given) else None


def _has_messages(given: Any) -> bool:
    """Whether an `input` is made of messages: its first element, or the first of that, has a role."""
    first = given
    for _ in range(2):
        first = first[0] if isinstance(first, list) and first else None
        if isinstance(first, dict):
            return "role" in first
    return False
