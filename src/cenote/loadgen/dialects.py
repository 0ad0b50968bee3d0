"""The ways to ask: which path, which body, and how an answer is read without building its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import orjson
from msgspec import Raw, Struct


class Usage(Struct):
    """Tokens that a server says it read."""

    prompt_tokens: int | None = None
    total_tokens: int | None = None


class Vectors(Struct):
    """The answer of OpenAI's embeddings; the vectors stay as they came."""

    data: list[Raw]
    usage: Usage | None = None


class _Tokens(Struct):
    input_tokens: int | None = None


class _Meta(Struct):
    tokens: _Tokens | None = None


class Ranking(Struct):
    """The answer of Cohere's rerank and of what is made like it."""

    results: list[Raw]
    usage: Usage | None = None
    meta: _Meta | None = None


class Read(NamedTuple):
    """What an answer holds: results, and tokens where the server says how many it read."""

    num_results: int
    num_tokens: int | None


_COUNTED: Final = "x-compute-tokens"  # where text-embeddings-inference counts tokens


@dataclass(frozen=True)
class Dialect:
    """One way to ask for many texts at once.

    Args:
        name: Its name on the command line.
        paths: Where it is asked; the first one unless a URL names another.
        texts_field: The field that takes the texts.
        answer: The type of its answer: a record, or a list of results.
        ranks: Whether the texts are ranked by a query.
    """

    name: str
    paths: tuple[str, ...]
    texts_field: str
    answer: Any
    ranks: bool = False

    @property
    def usual_texts(self) -> int:
        """How many texts a request has where nobody says."""
        return 16 if self.ranks else 1

    def body(self, fields: Mapping[str, Any], texts: Sequence[bytes], query: bytes | None) -> bytes:
        """The bytes of a request.

        Args:
            fields: What stands in it beside the texts.
            texts, query: Strings of JSON.
        """
        head = orjson.dumps(dict(fields))[:-1] + (b"," if fields else b"")
        asked = b'"query":%b,' % query if query is not None else b""
        return b'%b%b"%b":[%b]}' % (head, asked, self.texts_field.encode(), b",".join(texts))

    def read(self, body: bytes, headers: Mapping[str, str]) -> Read:
        """What an answer holds.

        Raises:
            msgspec.MsgspecError: It is not of this dialect.
        """
        answer = msgspec.json.decode(body, type=self.answer)
        if isinstance(answer, list):
            counted = headers.get(_COUNTED, "")
            return Read(len(answer), int(counted) if counted.isdecimal() else None)
        results = answer.data if isinstance(answer, Vectors) else answer.results
        return Read(len(results), _num_tokens(answer))


def _num_tokens(answer: Vectors | Ranking) -> int | None:
    if answer.usage is not None:
        counted = answer.usage.prompt_tokens
        return answer.usage.total_tokens if counted is None else counted
    if isinstance(answer, Ranking) and answer.meta is not None and answer.meta.tokens is not None:
        return answer.meta.tokens.input_tokens
    return None


DIALECTS: Final = {
    dialect.name: dialect
    for dialect in (
        Dialect("openai", ("/v1/embeddings", "/embeddings"), "input", Vectors),
        Dialect("tei", ("/embed",), "inputs", list[Raw]),
        Dialect("rerank", ("/v1/rerank", "/v2/rerank", "/rerank"), "documents", Ranking, ranks=True),
        Dialect("tei-rerank", ("/rerank",), "texts", list[Raw], ranks=True),
    )
}
"""By name, in the order in which an unknown server is asked."""
