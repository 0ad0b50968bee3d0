"""One request and what became of it; nothing is sent a second time, and nothing is left out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec

from .dialects import Dialect
from .texts import Texts

TIMINGS: Final = {
    "total": "x-total-time",
    "queue": "x-queue-time",
    "tokenization": "x-tokenization-time",
    "inference": "x-inference-time",
}
"""What servers of this kind say of their own time, in milliseconds -> the header."""

NO_CONNECTION: Final = "no connection"
"""The kind of failure where nobody listens."""

_SAID_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. Times are of `time.perf_counter`.

    Args:
        due_s: When it was to be sent.
        sent_s: When it was, after it had a connection; where it never was, when it ended.
        ended_s: When it was answered whole, or failed.
        error: What kind of failure it ended with; "" where it was answered.
        said: What came with the failure.
        num_texts: Texts that it asked for.
        num_tokens: Tokens that the server says it read, None where it does not say.
        server_ms: Milliseconds by name, as of `TIMINGS`.
    """

    due_s: float
    sent_s: float
    ended_s: float
    error: str
    said: str
    num_texts: int
    num_tokens: int | None = None
    server_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """What is asked, and of whom.

    Args:
        url: The whole URL.
        dialect: How.
        texts: Where texts come from.
        texts_per_request: How many a request has; None leaves it to the dialect.
        fields: Further fields of each body.
        query: What texts are ranked by; None draws one for each request.
        headers: Further headers.
        timeout_s: Seconds after which a request counts as failed.
    """

    url: str
    dialect: Dialect
    texts: Texts
    texts_per_request: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    query: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0

    @property
    def num_texts(self) -> int:
        """How many texts a request has."""
        return self.dialect.usual_texts if self.texts_per_request is None else self.texts_per_request

    def body(self) -> bytes:
        """The body of the next request."""
        query = None
        if self.dialect.ranks:
            query = self.query if self.query is not None else self.texts.draw(1)[0]
        return self.dialect.body(self.fields, self.texts.draw(self.num_texts), query)


class Client:
    """Sends requests over connections that are kept; a context manager, inside an event loop.

    Args:
        asked: What is asked.
        max_connections: Most connections.
    """

    def __init__(self, asked: Asked, max_connections: int) -> None:
        self._asked = asked
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_note_sent)
        self._session = aiohttp.ClientSession(
            trace_configs=[trace],
            connector=aiohttp.TCPConnector(limit=max_connections),
            headers={"content-type": "application/json", **asked.headers},
            timeout=aiohttp.ClientTimeout(total=asked.timeout_s, sock_connect=asked.timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def send(self, due_s: float) -> Sample:
        """Send the next request now, read its answer, and tell; raises nothing of the network's."""
        body, num_texts = self._asked.body(), self._asked.num_texts
        sent: list[float] = []

        def failed(kind: str, said: str) -> Sample:
            ended_s = time.perf_counter()
            return Sample(due_s, sent[0] if sent else ended_s, ended_s, kind, shortened(said), num_texts)

        try:
            async with self._session.post(
                self._asked.url, data=body, allow_redirects=False, trace_request_ctx=sent
            ) as response:
                answer = await response.read()
        except TimeoutError:
            return failed("timeout", f"No answer within {self._asked.timeout_s:g} s.")
        except aiohttp.ClientError as error:
            kind = NO_CONNECTION if isinstance(error, aiohttp.ClientConnectorError) else "connection lost"
            return failed(kind, str(error) or repr(error))
        ended_s = time.perf_counter()
        if response.status != 200:
            return failed(f"HTTP {response.status}", answer.decode(errors="replace"))
        try:
            read = self._asked.dialect.read(answer, response.headers)
        except msgspec.MsgspecError as error:
            return failed("wrong answer", str(error))
        if read.num_results != num_texts:
            return failed("wrong answer", f"{read.num_results} results for {num_texts} texts.")
        return Sample(due_s, sent[0], ended_s, "", "", num_texts, read.num_tokens, _timings(response.headers))

    async def get(self, url: str) -> tuple[int, bytes]:
        """Status and body of another page of the same server; raises as aiohttp does."""
        async with self._session.get(url, trace_request_ctx=[]) as response:
            return response.status, await response.read()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()


async def _note_sent(
    session: aiohttp.ClientSession, context: Any, params: aiohttp.TraceRequestHeadersSentParams
) -> None:
    sent: list[float] = context.trace_request_ctx
    sent.append(time.perf_counter())


def shortened(said: str) -> str:
    """The first words of what a server said, on one line."""
    line = " ".join(said.split())
    return line if len(line) <= _SAID_CHARS else f"{line[:_SAID_CHARS]} ..."


def _timings(headers: Mapping[str, str]) -> dict[str, float]:
    found = {}
    for name, header in TIMINGS.items():
        value = headers.get(header)
        if value is not None and value.replace(".", "", 1).isdecimal():
            found[name] = float(value)
    return found
