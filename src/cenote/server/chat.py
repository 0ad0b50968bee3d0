"""Conversations of a request, and the text that a template makes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .. import templates
from ..errors import BadInput

if TYPE_CHECKING:
    from ..engine import Engine
    from .door import Door

Conversation: TypeAlias = Sequence[Mapping[str, Any]]

_TEXT_PARTS: Final = (None, "text", "input_text")


@dataclass(frozen=True, slots=True)
class Style:
    """How conversations become texts.

    Args:
        add_generation_prompt: End with the start of an answer.
        continue_final_message: Leave the last message open.
        template: The request's own template.
        variables: Variables of the template.
        tools: What the template is told about tools.
    """

    add_generation_prompt: bool = False
    continue_final_message: bool = False
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] | None = None


_PLAIN: Final = Style()


def style(
    door: Door,
    *,
    template: str | None,
    variables: Mapping[str, Any] | None,
    add_generation_prompt: bool,
    continue_final_message: bool,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> Style:
    """The fields of a request as a `Style`.

    Raises:
        BadInput: The request brings a template that is not trusted, or asks for two ends at once.
    """
    if template is None and not (variables or add_generation_prompt or continue_final_message or tools):
        return _PLAIN
    left = dict(variables or {})
    own = left.pop("chat_template", None) if template is None else template
    if own is not None:
        refuse_untrusted(door, own)
    if add_generation_prompt and continue_final_message:
        raise BadInput(
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
            fix="A conversation ends either with its last message open, or with the start of an answer.",
            param="continue_final_message",
        )
    return Style(add_generation_prompt, continue_final_message, own, left, tools)


def refuse_untrusted(door: Door, template: Any) -> None:
    """Raise `BadInput` where a request may not bring `template`."""
    if not isinstance(template, str):
        raise BadInput(f"chat_template is of type {type(template).__name__}.", allowed="A text.", param="chat_template")
    if not door.settings.trust_request_chat_template:
        raise BadInput(
            "The request brings its own chat template, which is not trusted.",
            allowed="Templates come from the model, or from the server's --chat-template.",
            fix="Start the server with --trust-request-chat-template if all who can reach it are trusted.",
            param="chat_template",
        )


def conversations(messages: Sequence[Any], field_name: str) -> list[Conversation]:
    """One conversation or several, told apart by the first element and checked.

    Args:
        messages: Messages, or lists of messages.
        field_name: What the request calls them.

    Raises:
        BadInput: There is none, they are mixed, or a message is none.
    """
    if len(messages) == 0:
        raise BadInput(f"`{field_name}` is empty.", allowed="It takes one or more messages.", param=field_name)
    several = isinstance(messages[0], list)
    if any(isinstance(one, list) != several for one in messages):
        raise BadInput(
            f"`{field_name}` mixes messages and lists of messages.",
            allowed="It is one conversation, or a list of conversations.",
            param=field_name,
        )
    listed = messages if several else [messages]
    for index, conversation in enumerate(listed):
        _check(conversation, f"{field_name}[{index}]" if several else field_name, index)
    return list(listed)


async def render(engine: Engine, listed: Sequence[Conversation], how: Style) -> list[str]:
    """The text of each conversation.

    Raises:
        BadInput: The model has no template, or it fails on a conversation.
    """
    # A template may take its time, and it is never ours.
    return await asyncio.to_thread(_render, engine, listed, how)


def _render(engine: Engine, listed: Sequence[Conversation], how: Style) -> list[str]:
    source = how.template or engine.recipe.chat_template or engine.tokenizer.chat_template
    if source is None:
        raise BadInput(
            f"{engine.name} has no chat template, so it takes no conversations.",
            allowed="It takes texts and token ids as `input`.",
            fix="Write the conversation as one text, or start the server with --chat-template.",
            param="messages",
        )
    template = templates.compiled(source)
    return [_one(template, conversation, engine.tokenizer.special_tokens, how) for conversation in listed]


def _one(template: templates.Template, conversation: Conversation, known: Mapping[str, str], how: Style) -> str:
    contents = [_content(message.get("content"), template.reads_parts) for message in conversation]
    messages = [{**message, "content": content} for message, content in zip(conversation, contents, strict=True)]
    rendered = template.render(
        messages, how.variables, **known, tools=how.tools, add_generation_prompt=how.add_generation_prompt
    )
    if how.continue_final_message:
        return templates.continued(rendered, _joined(conversation[-1].get("content")))
    return rendered


def _content(content: Any, as_parts: bool) -> Any:
    """A content in the form that the template reads: a text, or parts."""
    if content is None or not as_parts:
        return content if content is None else _joined(content)
    parts = [content] if isinstance(content, str) else content
    return [{"type": "text", "text": part} if isinstance(part, str) else {**part, "type": "text"} for part in parts]


def _joined(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part if isinstance(part, str) else part["text"] for part in content)


def _check(conversation: Any, where: str, index: int) -> None:
    if not conversation:
        raise BadInput(f"`{where}` is empty.", allowed="It takes one or more messages.", param=where, index=index)
    for number, message in enumerate(conversation):
        path = f"{where}[{number}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadInput(
                f"`{path}` is no message.", allowed="A message has a `role`, a text.", param=path, index=index
            )
        content = message.get("content")
        if isinstance(content, list):
            for part in content:
                _check_part(part, f"{path}.content", index)
        elif content is not None and not isinstance(content, str):
            allowed = "It is a text, or a list of parts."
            raise BadInput(f"`{path}.content` cannot be read.", allowed=allowed, param=f"{path}.content", index=index)


def _check_part(part: Any, path: str, index: int) -> None:
    if isinstance(part, str):
        return
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    if kind not in _TEXT_PARTS or not isinstance(part.get("text"), str):
        raise BadInput(
            f"`{path}` has a part of the type {str(kind)[:40]!r}.",
            allowed='This model reads text: {"type": "text", "text": "..."}.',
            param=path,
            index=index,
        )
