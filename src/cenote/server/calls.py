"""One call of an engine from the event loop: waits for it, and cancels it when the client goes away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import Request

from ..errors import BadInput, Cancelled
from ..types import Input, Length, Outcome

if TYPE_CHECKING:
    from ..engine import Engine

TIMEOUT_HEADER = "x-request-timeout-ms"
"""Request header: milliseconds that the client will wait; later the answer is 504 and the work is dropped."""


async def run(
    request: Request,
    engine: Engine,
    task: str,
    inputs: Sequence[Input],
    params: Any,
    *,
    length: Length,
    lane: Literal["interactive", "bulk"] = "interactive",
) -> Outcome:
    """Run `inputs` through `engine` as one call.

    Raises:
        CenoteError: Whatever the call ended with; `Cancelled` when the client closed its connection.
    """
    call = engine.submit(
        task,
        inputs,
        params,
        length=length,
        lane=lane,
        deadline_s=_deadline_s(request),
        request_id=request.state.request_id,
    )
    work = asyncio.ensure_future(call.outcome())
    gone = asyncio.ensure_future(_closed(request))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Cancelled("The client closed the connection before the answer was ready.")
        return work.result()
    finally:
        gone.cancel()
        work.cancel()


def timing_headers(request: Request, outcome: Outcome) -> dict[str, str]:
    """Where the time went, in milliseconds, and how many inputs were cut."""
    seconds = {
        "x-total-time": time.perf_counter() - request.state.arrived,
        "x-tokenization-time": outcome.tokenize_s,
        "x-queue-time": outcome.queue_s,
        "x-inference-time": outcome.inference_s,
    }
    headers = {name: f"{value * 1e3:.3f}" for name, value in seconds.items()}
    headers["x-truncated"] = str(outcome.num_truncated)
    return headers


def _deadline_s(request: Request) -> float | None:
    given = request.headers.get(TIMEOUT_HEADER)
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 9 or int(given) == 0:
        raise BadInput(
            f"The header {TIMEOUT_HEADER} is {given[:40]!r}.",
            allowed="It takes whole milliseconds, at least 1.",
            param=TIMEOUT_HEADER,
        )
    return int(given) / 1e3


async def _closed(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
