"""Health, models, tokens, metrics and the other routes beside the vectors."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from transformers import AutoTokenizer

from .conftest import ALIAS, BODIES, KEY, NAME
from .running import Server

TEXT = "Water rises slowly in a cenote."


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/health"), ("GET", "/health/live"), ("GET", "/health/ready"), ("GET", "/ping"), ("POST", "/ping")],
)
def test_health_is_an_empty_200(client: httpx.Client, method: str, path: str) -> None:
    response = client.request(method, path)
    assert (response.status_code, response.content) == (200, b"")


def test_version_and_load(client: httpx.Client) -> None:
    assert set(client.get("/version").json()) == {"version"}
    assert client.get("/load").json() == {"server_load": 0}


def test_models(client: httpx.Client) -> None:
    body = client.get("/v1/models").json()
    assert body["object"] == "list"
    assert [(model["id"], model["root"]) for model in body["data"]] == [(NAME, NAME), (ALIAS, NAME)]
    assert {model["max_model_len"] for model in body["data"]} == {70}


def test_info_gives_each_value_with_its_source(client: httpx.Client) -> None:
    (model,) = client.get("/info").json()["cenote"]["models"]
    assert model["name"] == NAME
    assert "embed" in model["tasks"]
    assert model["recipe"]["normalize"] == {"value": True, "source": "modules.json"}
    assert model["recipe"]["prompts"]["value"]["query"] == "query: "
    assert all(value["source"] for value in model["recipe"].values())


@pytest.mark.parametrize("prefix", ["", "/vllm"])
@pytest.mark.parametrize("special", [True, False])
def test_tokenize_and_back(client: httpx.Client, folder: Path, prefix: str, special: bool) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    body = {"prompt": TEXT, "add_special_tokens": special, "return_token_strs": True, "model": ALIAS}
    answer = client.post(f"{prefix}/tokenize", json=body).json()
    ids = tokenizer(TEXT, add_special_tokens=special)["input_ids"]
    assert answer == {
        "count": len(ids),
        "max_model_len": 70,
        "tokens": ids,
        "token_strs": tokenizer.convert_ids_to_tokens(ids),
    }
    text = client.post(f"{prefix}/detokenize", json={"tokens": ids}).json()["prompt"]
    assert text == tokenizer.decode(ids)


def test_tokenize_has_no_limit(client: httpx.Client) -> None:
    answer = client.post("/tokenize", json={"prompt": TEXT * 3000}).json()
    assert answer["count"] == len(answer["tokens"]) > 10_000
    assert answer["token_strs"] is None


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"messages": [{"role": "user", "content": "a"}]}, 400, "messages"),
        ("/tokenize", {"prompt": "a", "model": "other"}, 404, None),
        ("/detokenize", {}, 400, None),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens[0]"),
        ("/detokenize", {"tokens": [2**63 - 1]}, 400, "tokens"),
    ],
)
def test_token_routes_refuse(client: httpx.Client, path: str, body: object, status: int, param: str | None) -> None:
    response = client.post(path, json=body)
    assert response.status_code == status
    if param is not None:
        assert response.json()["error"]["param"] == param


def test_metrics_count(client: httpx.Client) -> None:
    def read() -> dict[tuple[str, ...], float]:
        families = text_string_to_metric_families(client.get("/metrics").text)
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }

    before = read()
    client.post("/v1/embeddings", json={"input": ["one", "two three"]})
    client.post("/v1/embeddings", json={"input": []})
    client.get("/no/such/route")
    after = read()
    grown = {key: after[key] - before.get(key, 0.0) for key in after}
    assert grown["cenote_inputs_total", NAME] == 2
    assert grown["cenote_requests_total", NAME] == 1
    assert grown["cenote_tokens_total", NAME] > 2
    assert grown["cenote_calls_ended_total", "ok", NAME] == 1
    assert grown["cenote_queue_seconds_count", NAME] == 1
    assert grown["cenote_http_requests_total", "POST", "/v1/embeddings", "200"] == 1
    assert grown["cenote_http_requests_total", "POST", "/v1/embeddings", "400"] == 1
    assert grown["cenote_http_requests_total", "GET", "unmatched", "404"] == 1


def test_docs_load_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "openapi.json" in page.text
    assert 'src="http' not in page.text
    assert 'rel="stylesheet"' not in page.text


OPEN = ("/", "/health", "/health/live", "/health/ready", "/ping")
GUARDED = (
    "/v1/models",
    "/v1/models/raw",
    "/version",
    "/load",
    "/info",
    "/metrics",
    "/openapi.json",
    "/docs",
    "/nowhere",
)


@pytest.mark.parametrize("path", OPEN)
def test_health_needs_no_key(guarded: Server, path: str) -> None:
    assert httpx.get(guarded.url + path).status_code == 200


@pytest.mark.parametrize("path", GUARDED)
def test_everything_else_needs_one(guarded: Server, path: str) -> None:
    response = httpx.get(guarded.url + path)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == 401
    assert response.headers["www-authenticate"] == "Bearer"
    answered = httpx.get(guarded.url + path, headers={"authorization": f"Bearer {KEY}"}).status_code
    assert answered == (404 if path == "/nowhere" else 200)


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer first"},
        {"authorization": f"bearer {KEY}"},
        {"authorization": KEY},
        {"x-api-key": KEY},
        {"authorization": "Basic a", "x-api-key": KEY},
    ],
)
def test_keys_in_every_form(guarded: Server, headers: dict[str, str]) -> None:
    answer = httpx.post(f"{guarded.url}/tokenize", json={"prompt": "a"}, headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": f"Basic {KEY}"},
        {"authorization": f"Bearer {KEY}x"},
        {"x-api-key": ""},
        {"authorization": b"Bearer \xe9"},
    ],
)
def test_wrong_keys(guarded: Server, headers: dict[str, str]) -> None:
    for path in (*BODIES, "/vllm/detokenize", "/vllm/v2/rerank"):
        assert httpx.post(guarded.url + path, json={"prompt": "a"}, headers=headers).status_code == 401
