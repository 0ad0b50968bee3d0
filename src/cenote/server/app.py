"""The ASGI application: the route table made into routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from ..config import OnLong, ServerSettings
from ..registry import Registry
from . import bodies, encodings, openapi, ops, refusals
from .asked import Asked
from .door import Door
from .front import Front, known_keys
from .refusals import Refusal
from .route import Dialects, Route, by_header, by_place, expected
from .routes import ROUTES
from .token_ids import TokenIds
from .traffic import EngineMetrics

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


class Places:
    """What answers at a method and a path: found at once where nothing in the path varies, else by Starlette.

    Starlette tries one pattern after the other; with almost ninety of them that took a fifth of a request.

    Args:
        app: Knows all places, and answers where there is none.
        endpoints: Those at paths without varying parts; none may raise.
    """

    def __init__(self, app: ASGIApp, endpoints: Mapping[tuple[str, str], Endpoint]) -> None:
        self._app, self._endpoints = app, endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        response = await endpoint(Asked(scope, receive, send))
        await response(scope, receive, send)


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
    door = Door(registry, settings, on_long, token_ids=TokenIds(settings.openai_token_ids))
    keys = known_keys(settings)
    document = openapi.document(routes, version=ops.installed_version(), keys=bool(keys), root_path=settings.root_path)
    door.openapi = document
    door.traffic.registry.register(EngineMetrics(door.engines))
    endpoints = {(method, path): _endpoint(door, rows) for (path, method), rows in by_place(routes).items()}
    table = [StarletteRoute(path, endpoint, methods=[method]) for (method, path), endpoint in endpoints.items()]
    app = Starlette(routes=table, exception_handlers={HTTPException: _unmatched})
    app.router.redirect_slashes = False
    open_places = {(row.method, path) for row in routes if row.open for path in row.paths}
    places = Places(app, {place: endpoint for place, endpoint in endpoints.items() if "{" not in place[1]})
    return _for_pages(Front(places, door, Dialects(routes), keys, open_places), settings)


def _for_pages(app: ASGIApp, settings: ServerSettings) -> ASGIApp:
    """What web pages of other origins need; questions of browsers about it need no key."""
    if not settings.allowed_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=settings.allowed_origins,
        allow_methods=settings.allowed_methods,
        allow_headers=settings.allowed_headers,
        allow_credentials=settings.allow_credentials,
        expose_headers=["*"],
    )


def _endpoint(door: Door, rows: Sequence[Route]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        request.state.path = rows[0].path
        try:
            response = await _answer(door, rows, request)
        except Exception as error:
            return refusals.answer(error, request.state.dialect, request.state.request_id)
        if encodings.is_packable(response, door.settings.gzip_min_bytes):
            await encodings.pack(request, response)
        return response

    return endpoint


async def _answer(door: Door, rows: Sequence[Route], request: Request) -> Response:
    rows = by_header(rows, request.headers)
    if rows[0].request is None:
        return await expected(rows).answer(door, request, None)
    decoded = await bodies.read(request, rows, door.settings.max_body_bytes)
    request.state.dialect = decoded.route.dialect
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
        refusal = Refusal(404, f"There is no route {request.method} {path}; /openapi.json lists all.")
    else:
        allowed = dict(error.headers or {})
        what = f"{path} does not take {request.method}; it takes {allowed.get('Allow', 'other methods')}."
        refusal = Refusal(error.status_code, what, headers=allowed)
    return refusals.answer(refusal, request.state.dialect, request.state.request_id)
