"""What operators ask: health, version, load, metrics, and what was decided about a model."""

from __future__ import annotations

import asyncio
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from .. import device, profiles
from .dialect import OPS
from .refusals import Refusal
from .route import Answer, Route

if TYPE_CHECKING:
    from .door import Door


class Version(Struct, kw_only=True):
    """The installed version."""

    version: str


class Load(Struct, kw_only=True):
    """How busy the server is."""

    server_load: int


class Decided(Struct, kw_only=True):
    """One value and where it comes from."""

    value: Any
    source: str


class ModelInfo(Struct, kw_only=True):
    """What was decided about one model."""

    name: str
    aliases: list[str]
    tasks: list[str]
    fingerprint: str | None
    kernels: Decided
    recipe: dict[str, Decided]
    machine: dict[str, Decided]


class Info(Struct, kw_only=True):
    """What this server runs."""

    version: str
    state: str
    models: list[ModelInfo]


async def ready(door: Door, request: Request, body: None) -> Response:
    """Answer `/health`, `/health/ready` and `/ping`: an empty 200 while new requests are taken."""
    return Response(status_code=200 if door.registry.state == "ready" else 503)


async def live(door: Door, request: Request, body: None) -> Response:
    """Answer `/health/live`: 503 once only a restart can help."""
    return Response(status_code=503 if door.registry.state == "dead" else 200)


async def version(door: Door, request: Request, body: None) -> Response:
    """Answer `/version`."""
    return _json(Version(version=installed_version()))


async def load(door: Door, request: Request, body: None) -> Response:
    """Answer `/load`; the question itself does not count."""
    return _json(Load(server_load=door.traffic.in_flight - 1))


def info_of(door: Door) -> Info:
    """What was decided about each model, and why; fingerprints as soon as they are known."""
    machine = door.registry.machine
    models = [
        ModelInfo(
            name=engine.name,
            aliases=list(engine.aliases),
            tasks=list(engine.recipe.tasks),
            fingerprint=engine.fingerprint.known() if engine.fingerprint else None,
            kernels=_kernels(
                device.plan(
                    machine,
                    engine.recipe.dtype,
                    engine.recipe.stored_dtype,
                    native=engine.recipe.model_impl == "cenote",
                )
            ),
            recipe={
                name: Decided(value=value, source=source) for name, (value, source) in engine.recipe.decided().items()
            },
            machine={
                name: Decided(value=value, source=source)
                for name, (value, source) in profiles.decided(engine.machine, engine.runner).items()
            },
        )
        for engine in door.engines()
    ]
    return Info(version=installed_version(), state=door.registry.state, models=models)


def _kernels(plan: device.Plan) -> Decided:
    return Decided(value=plan.kernels or "none", source=plan.reasons["kernels"])


async def metrics(door: Door, request: Request, body: None) -> Response:
    """Answer `/metrics`."""
    text = await asyncio.to_thread(generate_latest, door.traffic.registry)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


async def openapi(door: Door, request: Request, body: None) -> Response:
    """Answer `/openapi.json`."""
    return Response(door.openapi, media_type="application/json")


async def docs(door: Door, request: Request, body: None) -> Response:
    """Answer `/docs`: a page that loads nothing from elsewhere."""
    return HTMLResponse(await asyncio.to_thread(_page))


@cache
def _page() -> str:
    try:
        from offapi import OpenAPITemplate
    except ModuleNotFoundError:
        raise Refusal(
            501, "The page needs the package offapi. Run `pip install 'cenote[server]'`, or read /openapi.json."
        ) from None
    # Relative, so that the page also works behind a proxy that adds a prefix.
    return str(OpenAPITemplate.SWAGGER.value.format(spec_url="openapi.json"))


def installed_version() -> str:
    """Version of the installed package, `0+unknown` where it runs from a checkout."""
    try:
        return metadata.version("cenote")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def _json(answer: Struct) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _health(method: Literal["GET", "POST"], path: str, answer: Answer, summary: str) -> Route:
    """A question about health, which needs no key."""
    return Route(method, path, answer, summary, OPS, open=True, errors=(503,))


ROUTES = (
    _health("GET", "/health", ready, "200 while ready, else 503."),
    _health("GET", "/", ready, "As /health."),
    _health("GET", "/health/ready", ready, "200 while new requests are taken."),
    _health("GET", "/health/live", live, "200 until a restart is needed."),
    _health("GET", "/ping", ready, "As /health."),
    _health("POST", "/ping", ready, "As /health."),
    Route("GET", "/version", version, "Version of Cenote.", OPS, response=Version),
    Route("GET", "/load", load, "Requests that are being answered.", OPS, response=Load),
    Route("GET", "/metrics", metrics, "Prometheus metrics.", OPS, response="text/plain"),
    Route("GET", "/openapi.json", openapi, "This document.", OPS, response="application/json"),
    Route("GET", "/docs", docs, "This document, to read and try.", OPS, response="text/html"),
)
