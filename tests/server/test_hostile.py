"""What nobody sends by accident, at the door of each dialect: refused in its own form, and never with a 5xx."""

from __future__ import annotations

import gzip
from typing import Any

import httpx
import pytest

from .conftest import Kind

# Dialect -> a path of its own, the field of its texts, and the fields of its errors.
DOORS: dict[str, tuple[str, str, set[str]]] = {
    "openai": ("/openai/v1/embeddings", "input", {"error"}),
    "vllm": ("/vllm/pooling", "input", {"error"}),
    "cohere": ("/cohere/v2/embed", "texts", {"message", "id"}),
    "tei": ("/tei/embed", "inputs", {"error", "error_type"}),
    "hf": ("/hf/", "inputs", {"error", "error_type"}),
    "ollama": ("/ollama/api/embed", "input", {"error"}),
    "jina": ("/jina/v1/embeddings", "input", {"detail", "code", "request_id"}),
    "voyage": ("/voyage/v1/embeddings", "input", {"detail"}),
    "mixedbread": ("/mixedbread/v1/embeddings", "input", {"type", "url", "message", "details"}),
    "infinity": ("/infinity/embeddings", "input", {"error"}),
    "llamacpp": ("/llamacpp/embedding", "content", {"error"}),
}
JSON = {"content-type": "application/json"}
BODIES = {
    "mark": b'\xef\xbb\xbf{"FIELD": "a"}',
    "overlong": b'{"FIELD": "\xc0\x80"}',
    "raw-surrogate": b'{"FIELD": "\xed\xa0\x80"}',
    "huge-number": b'{"FIELD": 1' + b"0" * 10_000 + b"}",
    "huge-exponent": b'{"FIELD": 1e99999999}',
    "deep-keys": b'{"FIELD": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    "control": b'{"FIELD": "\x00"}',
}


def check(answer: httpx.Response, fields: set[str], *statuses: int) -> None:
    assert answer.status_code in statuses, answer.text
    assert set(answer.json()) == fields


@pytest.mark.parametrize("dialect", DOORS)
def test_bodies(embedder: Kind, dialect: str) -> None:
    path, field, fields = DOORS[dialect]
    for name, raw in BODIES.items():
        body = raw.replace(b"FIELD", field.encode())
        answer = httpx.post(embedder.server.url + path, content=body, headers=JSON, timeout=60)
        assert answer.status_code in (400, 422), (name, answer.text)
        check(answer, fields, 400, 422)


@pytest.mark.parametrize("dialect", DOORS)
def test_packed_bodies_that_grow(embedder: Kind, dialect: str) -> None:
    path, field, fields = DOORS[dialect]
    bomb = gzip.compress(b'{"%s": "' % field.encode() + b"a" * 50_000_000 + b'"}')
    for encoding, status in (("gzip", 413), ("br", 415), ("gzip, gzip", 415)):
        headers = {**JSON, "content-encoding": encoding}
        check(httpx.post(embedder.server.url + path, content=bomb, headers=headers, timeout=60), fields, status)


@pytest.mark.parametrize("dialect", DOORS)
def test_methods(embedder: Kind, dialect: str) -> None:
    path, _, fields = DOORS[dialect]
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        check(httpx.request(method, embedder.server.url + path), fields, 405)
    assert httpx.head(embedder.server.url + path).status_code in (200, 405)
    events = httpx.post(embedder.server.url + path, json={}, headers={"accept": "text/event-stream"})
    assert events.status_code < 500
    assert events.headers["content-type"] == "application/json"


@pytest.mark.parametrize("dialect", DOORS)
@pytest.mark.parametrize(
    "tail", ["/../v1/embeddings", "/%2e%2e/v1/embeddings", "//x", "/x%00", "/%ff", "/" + "a" * 5000]
)
def test_paths_stay_below_their_prefix(embedder: Kind, dialect: str, tail: str) -> None:
    fields = DOORS[dialect][2]
    # httpx would resolve the dots; a raw target goes as it is.
    url = httpx.URL(embedder.server.url)
    request = httpx.Request("POST", url, json={"input": "a"}, extensions={"target": f"/{dialect}{tail}".encode()})
    with httpx.Client(timeout=60) as client:
        check(client.send(request), fields, 404)


@pytest.mark.parametrize("name", ["a\r\nset-cookie: x=1", "\u2028", "x" * 300, "\x7f", "a b"])
def test_names_of_requests_write_no_headers(embedder: Kind, name: str) -> None:
    body: dict[str, Any] = {"input": "a", "request_id": name}
    answer = httpx.post(f"{embedder.server.url}/v1/embeddings", json=body, timeout=60)
    assert answer.status_code == 200
    assert answer.json()["id"].endswith(name)
    assert "set-cookie" not in answer.headers
    assert "x-request-id" not in answer.headers
