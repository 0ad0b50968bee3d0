"""Tokens of the reference: `/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from ..errors import BadInput
from . import calls, chat
from .dialect import VLLM
from .route import LOOKUP_ERRORS, Route
from .schemas import Message, TokenId

if TYPE_CHECKING:
    from ..engine import Engine
    from .door import Door

# Of work, so to speak: tokenising costs more per byte than encoding an answer.
_BYTES_PER_CHAR = 16
_BYTES_PER_ID = 64


class TokenizeRequest(Struct, kw_only=True):
    """A text or a conversation to tokenise."""

    prompt: str | msgspec.UnsetType = msgspec.UNSET
    messages: list[Message] | None = None
    model: str | None = None
    add_special_tokens: Annotated[bool, Meta(description="Unset, yes for a text and no for a conversation.")] | None = (
        None
    )
    add_generation_prompt: (
        Annotated[bool, Meta(description="Unset, yes unless the last message is continued.")] | None
    ) = None
    continue_final_message: bool = False
    chat_template: (
        Annotated[str, Meta(description="Refused, unless the server trusts requests with templates.")] | None
    ) = None
    chat_template_kwargs: Annotated[dict[str, Any], Meta(description="Variables of the template.")] | None = None
    tools: Annotated[list[dict[str, Any]], Meta(description="What the template is told about tools.")] | None = None
    return_token_strs: Annotated[bool, Meta(description="Also give the vocabulary's spelling of each id.")] | None = (
        False
    )


class TokenizeResponse(Struct, kw_only=True):
    """Token ids of a text, however long it is."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeRequest(Struct, kw_only=True):
    """Token ids to read."""

    tokens: list[TokenId]
    model: str | None = None


class DetokenizeResponse(Struct, kw_only=True):
    """The text of token ids."""

    prompt: str


async def tokenize(door: Door, request: Request, body: TokenizeRequest) -> Response:
    """Answer `POST /tokenize`."""
    engine = door.model(body.model)
    text = await _text(door, engine, body)
    add = body.messages is None if body.add_special_tokens is None else body.add_special_tokens
    answer = await tokens_of(engine, text, add, bool(body.return_token_strs))
    return Response(msgspec.json.encode(answer), media_type="application/json")


async def detokenize(door: Door, request: Request, body: DetokenizeRequest) -> Response:
    """Answer `POST /detokenize`."""
    engine = door.model(body.model)
    text = await text_of(engine, body.tokens)
    return Response(msgspec.json.encode(DetokenizeResponse(prompt=text)), media_type="application/json")


async def tokens_of(engine: Engine, text: str, add_special_tokens: bool, with_strings: bool) -> TokenizeResponse:
    """The tokens of a text, however long it is."""
    return await calls.aside(len(text) * _BYTES_PER_CHAR, _tokenize, engine, text, add_special_tokens, with_strings)


async def text_of(engine: Engine, tokens: list[int]) -> str:
    """The text of token ids.

    Raises:
        BadInput: One is not in the vocabulary.
    """
    outside = next((one for one in tokens if one >= engine.tokenizer.vocab_size), None)
    if outside is not None:
        raise BadInput(
            f"Token id {outside} is out of vocabulary.",
            allowed=f"Token ids of {engine.name} go from 0 to {engine.tokenizer.vocab_size - 1}.",
            param="tokens",
        )
    return await calls.aside(len(tokens) * _BYTES_PER_ID, engine.tokenizer.decode, tokens)


async def _text(door: Door, engine: Engine, body: TokenizeRequest) -> str:
    open_end = body.continue_final_message
    how = chat.style(
        door,
        template=body.chat_template,
        variables=body.chat_template_kwargs,
        add_generation_prompt=not open_end if body.add_generation_prompt is None else body.add_generation_prompt,
        continue_final_message=open_end,
        tools=body.tools,
    )
    if body.messages is not None and body.prompt is msgspec.UNSET:
        (rendered,) = await chat.render(engine, chat.conversations(body.messages, "messages"), how)
        return rendered
    if isinstance(body.prompt, msgspec.UnsetType) or body.messages is not None:
        given = "the field `prompt` is missing" if body.messages is None else "there are `prompt` and `messages`"
        raise BadInput(
            f"What to tokenise is not clear: {given}.",
            fix="Send a text as `prompt`, or a conversation as `messages`.",
            param="prompt",
        )
    return body.prompt


def _tokenize(engine: Engine, text: str, add_special_tokens: bool, with_strings: bool) -> TokenizeResponse:
    ids = engine.tokenizer.ids_of(text, add_special_tokens)
    strings = engine.tokenizer.token_strings(ids) if with_strings else None
    return TokenizeResponse(count=len(ids), max_model_len=engine.recipe.max_len, tokens=ids, token_strs=strings)


ROUTES = (
    Route(
        "POST",
        "/tokenize",
        tokenize,
        "Token ids of a text or a conversation.",
        VLLM,
        request=TokenizeRequest,
        response=TokenizeResponse,
        errors=LOOKUP_ERRORS,
    ),
    Route(
        "POST",
        "/detokenize",
        detokenize,
        "The text of token ids.",
        VLLM,
        request=DetokenizeRequest,
        response=DetokenizeResponse,
        errors=LOOKUP_ERRORS,
    ),
)
