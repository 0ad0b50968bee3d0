"""The dialect of text-embeddings-inference: what each of its routes gives, and how it tells failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from support.references import reference_hidden, reference_ids
from support.rows import BATCH_LIMIT, assert_equal
from support.sentence_folders import Dense
from support.texts import edge_texts, short_texts

from .conftest import PROMPTS, Kind, serving
from .test_bodies import BROKEN, broken

TEXTS = [text[:70] for text in short_texts(5)]
LONG = edge_texts()[-1]
ERROR = {"error", "error_type"}


def same(one: Any, other: Any) -> None:
    """Check that two answers are the same, numbers but for what another batch may change."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        same(list(one.values()), list(other.values()))
    elif isinstance(one, list):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            same(left, right)
    else:
        assert one == (pytest.approx(other, abs=5e-6) if isinstance(other, float) else other)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A BERT whose vectors go through a Dense layer and are normalised."""
    from support.sentence_folders import sentence_transformer

    folder = sentence_transformer(tmp_path_factory.mktemp("dense"), dense=Dense(), normalize=True)
    yield from serving("dense", folder)


@pytest.mark.parametrize("prefix", ["", "/tei"])
def test_vectors(embedder: Kind, prefix: str) -> None:
    answer = embedder.post(f"{prefix}/embed", inputs=TEXTS)
    assert_equal(answer.json(), embedder.llm.embed(TEXTS, output="numpy", use_tqdm=False), BATCH_LIMIT)
    assert int(answer.headers["x-compute-characters"]) == sum(map(len, TEXTS))
    assert int(answer.headers["x-compute-tokens"]) > len(TEXTS)
    assert float(answer.headers["x-compute-time"]) > 0
    assert answer.headers["x-truncated"] == "0"
    (alone,) = embedder.post(f"{prefix}/embed", inputs=TEXTS[0]).json()
    assert_equal([alone], answer.json()[:1], BATCH_LIMIT)


def test_vectors_have_unit_length_unless_the_request_says_otherwise(dense: Kind, embedder: Kind) -> None:
    raw = np.array(embedder.post("/embed", inputs=TEXTS, normalize=False).json())
    assert np.abs(np.linalg.norm(raw, axis=1) - 1).min() > 0.01
    finished = np.array(embedder.post("/embed", inputs=TEXTS, dimensions=8, prompt_name="query").json())
    prompted = [PROMPTS["query"] + text for text in TEXTS]
    cut = np.array(embedder.post("/embed", inputs=prompted, normalize=False).json())[:, :8]
    assert_equal(finished, cut / np.linalg.norm(cut, axis=1, keepdims=True))


def test_rows_of_tokens_are_those_of_the_backbone(dense: Kind, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    found = dense.post("/embed_all", inputs=TEXTS).json()
    transformer: Any = SentenceTransformer(str(dense.folder), device="cpu")[0]
    transformer.save(str(tmp_path))
    expected = reference_hidden(tmp_path, reference_ids(tmp_path, TEXTS))
    for rows, theirs in zip(found, expected, strict=True):
        assert np.shape(rows) == theirs.shape
        assert np.abs(np.array(rows) - theirs).max() <= 1e-5 * np.abs(theirs).max()
    finished = dense.post("/pooling", input=TEXTS, task="token_embed").json()["data"][0]["data"]
    assert np.shape(finished) != np.shape(found[0])


def test_sparse_vectors(masked_lm: Kind) -> None:
    found = masked_lm.post("/embed_sparse", inputs=TEXTS).json()
    for weights, one in zip(found, masked_lm.llm.embed_sparse(TEXTS, use_tqdm=False), strict=True):
        assert [weight["index"] for weight in weights] == one.outputs.indices
        assert [weight["value"] for weight in weights] == pytest.approx(one.outputs.values, abs=1e-5)
    refused = masked_lm.ask("/predict", inputs="a")
    assert (refused.status_code, set(refused.json())) == (422, ERROR)


def test_token_ids_get_the_special_tokens_that_they_lack(embedder: Kind) -> None:
    tokenizer = embedder.llm.engine.tokenizer
    bare, whole = tokenizer.ids_of(TEXTS[0], False), tokenizer.ids_of(TEXTS[0], True)
    assert bare != whole
    rows = embedder.post("/embed", inputs=[bare, whole, TEXTS[0]]).json()
    assert rows[0] == rows[1] == rows[2]
    assert embedder.post("/embed", inputs=bare).json()[0] == pytest.approx(rows[0], abs=1e-5)


@pytest.mark.parametrize("direction", [None, "Left", "right"])
def test_long_texts_are_cut_unless_the_request_says_otherwise(embedder: Kind, direction: str | None) -> None:
    body = {} if direction is None else {"truncation_direction": direction}
    cut = embedder.post("/embed", inputs=LONG, **body)
    assert cut.headers["x-truncated"] == "1"
    side = (direction or "right").lower()
    how = {"truncate_prompt_tokens": -1, "truncation_side": side}
    expected = embedder.llm.embed(LONG, tokenization_kwargs=how, output="numpy", use_tqdm=False)
    assert_equal(cut.json(), expected, BATCH_LIMIT)
    refused = embedder.ask("/embed", inputs=LONG, truncate=False, **body)
    assert refused.status_code == 422
    assert refused.json()["error_type"] == "Validation"


def test_classes_of_one_and_of_several(classifier: Kind) -> None:
    pair = (TEXTS[0], TEXTS[1])
    given = [{"text": pair[0], "text_pair": pair[1]}, TEXTS[2]]
    expected = [np.array(one.outputs.probs) for one in classifier.llm.classify(given, use_tqdm=False)]
    labels = classifier.llm.recipe.classifier.labels if classifier.llm.recipe.classifier else ()
    several = classifier.post("/predict", inputs=[list(pair), [TEXTS[2]]]).json()
    for found, values in zip(several, expected, strict=True):
        order = np.argsort(-values)
        assert [one["label"] for one in found] == [labels[at] for at in order]
        assert [one["score"] for one in found] == pytest.approx(values[order].tolist(), abs=2e-6)
    same(classifier.post("/predict", inputs=list(pair)).json(), several[0])
    alone = classifier.post("/predict", inputs=TEXTS[2]).json()
    assert [one["label"] for one in alone] == [one["label"] for one in several[1]]
    raw = classifier.post("/predict", inputs=TEXTS[2], raw_scores=True).json()
    values = np.exp([one["score"] for one in raw])
    assert (values / values.sum()).tolist() == pytest.approx([one["score"] for one in alone], abs=1e-5)


@pytest.mark.parametrize("inputs", [["a", "b", "c"], [["a", "b", "c"]], [[]], ["a", ["b"]]])
def test_what_is_neither_a_text_nor_a_pair_is_refused(classifier: Kind, inputs: list[Any]) -> None:
    refused = classifier.ask("/predict", inputs=inputs)
    assert (refused.status_code, set(refused.json())) == (422, ERROR)
    assert "[[" in refused.json()["error"]


def test_rankings(cross_encoder: Kind, embedder: Kind) -> None:
    query, *texts = TEXTS
    body = {"query": query, "texts": texts}
    for kind in (cross_encoder, embedder):
        expected = kind.llm.rerank(query, texts, use_tqdm=False)
        found = kind.post("/rerank", **body).json()
        assert [one["index"] for one in found] == [one.index for one in expected]
        assert [one["score"] for one in found] == pytest.approx([one.score for one in expected], abs=2e-6)
        assert not any("text" in one for one in found)
    best = cross_encoder.post("/rerank", **body, top_n=2, return_text=True, raw_scores=True).json()
    ranked = cross_encoder.llm.rerank(query, texts, use_activation=False, top_n=2, use_tqdm=False)
    assert [one["text"] for one in best] == [one.document for one in ranked]
    assert [one["score"] for one in best] == pytest.approx([one.score for one in ranked], abs=1e-5)
    assert cross_encoder.post("/rerank", query=query, documents=texts).json()["results"]


def test_similarities_are_cosines(embedder: Kind) -> None:
    source, *sentences = TEXTS
    body = {"inputs": {"source_sentence": source, "sentences": sentences}, "parameters": {"prompt_name": "query"}}
    found = embedder.post("/similarity", **body).json()
    rows = embedder.llm.embed(TEXTS, prompt_name="query", output="numpy", use_tqdm=False)
    assert found == pytest.approx((rows[1:] @ rows[0]).tolist(), abs=2e-6)


def test_tokens_and_back(embedder: Kind) -> None:
    text = "Ünïcode wörds, ok"
    tokenizer = embedder.llm.engine.tokenizer
    (found,) = embedder.post("/tokenize", inputs=text).json()
    ids = [one["id"] for one in found]
    assert ids == tokenizer.ids_of(text, True)
    inner = [one for one in found if not one["special"]]
    assert [one["id"] for one in inner] == tokenizer.ids_of(text, False)
    assert [one["text"] for one in inner] == [text[one["start"] : one["stop"]] for one in inner]
    assert {one["start"] for one in found if one["special"]} == {None}
    assert embedder.post("/decode", ids=ids).json() == [tokenizer.decode(ids, skip_special_tokens=True)]
    whole = embedder.post("/decode", ids=[ids, ids[:2]], skip_special_tokens=False).json()
    assert whole == [tokenizer.decode(ids), tokenizer.decode(ids[:2])]
    (plain,) = embedder.post("/tokenize", inputs=["a"], add_special_tokens=False, prompt_name="query").json()
    assert [one["id"] for one in plain] == tokenizer.ids_of("query: a", False)
    assert embedder.ask("/decode", ids=[1, [2]]).status_code == 422


def test_facts(embedder: Kind, cross_encoder: Kind, classifier: Kind) -> None:
    facts = httpx.get(f"{embedder.server.url}/tei/info").json()
    assert facts["model_type"] == {"embedding": {"pooling": "mean"}}
    assert (facts["model_id"], facts["max_input_length"], facts["model_dtype"]) == (embedder.name, 70, "float32")
    (ours,) = facts["cenote"]["models"]
    assert ours["recipe"]["pooling"]["source"]
    assert ours["fingerprint"] in (None, embedder.llm.fingerprint)
    assert list(httpx.get(f"{cross_encoder.server.url}/info").json()["model_type"]) == ["reranker"]
    named = httpx.get(f"{classifier.server.url}/info").json()["model_type"]["classifier"]
    assert named["id2label"]["1"] == "entailment"
    assert named["label2id"]["entailment"] == 1


def test_one_address_for_what_the_model_does(embedder: Kind, classifier: Kind, cross_encoder: Kind) -> None:
    query, *texts = TEXTS
    ranking = {"query": query, "texts": texts}
    similar = {"inputs": {"source_sentence": query, "sentences": texts}}
    for path in ("/invocations", "/tei/", "/tei"):
        same(embedder.post(path, inputs=texts).json(), embedder.post("/embed", inputs=texts).json())
        same(embedder.post(path, **similar).json(), embedder.post("/similarity", **similar).json())
        same(classifier.post(path, inputs=query).json(), classifier.post("/predict", inputs=query).json())
        same(cross_encoder.post(path, **ranking).json(), cross_encoder.post("/rerank", **ranking).json())
    assert "data" in embedder.post("/invocations", input=query).json()


def test_several_bodies_in_one(embedder: Kind) -> None:
    query, *texts = TEXTS
    bodies: list[dict[str, Any]] = [
        {"inputs": query},
        {"inputs": texts, "dimensions": 8},
        {"query": query, "texts": texts},
    ]
    found = embedder.post("/vertex", instances=bodies).json()["predictions"]
    assert_equal(found[0], embedder.post("/embed", **bodies[0]).json(), BATCH_LIMIT)
    assert_equal(found[1], embedder.post("/embed", **bodies[1]).json(), BATCH_LIMIT)
    assert [one["index"] for one in found[2]] == [one["index"] for one in embedder.post("/rerank", **bodies[2]).json()]
    refused = embedder.ask("/vertex", instances=[{"inputs": "a"}, {"inputs": 1}])
    assert (refused.status_code, set(refused.json())) == (422, ERROR)
    assert "instances[1].inputs" in refused.json()["error"]


@pytest.mark.parametrize(
    ("path", "body", "status", "error_type"),
    [
        ("/embed", {"inputs": []}, 400, "Empty"),
        ("/vertex", {"instances": []}, 400, "Empty"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, 400, "Empty"),
        ("/rerank", {"query": "a", "texts": []}, 400, "Empty"),
        ("/embed", {"inputs": "a", "dimensions": 5}, 422, "Validation"),
        ("/embed", {"inputs": "a", "prompt_name": "other"}, 422, "Validation"),
        ("/embed", {"inputs": "a", "truncation_direction": "up"}, 422, "Validation"),
        ("/embed", {"inputs": [1, "a"]}, 422, "Validation"),
        ("/predict", {"inputs": "a"}, 422, "Validation"),
        ("/tei/nothing", {"inputs": "a"}, 404, "Validation"),
        ("/embed", {"inputs": "a", "model": "other"}, 404, "Validation"),
    ],
)
def test_failures(embedder: Kind, path: str, body: dict[str, Any], status: int, error_type: str) -> None:
    refused = embedder.ask(path, **body)
    assert refused.status_code == status, refused.text
    assert set(refused.json()) == ERROR
    assert refused.json()["error_type"] == error_type


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("path", ["/embed", "/predict", "/tei/"])
def test_broken_bodies_are_told_as_tei_does(client: httpx.Client, path: str, name: str) -> None:
    response = client.post(path, content=broken(name, "inputs"), headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert set(response.json()) == ERROR
