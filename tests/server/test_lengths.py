"""What a request says about long inputs: refused, cut, embedded in pieces, or in spans of one forward."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest

from cenote import LLM
from support.fixtures import TinySentence
from support.rows import BATCH_LIMIT, assert_equal
from support.texts import paragraphs, short_texts

from .running import Server

LIMIT = 70
LONG = " ".join(paragraphs(2))
TEXTS = [LONG, *short_texts(3)]
PATHS = ("/v1/embeddings", "/pooling", "/invocations", "/vllm/pooling")


@pytest.fixture(scope="module")
def folder(tiny_sentence: TinySentence) -> Path:
    return tiny_sentence(pooling="mean", normalize=True, num_hidden_layers=1, prompts={"query": "ask: "})


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder)) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[httpx.Client]:
    with Server(folder) as server, httpx.Client(base_url=server.url, timeout=60) as asking:
        yield asking


@pytest.fixture(scope="module")
def chunking(folder: Path) -> Iterator[httpx.Client]:
    """A server that embeds long texts in pieces by itself, up to a limit."""
    settings = {"pooler_config": {"enable_chunked_processing": True, "max_embed_len": 200}}
    with Server(folder, model_settings=settings) as server, httpx.Client(base_url=server.url, timeout=60) as asking:
        yield asking


def rows_of(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200, response.text
    return [one.get("embedding", one.get("data")) for one in response.json()["data"]]


def told_of(response: httpx.Response) -> list[tuple[int, int, int]]:
    return [(one["tokens"], one["cut_tokens"], one["pieces"]) for one in response.json()["data"]]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("overlap", [None, 5])
def test_pieces_are_those_of_the_offline_api(client: httpx.Client, llm: LLM, path: str, overlap: int | None) -> None:
    more: dict[str, Any] = {} if overlap is None else {"chunk_overlap": overlap}
    outs = llm.embed(TEXTS, on_long="chunk", use_tqdm=False, **more)
    response = client.post(path, json={"input": TEXTS, "on_long": "chunk", **more})
    assert_equal(rows_of(response), [out.outputs.embedding for out in outs], BATCH_LIMIT)
    told = [(len(out.prompt_token_ids), 0, out.num_pieces) for out in outs]
    assert told_of(response) == told
    num_own, room = told[0][0] - 2, LIMIT - 2
    assert [pieces for _, _, pieces in told] == [-(-(num_own - (overlap or 0)) // (room - (overlap or 0))), 1, 1, 1]
    used = response.json()["usage"]
    assert (used["prompt_tokens"], used["cut_tokens"], used["pieces"]) == (
        sum(tokens for tokens, _, _ in told), 0, sum(pieces for _, _, pieces in told),
    )  # fmt: skip
    assert (response.headers["x-pieces"], response.headers["x-truncated"]) == (str(used["pieces"]), "0")


@pytest.mark.parametrize("side", [None, "left"])
@pytest.mark.parametrize("limit", [None, 20])
def test_cuts_are_those_of_the_offline_api(client: httpx.Client, llm: LLM, side: str | None, limit: int | None) -> None:
    asked = {name: value for name, value in (("side", side), ("limit", limit)) if value is not None}
    how = {"truncate_prompt_tokens": limit or -1, "truncation_side": side}
    outs = llm.embed(TEXTS, tokenization_kwargs=how, use_tqdm=False)
    for path in PATHS:
        response = client.post(path, json={"input": TEXTS, "on_long": "cut", **asked})
        assert_equal(rows_of(response), [out.outputs.embedding for out in outs], BATCH_LIMIT)
        assert told_of(response) == [(len(out.prompt_token_ids), out.num_cut_tokens, 1) for out in outs]
        assert response.json()["usage"]["cut_tokens"] == sum(out.num_cut_tokens for out in outs) > 0
        assert int(response.headers["x-truncated"]) == sum(out.truncated for out in outs)
        assert "x-pieces" not in response.headers
    tokens = client.post("/pooling", json={"input": TEXTS, "task": "token_embed", "on_long": "cut", **asked})
    assert [len(rows) for rows in rows_of(tokens)] == [tokens for tokens, _, _ in told_of(tokens)]


def test_refusals_have_a_limit_of_their_own(client: httpx.Client, chunking: httpx.Client) -> None:
    for asking, body in (
        (client, {"on_long": "refuse", "limit": 20}),
        (client, {"limit": 20}),
        # A request's own word counts more than the model's.
        (chunking, {"on_long": "refuse", "limit": 20}),
    ):
        response = asking.post("/v1/embeddings", json={"input": ["a", "b " * 30], **body})
        assert response.status_code == 400
        assert "Input 1 has 32 tokens" in response.json()["error"]["message"]
        assert "length is 20 tokens" in response.json()["error"]["message"]
    whole = chunking.post("/v1/embeddings", json={"input": "b " * 90, "on_long": "refuse"})
    assert "length is 70 tokens" in whole.json()["error"]["message"]
    pieces = chunking.post("/v1/embeddings", json={"input": "b " * 90, "chunk_overlap": 3})
    assert told_of(pieces) == [(92, 0, 2)]
    assert chunking.post("/v1/embeddings", json={"input": "b " * 90}).headers["x-pieces"] == "2"
    together = client.post("/v1/embeddings", json={"input": "b " * 90, "on_long": "chunk", "limit": 80})
    assert "length is 80 tokens" in together.json()["error"]["message"]


@pytest.mark.parametrize("path", PATHS)
def test_spans_are_those_of_the_offline_api(client: httpx.Client, llm: LLM, path: str) -> None:
    spans = [[[0, 5], [3, 12]], [[2, 9]]]
    for unit, more in (("chars", {}), ("tokens", {"normalize": False}), ("chars", {"prompt_name": "query"})):
        body = {"input": TEXTS[1:3], "spans": spans, "span_unit": unit, **more}
        expected = [
            llm.embed_chunks(text, [(start, end) for start, end in its], unit=unit, **more)  # type: ignore[arg-type]
            for text, its in zip(TEXTS[1:3], spans, strict=True)
        ]
        response = client.post(path, json=body)
        assert_equal(rows_of(response), np.concatenate(expected), BATCH_LIMIT)
        data = response.json()["data"]
        assert [(one["index"], one["input"], one["span"]) for one in data] == [
            (0, 0, [0, 5]), (1, 0, [3, 12]), (2, 1, [2, 9]),
        ]  # fmt: skip
        by_input = {one["input"]: one["tokens"] for one in data}
        assert response.json()["usage"]["prompt_tokens"] == sum(by_input.values())


def test_what_is_told_is_in_the_metadata_of_bytes_too(client: httpx.Client) -> None:
    body = {"input": TEXTS[1], "spans": [[[0, 5], [3, 12]]], "encoding_format": "bytes"}
    response = client.post("/v1/embeddings", json=body)
    metadata = orjson.loads(response.headers["metadata"])
    assert [one["span"] for one in metadata["data"]] == [[0, 5], [3, 12]]
    assert metadata["usage"]["pieces"] == 1


def test_nothing_is_told_where_nothing_is_asked(client: httpx.Client) -> None:
    answer = client.post("/v1/embeddings", json={"input": "a"}).json()
    assert set(answer["data"][0]) == {"index", "object", "embedding"}
    assert not {"cut_tokens", "pieces"} & set(answer["usage"])


@pytest.mark.parametrize(
    ("body", "param", "part"),
    [
        ({"on_long": "split"}, "on_long", "refuse, cut, chunk"),
        ({"side": "left"}, "side", "side='left' is for on_long='cut', and long inputs are to refuse here"),
        ({"on_long": "chunk", "side": "left"}, "side", "Say on_long='cut'"),
        ({"chunk_overlap": 3}, "chunk_overlap", "is for on_long='chunk'"),
        ({"on_long": "chunk", "chunk_overlap": 68}, "chunk_overlap", "room for 68 tokens"),
        ({"on_long": "chunk", "chunk_overlap": -1}, "chunk_overlap", "chunk_overlap=-1"),
        ({"on_long": "cut", "limit": 71}, "limit", "limit=71. At least 1 and at most 70"),
        ({"limit": 0}, "limit", "limit=0"),
        ({"limit": True}, "limit", "int"),
        ({"limit": 9, "truncate_prompt_tokens": 9}, "truncate_prompt_tokens", "Both limit and truncate_prompt_tokens"),
        ({"on_long": "cut", "side": "left", "truncation_side": "left"}, "truncation_side", "Both side and"),
        ({"on_long": "refuse", "truncate_prompt_tokens": 9}, "truncate_prompt_tokens", "does not"),
        ({"on_long": "chunk", "spans": [[[0, 1]]]}, "on_long", "asks for spans"),
        ({"spans": [[[0, 1]], [[0, 1]]]}, "spans", "spans for 2 inputs, and 1 inputs"),
        ({"spans": [[]]}, "spans", "There are no spans"),
        ({"spans": [[[1, 1]]]}, "spans", "Span 0 goes from 1 to 1"),
        ({"input": ["a", "b"], "spans": [[[0, 1]], [[2, 9]]]}, "spans", "Span 0 of input 1 goes from 2 to 9"),
        ({"spans": [[[0, 1, 2]]]}, "spans", "Two whole numbers"),
        ({"input": "a", "spans": [[[0, 10**6]]], "span_unit": "tokens"}, "spans", "ends after the last one"),
        ({"span_unit": "tokens"}, "span_unit", "no spans"),
        ({"input": [[1, 2]], "add_special_tokens": False, "spans": [[[0, 1]]]}, "input", "no text"),
    ],
)
def test_what_excludes_each_other_is_refused(client: httpx.Client, body: dict[str, Any], param: str, part: str) -> None:
    response = client.post("/v1/embeddings", json={"input": LONG, **body})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], part in error["message"]) == (param, True), error


def test_other_tasks_have_neither_pieces_nor_spans(client: httpx.Client) -> None:
    for body, param in (({"on_long": "chunk"}, "on_long"), ({"spans": [[[0, 1]]]}, "spans")):
        response = client.post("/pooling", json={"input": "a b", "task": "token_embed", **body})
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)
        assert "token_embed" in response.json()["error"]["message"]


def test_a_model_without_vectors_of_tokens_has_no_spans(tiny_sentence: TinySentence) -> None:
    folder = tiny_sentence(pooling=["cls", "mean"])
    with Server(folder) as server, httpx.Client(base_url=server.url, timeout=60) as asking:
        response = asking.post("/v1/embeddings", json={"input": "a b", "spans": [[[0, 1]]]})
        assert response.status_code == 501
        assert "Token embedding API is not supported by this model" in response.json()["error"]["message"]
