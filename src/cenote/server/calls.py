"""One call of an engine from the event loop: waits for it, and cancels it when the client goes away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import Request

from ..errors import BadInput, Cancelled, CenoteError
from ..pieces import Named
from ..started import Part, Started
from ..types import Input, Length, Outcome
from .bodies import OFF_LOOP_BYTES
from .schemas import CallFields

if TYPE_CHECKING:
    from ..call import Call
    from ..engine import Engine
    from ..scheduler import Lane
    from .door import Door

T = TypeVar("T")

TIMEOUT_HEADER = "x-request-timeout-ms"
"""Request header: milliseconds that the client will wait; later the answer is 504 and the work is dropped."""

BULK_INPUTS = 512
"""A request of so many inputs lets others go first, unless its priority is below 0."""

_UNWATCHED_S = 0.5
"""Only after so long is a client watched for going away: under load every request takes some tenths of a second, and
watching costs a task for each."""

_NO_CACHE = frozenset(("no-cache", "no-store"))
"""Values of the request header `Cache-Control` that keep a request out of the cache of rows."""

_MEDIA_FIELDS = ("mm_processor_kwargs", "media_io_kwargs", "prompt_embeds")


def begin(door: Door, request: Request, body: CallFields) -> Engine:
    """The model that a body is for, once nothing in it must be refused; the body's own id becomes the request's.

    Raises:
        BadInput: A field would change the result and is not served.
        ModelNotFound: There is no such model.
    """
    given = [
        name
        for name in _MEDIA_FIELDS
        if (value := getattr(body, name, msgspec.UNSET)) is not msgspec.UNSET and says_something(value)
    ]
    if given:
        raise BadInput(
            f"The request has {', '.join(given)}, which would change the result and is not served.",
            allowed="Inputs are texts and token ids.",
            param=given[0],
        )
    if body.request_id:
        request.state.request_id = body.request_id
    return door.model(body.model)


async def run(
    request: Request,
    engine: Engine,
    task: str,
    inputs: Sequence[Input],
    params: Any,
    *,
    length: Length,
    priority: int = 0,
    where: Sequence[int] | None = None,
    named: Named | None = None,
) -> Outcome:
    """Run `inputs` through `engine` as one call; a `priority` above 0 lets others go first.

    Args:
        where: What position errors name for each of them; None for its own.
        named: What errors say of each, where that is more than its position.

    Raises:
        CenoteError: Whatever the call ended with; `Cancelled` when the client closed its connection.
    """
    submit = submits(request, engine, length, priority)
    positions = range(len(inputs)) if where is None else where
    called = "input" if named is None else "pair"
    return await finish(request, Started([Part(positions, submit(task, inputs, params), called, named)]))


def submits(
    request: Request, engine: Engine, length: Length, priority: int
) -> Callable[[str, Sequence[Input], Any], Call]:
    """What hands `task, inputs, params` in for a request."""
    control = request.headers.get("cache-control")
    options: dict[str, Any] = {
        "length": length,
        "deadline_s": _deadline_s(request),
        "request_id": request.state.request_id,
        "use_cache": control is None or _NO_CACHE.isdisjoint(control.replace(" ", "").split(",")),
    }

    def submit(task: str, inputs: Sequence[Input], params: Any) -> Call:
        return engine.submit(task, inputs, params, lane=lane_of(priority, len(inputs)), **options)

    return submit


def lane_of(priority: int, num_inputs: int) -> Lane:
    """`bulk` above priority 0, and at 0 where a request is so large that others would wait for batches of it."""
    return "bulk" if priority > 0 or (priority == 0 and num_inputs >= BULK_INPUTS) else "interactive"


async def finish(request: Request, started: Started) -> Outcome:
    """Wait for what was handed in.

    Raises:
        CenoteError: Whatever a call ended with; `Cancelled` when the client closed its connection.
    """
    client = _Client(request, started)
    timer = asyncio.get_running_loop().call_later(_UNWATCHED_S, client.watch)
    try:
        return await started.outcome()
    except Cancelled:
        if client.is_gone:
            raise Cancelled("The client closed the connection before the answer was ready.") from None
        raise
    finally:
        timer.cancel()
        client.unwatch()


class _Client:
    """Who waits for an answer; when it closes its connection, its calls are cancelled.

    Attributes:
        is_gone: Whether that happened.
    """

    def __init__(self, request: Request, started: Started) -> None:
        self.is_gone = False
        self._request, self._started = request, started
        self._watching: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Look out for the end of the connection."""
        self._watching = asyncio.create_task(self._watch())

    def unwatch(self) -> None:
        """Look no more."""
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        self._started.cancel()


async def aside(size: int, work: Callable[..., T], *args: Any) -> T:
    """Do `work` here if it is small, `size` being about how many bytes it goes through, else in a thread."""
    if size < OFF_LOOP_BYTES:
        return work(*args)
    return await asyncio.to_thread(work, *args)


def says_something(value: msgspec.Raw | msgspec.UnsetType) -> bool:
    """Whether a field that is not served is there and neither null nor empty."""
    return value is not msgspec.UNSET and bytes(value) not in (b"null", b"{}", b"[]", b'""')


class renaming:  # noqa: N801  # stands behind `with`, where a generator takes five times as long
    """Call the field at fault of an error by the name that the request has for it.

    Args:
        names: Name further in -> name in the request.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Rename; the error goes on."""
        if isinstance(error, CenoteError):
            error.param = self._names.get(error.param or "", error.param)


def timing_headers(request: Request, outcome: Outcome) -> dict[str, str]:
    """Where the time went, in milliseconds, how many inputs were cut, and how many tokens a cache answered."""
    headers = {
        "x-total-time": f"{(time.perf_counter() - request.state.arrived) * 1e3:.3f}",
        "x-tokenization-time": f"{outcome.tokenize_s * 1e3:.3f}",
        "x-queue-time": f"{outcome.queue_s * 1e3:.3f}",
        "x-inference-time": f"{outcome.inference_s * 1e3:.3f}",
        "x-truncated": str(outcome.num_truncated),
    }
    if outcome.num_pieces > len(outcome.encoded):
        headers["x-pieces"] = str(outcome.num_pieces)
    if outcome.cached:
        headers["x-cached-tokens"] = str(sum(map(outcome.num_cached_tokens, outcome.cached)))
    return headers


def model_headers(engine: Engine) -> dict[str, str]:
    """Which model made the vectors: its fingerprint, from when it is known on, soon after the start."""
    known = engine.fingerprint.known() if engine.fingerprint is not None else None
    return {} if known is None else {"x-model-fingerprint": known}


async def fingerprint(engine: Engine) -> str | None:
    """The fingerprint of a model, waited for; None where it has none, as the log says."""
    if engine.fingerprint is None:
        return None
    try:
        return await asyncio.to_thread(engine.fingerprint.value)
    except OSError:  # logged where it happened; the list of models does without
        return None


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
