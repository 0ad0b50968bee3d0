"""Routes of the reference that OpenAI does not have: `/tokenize` and `/detokenize`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from ..errors import BadInput
from .bodies import OFF_LOOP_BYTES
from .schemas import NotServed, TokenId

if TYPE_CHECKING:
    from ..engine import Engine
    from .door import Door

_NO_LIMIT = 2**31 - 1


class TokenizeRequest(Struct, kw_only=True):
    """A text to tokenise."""

    prompt: str | msgspec.UnsetType = msgspec.UNSET
    model: str | None = None
    add_special_tokens: bool = True
    return_token_strs: Annotated[bool, Meta(description="Also give the vocabulary's spelling of each id.")] | None = (
        False
    )
    messages: NotServed | msgspec.UnsetType = msgspec.UNSET


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
    if isinstance(body.prompt, msgspec.UnsetType):
        given = "chat input is not served" if body.messages is not msgspec.UNSET else "the field `prompt` is missing"
        raise BadInput(f"Nothing to tokenise: {given}.", fix="Send the text as `prompt`.", param="prompt")
    engine = door.registry.get(body.model)
    answer = await _aside(len(body.prompt), _tokenize, engine, body.prompt, body)
    return Response(msgspec.json.encode(answer), media_type="application/json")


async def detokenize(door: Door, request: Request, body: DetokenizeRequest) -> Response:
    """Answer `POST /detokenize`."""
    engine = door.registry.get(body.model)
    outside = next((one for one in body.tokens if one >= engine.tokenizer.vocab_size), None)
    if outside is not None:
        raise BadInput(
            f"Token id {outside} is out of vocabulary.",
            allowed=f"Token ids of {engine.name} go from 0 to {engine.tokenizer.vocab_size - 1}.",
            param="tokens",
        )
    text = await _aside(len(body.tokens) * 4, engine.tokenizer.decode, body.tokens)
    return Response(msgspec.json.encode(DetokenizeResponse(prompt=text)), media_type="application/json")


def _tokenize(engine: Engine, text: str, body: TokenizeRequest) -> TokenizeResponse:
    (encoded,) = engine.tokenizer.encode(
        [text], limit=_NO_LIMIT, add_special_tokens=body.add_special_tokens, model_name=engine.name
    )
    ids = encoded.ids.tolist()
    strings = engine.tokenizer.token_strings(ids) if body.return_token_strs else None
    return TokenizeResponse(count=len(ids), max_model_len=engine.recipe.max_len, tokens=ids, token_strs=strings)


async def _aside(size: int, work: Any, *args: Any) -> Any:
    """Run `work` here if its input is small, else in a thread."""
    if size < OFF_LOOP_BYTES // 16:
        return work(*args)
    return await asyncio.to_thread(work, *args)
