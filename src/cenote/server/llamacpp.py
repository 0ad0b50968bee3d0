"""The dialect of the llama.cpp server, as far as it is about vectors, rankings and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import numpy as np
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from .. import inputs
from ..errors import BadInput
from ..tasks import embed
from ..types import FloatArray, Length, Tokens
from . import arrays, calls, replies, scoring, tei, vectors, vllm
from .dialect import Dialect, Failure
from .notes import Notes
from .route import CALL_ERRORS, LOOKUP_ERRORS, Answer, Route
from .schemas import TokenId

if TYPE_CHECKING:
    from .door import Door

_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    429: "unavailable_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
"""Status -> type of an error; other statuses below 500 are `invalid_request_error`, the rest `server_error`."""

_INT16_RANGE: Final = 32760.0
_EUCLID: Final = 2


class LlamaErrorDetail(Struct, kw_only=True):
    """What went wrong; `code` is the status."""

    code: int
    message: str
    type: str


class LlamaError(Struct, kw_only=True):
    """An error as clients of llama.cpp read it."""

    error: LlamaErrorDetail


def tell(failure: Failure) -> LlamaError:
    """The body of an error."""
    kind = _TYPES.get(failure.status, "invalid_request_error" if failure.status < 500 else "server_error")
    return LlamaError(error=LlamaErrorDetail(code=failure.status, message=failure.message, type=kind))


LLAMACPP = Dialect("llamacpp", LlamaError, tell)


class LlamaEmbeddingRequest(Struct, kw_only=True):
    """Texts or token ids to embed."""

    content: Annotated[
        str | list[str | TokenId | list[TokenId]],
        Meta(description="A text, token ids, or a list of those; ids get the special tokens that they lack."),
    ]
    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None
    embd_normalize: Annotated[
        int,
        Meta(
            ge=-1,
            le=1000,
            description="-1: as the model gives them; 0: the largest number is 32760; 1: their absolute values sum to "
            "1; 2: unit length; p: likewise by the p-norm.",
        ),
    ] = _EUCLID


class LlamaEmbedding(Struct, kw_only=True):
    """The vector of one text, as the only row of a list."""

    index: int
    embedding: list[list[float]]


class LlamaTokenizeRequest(Struct, kw_only=True):
    """A text to split."""

    content: str
    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None
    add_special: Annotated[bool, Meta(description="Add the special tokens around a text.")] = False
    parse_special: Annotated[
        bool, Meta(description="Accepted; special tokens that a text spells out are read as the tokenizer's files say.")
    ] = True
    with_pieces: Annotated[bool, Meta(description="Give how the vocabulary spells each token, too.")] = False


class LlamaPiece(Struct, kw_only=True):
    """A token, and how the vocabulary spells it."""

    id: int
    piece: str


class LlamaTokens(Struct, kw_only=True):
    """The tokens of a text."""

    tokens: list[int | LlamaPiece]


class LlamaDetokenizeRequest(Struct, kw_only=True):
    """Token ids to read."""

    tokens: list[TokenId]
    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None


class LlamaText(Struct, kw_only=True):
    """The text of token ids."""

    content: str


async def embeddings(door: Door, request: Request, body: LlamaEmbeddingRequest) -> Response:
    """Answer `POST /embedding`."""
    engine = vectors.embedder(door, body.model)
    with calls.renaming({"prompts": "content", "prompt_token_ids": "content", "input_tokens": "content"}):
        door.allow_listed(body.content, "content")
        frame = engine.tokenizer.frame
        given = inputs.parse(body.content)
        whole = [Tokens(frame.put_around(one.ids)) if isinstance(one, Tokens) else one for one in given]
        params = embed.Params(normalize=body.embd_normalize == _EUCLID)
        found = await vectors.embedded(
            door, request, engine, whole, params, Length(door.on_long or "refuse"), said=False
        )

    def written() -> Response:
        rows = _normalized(np.asarray(found.outcome.rows), body.embd_normalize)
        return replies.as_json([{"index": at, "embedding": row[None]} for at, row in enumerate(arrays.numbers(rows))])

    response = await calls.aside(found.num_bytes, written)
    replies.tell(response, found.headers(request, Notes()))
    return response


def _normalized(rows: FloatArray, order: int) -> FloatArray:
    """Rows divided as llama.cpp does by an order other than 2; a row of zeros stays so."""
    if order in (-1, _EUCLID):
        return rows
    sizes = np.abs(rows.astype(np.float64))
    largest = sizes.max(axis=1, keepdims=True)
    # Powers of shares of the largest value, since those of the values themselves may be beyond any float.
    shares = sizes / np.where(largest > 0, largest, 1)
    norms = (
        largest / _INT16_RANGE if order == 0 else largest * (shares**order).sum(axis=1, keepdims=True) ** (1 / order)
    )
    return (rows / np.where(norms > 0, norms, 1)).astype(np.float32)


async def tokenize(door: Door, request: Request, body: LlamaTokenizeRequest) -> Response:
    """Answer `POST /tokenize` of llama.cpp."""
    found = await vllm.tokens_of(door.model(body.model), body.content, body.add_special, body.with_pieces)
    pieces = found.token_strs
    tokens: list[Any] = found.tokens
    if pieces is not None:
        tokens = [LlamaPiece(id=one, piece=piece) for one, piece in zip(found.tokens, pieces, strict=True)]
    answer = await calls.aside(len(tokens) * 64, msgspec.json.encode, LlamaTokens(tokens=tokens))
    return Response(answer, media_type=replies.JSON)


async def detokenize(door: Door, request: Request, body: LlamaDetokenizeRequest) -> Response:
    """Answer `POST /detokenize` of llama.cpp."""
    text = await vllm.text_of(door.model(body.model), body.tokens)
    return Response(msgspec.json.encode(LlamaText(content=text)), media_type=replies.JSON)


async def rerank(door: Door, request: Request, body: scoring.RerankRequest) -> Response:
    """Answer `POST /rerank` of llama.cpp with documents."""
    if not isinstance(body.documents, list):
        raise BadInput("The documents are no list.", allowed="A list of texts.", param="documents")
    return await scoring.answer_rerank(door, request, body)


def _route(
    path: str, answer: Answer, summary: str, request: type[Struct], response: Any, *keys: str, **more: Any
) -> Route:
    return Route(
        "POST",
        path,
        answer,
        summary,
        LLAMACPP,
        keys=frozenset(keys),
        request=request,
        response=response,
        **{"errors": CALL_ERRORS, **more},
    )


def _ranks(path: str, *, bare: bool) -> tuple[Route, Route]:
    """A path that ranks; the answer to `texts` is that of text-embeddings-inference."""
    summary = "Documents from best to worst for a query."
    own, other = scoring.RerankRequest, scoring.RerankResponse
    return (
        _route(path, tei.answering(tei.reranked), summary, tei.TeiRerankRequest, list[tei.Rank], "texts", bare=bare),
        _route(path, rerank, summary, own, other, *(("documents",) if bare else ()), bare=bare),
    )


_SUMMARY = "Vectors of texts, each in a list of its own."
_EMBED = (embeddings, _SUMMARY, LlamaEmbeddingRequest, list[LlamaEmbedding], "content")
_TOKENIZE = (tokenize, "Token ids of a text.", LlamaTokenizeRequest, LlamaTokens, "content")
_DETOKENIZE = (detokenize, "The text of token ids.", LlamaDetokenizeRequest, LlamaText)

ROUTES = (
    _route("/embedding", *_EMBED),
    _route("/embeddings", *_EMBED),
    _route("/tokenize", *_TOKENIZE, errors=LOOKUP_ERRORS),
    _route("/detokenize", *_DETOKENIZE, bare=False, errors=LOOKUP_ERRORS),
    *_ranks("/reranking", bare=True),
    *_ranks("/v1/reranking", bare=True),
    *_ranks("/rerank", bare=False),
    *_ranks("/v1/rerank", bare=False),
)
