"""The OpenAPI 3.1 document, made of the route table and the types of its bodies."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
import orjson

from . import refusals
from .routes import Route

_REF = "#/components/schemas/{name}"
_ERROR = {"$ref": "#/components/schemas/Error"}
_JSON = "application/json"


def document(routes: Sequence[Route], *, version: str, keys: bool) -> bytes:
    """The document of `routes` as JSON; `keys` says whether requests need one."""
    types = [kind for route in routes for kind in (route.request, *route.answers) if kind is not None]
    _, components = msgspec.json.schema_components(types, ref_template=_REF)
    components["Error"] = refusals.schema()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for path in route.paths:
            entry = paths.setdefault(path.replace(":path}", "}"), {})
            _add(entry, route, path, keys)
    whole: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Cenote", "version": version},
        "paths": paths,
        "components": {"schemas": components},
    }
    if keys:
        whole["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    return orjson.dumps(whole)


def _add(entry: dict[str, Any], route: Route, path: str, keys: bool) -> None:
    method = route.method.lower()
    if method in entry:
        _widen(entry[method], route)
        return
    entry[method] = _operation(route, path, keys)


def _operation(route: Route, path: str, keys: bool) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.method}{path}",
        "summary": route.summary,
        "tags": [route.dialect],
        "responses": {"200": _answered(route)},
    }
    if "{id:path}" in path:
        operation["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    if route.request is not None:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": _ref(route.request)}}}
    statuses = {*route.errors, *((401,) if keys and not route.open else ())}
    for status in sorted(statuses):
        operation["responses"][str(status)] = _failed(status, empty=route.response is None)
    if keys and not route.open:
        operation["security"] = [{"bearer": []}, {"header": []}]
    return operation


def _widen(operation: dict[str, Any], route: Route) -> None:
    """Let an operation take the bodies of one more row that shares its path."""
    assert route.request is not None, "rows that share a path have a body"
    for kinds, content in (
        ((route.request,), operation["requestBody"]["content"]),
        (route.answers, operation["responses"]["200"]["content"]),
    ):
        known = content[_JSON]["schema"]
        either = known.get("anyOf", [known])
        new = [_ref(kind) for kind in kinds if _ref(kind) not in either]
        content[_JSON] = {"schema": {"anyOf": [*either, *new]} if new else known}


def _answered(route: Route) -> dict[str, Any]:
    if route.response is None:
        return {"description": "All is well; the body is empty."}
    if isinstance(route.response, str):
        return {"description": route.summary, "content": {route.response: {}}}
    refs = [_ref(kind) for kind in route.answers]
    content: dict[str, Any] = {_JSON: {"schema": refs[0] if len(refs) == 1 else {"anyOf": refs}}}
    if route.binary:
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    return {"description": route.summary, "content": content}


def _failed(status: int, *, empty: bool) -> dict[str, Any]:
    description = {"description": HTTPStatus(status).phrase}
    return description if empty else {**description, "content": {_JSON: {"schema": _ERROR}}}


def _ref(kind: type) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}
