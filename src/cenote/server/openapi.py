"""The OpenAPI 3.1 document, made of the route table and the types of its bodies."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
import orjson

from .route import Route, by_place

_REF = "#/components/schemas/{name}"
_JSON = "application/json"


def document(routes: Sequence[Route], *, version: str, keys: bool, root_path: str = "") -> bytes:
    """The document of `routes` as JSON; `keys` says whether requests need one, `root_path` where a proxy has them."""
    types = [kind for route in routes for kind in (route.request, *route.answers, route.dialect.error) if kind]
    _, components = msgspec.json.schema_components(types, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for (path, method), rows in by_place(routes).items():
        entry = paths.setdefault(path.replace(":path}", "}"), {})
        entry[method.lower()] = _operation(rows, path, keys)
    whole: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Cenote", "version": version},
        "paths": paths,
        "components": {"schemas": components},
    }
    if root_path:
        whole["servers"] = [{"url": root_path}]
    if keys:
        whole["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    return orjson.dumps(whole)


def _operation(rows: Sequence[Route], path: str, keys: bool) -> dict[str, Any]:
    """What a path does; a body and an answer are those of any of its rows."""
    first, guarded = rows[-1], keys and not rows[-1].open
    operation: dict[str, Any] = {
        "operationId": f"{first.method}{path}",
        "summary": first.summary,
        "tags": list(dict.fromkeys(row.dialect.name for row in rows)),
        "responses": {"200": _answered(rows)},
    }
    if "{id:path}" in path:
        operation["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    requests = [row.request for row in rows if row.request is not None]
    if requests:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": _any_of(requests)}}}
    statuses = {status for row in rows for status in row.errors} | ({401} if guarded else set())
    for status in sorted(statuses):
        operation["responses"][str(status)] = _failed(status, rows)
    if guarded:
        operation["security"] = [{"bearer": []}, {"header": []}]
    return operation


def _answered(rows: Sequence[Route]) -> dict[str, Any]:
    first = rows[-1]
    if first.response is None:
        return {"description": "All is well; the body is empty."}
    if isinstance(first.response, str):
        return {"description": first.summary, "content": {first.response: {}}}
    content: dict[str, Any] = {_JSON: {"schema": _any_of([kind for row in rows for kind in row.answers])}}
    if any(row.binary for row in rows):
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    return {"description": first.summary, "content": content}


def _failed(status: int, rows: Sequence[Route]) -> dict[str, Any]:
    description = {"description": HTTPStatus(status).phrase}
    if rows[0].response is None:
        return description
    return {**description, "content": {_JSON: {"schema": _any_of([row.dialect.error for row in rows])}}}


def _any_of(kinds: Sequence[Any]) -> dict[str, Any]:
    refs, _ = msgspec.json.schema_components(list(dict.fromkeys(kinds)), ref_template=_REF)
    return refs[0] if len(refs) == 1 else {"anyOf": refs}
