"""The OpenAPI document says what the server does, and what the server says fits the document."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import msgspec
import orjson
import pytest

from cenote.server import openapi
from cenote.server.classify import ClassificationResponse
from cenote.server.openai import EmbeddingResponse
from cenote.server.pooling import PoolingResponse
from cenote.server.routes import ROUTES
from cenote.server.scoring import RerankResponse, ScoreResponse

from .conftest import BODIES, NAME, Kind


@pytest.fixture
def document(client: httpx.Client) -> dict[str, Any]:
    """What the server hands out."""
    served: dict[str, Any] = client.get("/openapi.json").json()
    return served


def check(document: dict[str, Any], path: str, method: str, response: httpx.Response) -> None:
    """Compare an answer with the schema of its status."""
    answers = document["paths"][path][method]["responses"]
    content = answers[str(response.status_code)].get("content")
    if content is None:
        assert response.content == b""
        return
    media_type = response.headers["content-type"].partition(";")[0]
    schema = {**content[media_type].get("schema", {}), "components": document["components"]}
    if media_type == "application/json":
        jsonschema_rs.validate(schema, response.json())


def test_every_route_and_prefix_is_listed(document: dict[str, Any]) -> None:
    listed = {(method.upper(), path) for path, entry in document["paths"].items() for method in entry}
    table = {(row.method, path.replace(":path}", "}")) for row in ROUTES for path in row.paths}
    assert listed == table


def test_answers_fit_the_document(client: httpx.Client, document: dict[str, Any]) -> None:
    for path in (
        "/v1/models",
        "/version",
        "/load",
        "/info",
        "/health",
        "/metrics",
        "/docs",
        "/openapi.json",
        "/api/tags",
        "/api/version",
        "/models",
        "/",
    ):
        check(document, path, "get", client.get(path))
    check(document, "/v1/models/{id}", "get", client.get("/v1/models/other"))
    bodies: dict[str, list[dict[str, Any]]] = {
        "/v1/embeddings": [
            {"input": ["a", "b"]},
            {"input": "a", "encoding_format": "base64"},
            {"input": "a", "encoding_format": "bytes"},
            {"input": []},
            {"input": "a", "model": "other"},
        ],
        "/tokenize": [{"prompt": "a"}, {"prompt": "a", "return_token_strs": True}, {"prompt": 1}],
        "/detokenize": [{"tokens": [1]}, {"tokens": [-1]}],
    }
    for path, several in bodies.items():
        for body in several:
            check(document, path, "post", client.post(path, json=body))


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        ("classifier", "/classify", {"input": ["a", "b"]}),
        ("embedder", "/classify", {"input": "a"}),
        ("classifier", "/pooling", {"input": ["a", "b"], "task": "token_classify"}),
        ("classifier", "/pooling", {"input": "a", "encoding_format": "base64"}),
        ("classifier", "/pooling", {"input": "a", "encoding_format": "bytes_only"}),
        ("classifier", "/invocations", {"input": "a"}),
        ("token_classifier", "/invocations", {"input": "a"}),
        ("cross_encoder", "/score", {"text_1": "a", "text_2": ["b", "c"]}),
        ("cross_encoder", "/v1/rerank", {"query": "a", "documents": ["b", "c"]}),
        ("cross_encoder", "/v2/rerank", {"query": "a", "documents": ["b", "c"], "return_documents": False}),
        ("classifier", "/rerank", {"query": "a", "documents": ["b", "c"]}),
        ("embedder", "/embed", {"inputs": ["a", "b"]}),
        ("embedder", "/embed_all", {"inputs": ["a", "b"]}),
        ("embedder", "/tei/rerank", {"query": "a", "texts": ["b"], "return_text": True}),
        ("embedder", "/tei/tokenize", {"inputs": ["a", "b"]}),
        ("embedder", "/vertex", {"instances": [{"inputs": "a"}]}),
        ("classifier", "/predict", {"inputs": [["a"], ["b", "c"]]}),
        ("classifier", "/", {"inputs": "a"}),
        ("classifier", "/embed", {"inputs": "a"}),
        ("embedder", "/api/embed", {"model": NAME, "input": "a"}),
        ("embedder", "/api/show", {"model": NAME}),
        ("embedder", "/jina/v1/embeddings", {"input": ["a", "b"], "embedding_type": ["float", "base64"]}),
        ("embedder", "/jina/v1/embeddings", {"input": "a", "return_multivector": True}),
        ("embedder", "/v1/embeddings", {"input": "a", "task": "text-matching", "model": "other"}),
        ("embedder", "/v1/contextualizedembeddings", {"inputs": [["a", "b"], ["c"]]}),
        ("embedder", "/voyage/v1/embeddings", {"input": "a", "encoding_format": "base64"}),
        ("embedder", "/v1/rerank", {"query": "a", "documents": ["b"], "top_k": 1}),
        ("embedder", "/mixedbread/v1/embeddings", {"input": "a", "encoding_format": ["float", "ubinary"]}),
        ("embedder", "/v1/reranking", {"query": "a", "input": ["b"], "return_input": True}),
        ("embedder", "/embeddings", {"input": "a"}),
        ("embedder", "/embeddings", {"content": "a"}),
        ("embedder", "/llamacpp/tokenize", {"content": "a", "with_pieces": True}),
        ("cross_encoder", "/infinity/rerank", {"query": "a", "documents": ["b"]}),
        ("classifier", "/infinity/classify", {"input": ["a"]}),
    ],
    indirect=["kind"],
)
def test_answers_of_every_kind_fit_the_document(kind: Kind, path: str, body: dict[str, Any]) -> None:
    document = httpx.get(f"{kind.server.url}/openapi.json").json()
    check(document, path, "post", kind.ask(path, **body))


@pytest.mark.parametrize(
    ("kind", "path", "answer"),
    [
        ("classifier", "/classify", ClassificationResponse),
        ("classifier", "/pooling", PoolingResponse),
        ("cross_encoder", "/score", ScoreResponse),
        ("cross_encoder", "/rerank", RerankResponse),
    ],
    indirect=["kind"],
)
def test_answers_have_exactly_the_fields_of_their_type(kind: Kind, path: str, answer: type[msgspec.Struct]) -> None:
    content = kind.post(path, **BODIES[path]).content
    assert msgspec.to_builtins(msgspec.json.decode(content, type=answer)) == orjson.loads(content)


def test_vectors_fit_their_type_exactly(client: httpx.Client) -> None:
    answer = client.post("/v1/embeddings", json={"input": ["a", "b"]}).content
    typed = msgspec.json.decode(answer, type=EmbeddingResponse)
    assert set(orjson.loads(answer)) == set(EmbeddingResponse.__struct_fields__)
    assert len(typed.data) == 2


def test_keys_are_part_of_the_document() -> None:
    with_keys = orjson.loads(openapi.document(ROUTES, version="1", keys=True))
    without = orjson.loads(openapi.document(ROUTES, version="1", keys=False))
    assert "401" in with_keys["paths"]["/metrics"]["get"]["responses"]
    assert "401" not in with_keys["paths"]["/health"]["get"]["responses"]
    assert "securitySchemes" not in without["components"]


def test_the_page_is_what_the_table_says() -> None:
    path = Path(__file__).parents[2] / "docs" / "make_http.py"
    spec = importlib.util.spec_from_file_location("make_http", path)
    assert spec is not None
    assert spec.loader is not None
    make_http = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_http)
    assert path.with_name("http.md").read_text(encoding="utf-8") == make_http.page(), "run `python docs/make_http.py`"
