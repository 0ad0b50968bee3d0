"""Every way a request can be wrong, over a real connection."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from support.texts import edge_texts

from .conftest import BODIES, KIND_OF, LONG_CALLS, Kind
from .test_bodies import BROKEN, broken

JSON = {"content-type": "application/json"}
LONG = edge_texts()[-1]


def error(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    found: dict[str, Any] = response.json()["error"]
    assert found["code"] == status
    assert "Traceback" not in found["message"]
    assert response.headers["x-request-id"]
    return found


def ask(request: pytest.FixtureRequest, path: str, **given: Any) -> httpx.Response:
    """Ask the server of the model that answers `path`."""
    kind: Kind = request.getfixturevalue(KIND_OF[path])
    return httpx.post(kind.server.url + path, timeout=60, **given)


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("path", BODIES)
def test_broken_bodies(request: pytest.FixtureRequest, path: str, name: str) -> None:
    body = broken(name, next(iter(BODIES[path])))
    found = error(ask(request, path, content=body, headers=JSON), 400)
    assert found["type"] in ("Bad Request", "BadRequestError")


@pytest.mark.parametrize("path", BODIES)
def test_every_route_answers_what_it_should(request: pytest.FixtureRequest, path: str) -> None:
    assert ask(request, path, json=BODIES[path]).status_code == 200


@pytest.mark.parametrize(
    ("body", "param", "part"),
    [
        ({}, "input", "`input` is missing"),
        ({"input": []}, "input", "at least one"),
        ({"input": [[]]}, "input", "non-empty"),
        ({"input": [1, "a"]}, "input", "token ids"),
        ({"input": ["a", 1]}, "input", "Prompt 1"),
        ({"input": [-1]}, "input", "Token id -1 is out of vocabulary"),
        ({"input": [10**6]}, "input", "Token id 1000000 is out of vocabulary"),
        ({"input": [10**30]}, "input", ""),
        ({"input": "a", "dimensions": 0}, "dimensions", "only supports dimensions in range [1, "),
        ({"input": "a", "dimensions": 5}, "dimensions", "only supports Matryoshka dimensions [8, 16], got 5."),
        ({"input": "a", "prompt_name": "other"}, "prompt_name", "passage, query"),
        ({"input": "a", "adapter": "retrieval.query"}, "adapter", "Its adapters are none."),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "leaves nothing"),
        (
            {"input": "a", "truncate_prompt_tokens": 71},
            "truncate_prompt_tokens",
            "truncate_prompt_tokens value is greater than max_model_len. Please request a smaller truncation size.",
        ),
        ({"input": LONG}, "input_tokens", "This model's maximum context length is 70 tokens."),
        ({"input": ["a", LONG, LONG]}, "input_tokens", "2 of 3"),
        ({"messages": [{"role": "user", "content": "a"}]}, "messages", "chat"),
        ({"input": "a", "mm_processor_kwargs": {"a": 1}}, "mm_processor_kwargs", "not served"),
    ],
)
def test_wrong_values(client: httpx.Client, body: dict[str, Any], param: str, part: str) -> None:
    found = error(client.post("/v1/embeddings", json=body), 400)
    assert part in found["message"]
    assert found["param"] == param


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize("path", BODIES)
def test_only_json_is_allowed(request: pytest.FixtureRequest, path: str, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    found = error(ask(request, path, content=json.dumps(BODIES[path]).encode(), headers=headers), 400)
    assert "Unsupported Media Type: Only 'application/json' is allowed" in found["message"]


def test_a_content_type_may_have_parameters(client: httpx.Client) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post("/v1/embeddings", content=b'{"input": "a"}', headers=headers).status_code == 200


@pytest.mark.parametrize("path", BODIES)
def test_unknown_model(request: pytest.FixtureRequest, path: str) -> None:
    found = error(ask(request, path, json={**BODIES[path], "model": "other"}), 404)
    assert "The model `other` does not exist." in found["message"]
    assert found["type"] == "NotFoundError"


def test_unknown_routes_and_methods(client: httpx.Client) -> None:
    error(client.get("/v2/nothing"), 404)
    error(client.post("/v1/embeddings/", json={}), 404)
    response = client.get("/v1/embeddings")
    error(response, 405)
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_over_the_limit(client: httpx.Client, chunked: bool) -> None:
    body = b'{"input": "' + b"a" * 2_000_000 + b'"}'
    parts = (body[start : start + 65536] for start in range(0, len(body), 65536))
    response = client.post("/v1/embeddings", content=parts if chunked else body, headers=JSON)
    assert "2000000 bytes" in error(response, 413)["message"]


@pytest.mark.parametrize("path", LONG_CALLS)
def test_a_deadline_that_passes(client: httpx.Client, path: str) -> None:
    field, other = LONG_CALLS[path]
    body = {field: [f"{number} text" for number in range(2000)], **other}
    found = error(client.post(path, json=body, headers={"x-request-timeout-ms": "1"}), 504)
    assert "deadline" in found["message"]


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1.5"])
def test_a_deadline_that_cannot_be_read(client: httpx.Client, value: str) -> None:
    response = client.post("/v1/embeddings", json={"input": "a"}, headers={"x-request-timeout-ms": value})
    assert error(response, 400)["param"] == "x-request-timeout-ms"


def test_a_clients_id_comes_back_on_errors_too(client: httpx.Client) -> None:
    headers = {"x-request-id": "mine-1"}
    assert client.post("/v1/embeddings", json={}, headers=headers).headers["x-request-id"] == "mine-1"
    assert client.get("/nowhere", headers=headers).headers["x-request-id"] == "mine-1"
    assert client.get("/health", headers={"x-request-id": "a b"}).headers["x-request-id"] != "a b"
