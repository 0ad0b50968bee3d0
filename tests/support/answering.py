"""A second server, none of ours: it speaks the shapes, keeps count, and fails and waits where it is told to."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self

import orjson
import uvicorn

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Plan = Callable[[int], "tuple[int, float, int]"]
"""Number of a request, from 0 -> status of its answer (0 hangs up), seconds that it takes, how many results lack."""


class Answering:
    """Answers on a free port while a `with` lasts.

    Args:
        plan: What becomes of each request; by default all are answered at once.
        routes: What is answered, by path: of `openai`, `tei`, `rerank`.

    Attributes:
        url: Where.
        statuses: How many requests had which plan's status.
        bodies, headers: Of all requests, as they came.
    """

    def __init__(self, plan: Plan | None = None, routes: Mapping[str, str] | None = None) -> None:
        self._plan = plan or (lambda number: (200, 0.0, 0))
        self._routes = routes or {"/v1/embeddings": "openai", "/embed": "tei", "/rerank": "rerank"}
        self.statuses: Counter[int] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[bytes, bytes]] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(self._app, interface="asgi3", lifespan="off", log_level="critical", access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})

    async def _app(self, scope: Any, receive: Receive, send: Send) -> None:
        parts = []
        more = True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        kind = self._routes.get(scope["path"])
        if kind is None:
            await _reply(send, 404, b"not here", ())
            return
        body = orjson.loads(b"".join(parts))
        status, seconds, num_lacking = self._plan(len(self.bodies))
        self.bodies.append(body)
        self.headers.append(dict(scope["headers"]))
        self.statuses[status] += 1
        await asyncio.sleep(seconds)
        if status == 0:
            # A length that is never reached: uvicorn closes the connection.
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9999")]})
            return
        answer, headers = _answer(kind, body, num_lacking)
        await _reply(send, status, orjson.dumps(answer if status == 200 else {"error": "told to"}), headers)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()


def _answer(kind: str, body: Mapping[str, Any], num_lacking: int) -> tuple[Any, tuple[tuple[bytes, bytes], ...]]:
    field = {"openai": "input", "tei": "inputs", "rerank": "documents"}[kind]
    texts = body[field]
    results = range(len(texts) - num_lacking)
    num_words = sum(len(text.split()) for text in texts)
    if kind == "openai":
        data = [{"object": "embedding", "index": at, "embedding": [0.25, -1.5]} for at in results]
        return {"data": data, "usage": {"prompt_tokens": num_words, "total_tokens": num_words}}, ()
    if kind == "rerank":
        return {"results": [{"index": at, "relevance_score": 0.5} for at in results]}, ()
    timing = ((b"x-compute-tokens", str(num_words).encode()), (b"x-queue-time", b"3"), (b"x-inference-time", b"7.5"))
    return [[0.25, -1.5] for _ in results], timing


async def _reply(send: Send, status: int, body: bytes, headers: Any) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})
