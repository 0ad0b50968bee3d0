"""The ASGI application: the route table made into routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp

from ..config import OnLong, ServerSettings
from ..registry import Registry
from . import bodies, openapi, ops, refusals
from .door import Door
from .front import Front
from .refusals import Refusal
from .routes import ROUTES, Route
from .traffic import EngineMetrics


def build(
    registry: Registry,
    settings: ServerSettings,
    *,
    on_long: OnLong | None = None,
    routes: Sequence[Route] = ROUTES,
) -> ASGIApp:
    """An ASGI application that answers `routes` from the models of `registry`.

    The registry stays the caller's: to close, and to drain before that.

    Args:
        registry: Its models are open.
        settings: Keys and limits; host and port are not looked at.
        on_long: What happens to long inputs where a request does not say; None leaves it to each dialect.
        routes: The route table.
    """
    door = Door(registry, settings, on_long)
    door.openapi = openapi.document(routes, version=ops.installed_version(), keys=bool(settings.api_key))
    door.traffic.registry.register(EngineMetrics(door.engines))
    by_path = sorted(
        ((path, row) for row in routes for path in row.paths),
        key=lambda pair: (pair[0].count("{"), pair[0], pair[1].method),
    )
    table = [
        StarletteRoute(path, _endpoint(door, [row for _, row in group]), methods=[method])
        for (path, method), group in groupby(by_path, key=lambda pair: (pair[0], pair[1].method))
    ]
    app = Starlette(routes=table, exception_handlers={HTTPException: _unmatched})
    app.router.redirect_slashes = False
    return Front(app, door, {path for row in routes if row.open for path in row.paths})


def _endpoint(door: Door, rows: Sequence[Route]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        request.state.path = rows[0].path
        try:
            return await _answer(door, rows, request)
        except Exception as error:
            return refusals.answer(error, request.state.request_id)

    return endpoint


async def _answer(door: Door, rows: Sequence[Route], request: Request) -> Response:
    if rows[0].request is None:
        return await rows[0].answer(door, request, None)
    decoded = await bodies.read(request, rows, door.settings.max_body_bytes)
    response = await decoded.route.answer(door, request, decoded.body)
    if decoded.ignored:
        known = response.headers.get("x-ignored-fields")
        unknown = bodies.named(decoded.ignored)
        response.headers["x-ignored-fields"] = f"{known}, {unknown}" if known else unknown
    return response


async def _unmatched(request: Request, error: Exception) -> Response:
    """A path or a method that no row has."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code == 404:
        return refusals.answer(Refusal(404, f"There is no route {request.method} {path}; /openapi.json lists all."))
    allowed = dict(error.headers or {})
    return refusals.answer(
        Refusal(
            error.status_code,
            f"{path} does not take {request.method}; it takes {allowed.get('Allow', 'other methods')}.",
            headers=allowed,
        )
    )
