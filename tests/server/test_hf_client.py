"""Hugging Face's own client against a real server, and the bodies that it does not send."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from support.rows import BATCH_LIMIT, assert_equal
from support.texts import edge_texts, short_texts

from .conftest import KEY, NAME, PROMPTS, Kind
from .running import Server
from .test_bodies import BROKEN, broken

TEXTS = [text[:70] for text in short_texts(5)]


pytestmark = pytest.mark.usefixtures("hub_client")


@pytest.fixture(params=["", "/", "/hf", "/hf/models/tiny/normalised"])
def asked(embedder: Kind, request: pytest.FixtureRequest) -> InferenceClient:
    """The client at each address that it may be given."""
    return InferenceClient(model=embedder.server.url + request.param)


def test_vectors(asked: InferenceClient, embedder: Kind) -> None:
    found = asked.feature_extraction(TEXTS)
    assert_equal(found, embedder.llm.embed(TEXTS, output="numpy", use_tqdm=False), BATCH_LIMIT)
    alone = asked.feature_extraction(TEXTS[0], prompt_name="query", normalize=False, dimensions=8)
    raw = embedder.llm.embed(PROMPTS["query"] + TEXTS[0], normalize=False, output="numpy", use_tqdm=False)
    assert_equal(alone, raw[:, :8], BATCH_LIMIT)
    cut = asked.feature_extraction(edge_texts()[-1], truncate=True, truncation_direction="left")
    assert cut.shape == (1, raw.shape[1])


def test_similarities(asked: InferenceClient, embedder: Kind) -> None:
    source, *others = TEXTS
    rows = embedder.llm.embed(TEXTS, output="numpy", use_tqdm=False)
    assert asked.sentence_similarity(source, others) == pytest.approx((rows[1:] @ rows[0]).tolist(), abs=2e-6)


@pytest.mark.parametrize("function", [None, "softmax", "sigmoid", "none"])
@pytest.mark.parametrize("top_k", [None, 2])
def test_classes(classifier: Kind, function: Any, top_k: int | None) -> None:
    client = InferenceClient(model=classifier.server.url)
    found = client.text_classification(TEXTS[0], function_to_apply=function, top_k=top_k)
    logits = np.array(classifier.llm.classify(TEXTS[0], use_activation=False, use_tqdm=False)[0].outputs.probs)
    powers = np.exp(logits - logits.max())
    values = {"none": logits, "sigmoid": 1 / (1 + np.exp(-logits))}.get(function, powers / powers.sum())
    best = np.argsort(-values)[:top_k]
    assert [one.score for one in found] == pytest.approx(values[best].tolist(), abs=1e-5)
    assert classifier.llm.recipe.classifier is not None
    assert [one.label for one in found] == [classifier.llm.recipe.classifier.labels[at] for at in best]


def test_what_the_client_does_not_send(embedder: Kind, classifier: Kind, cross_encoder: Kind) -> None:
    query, *texts = TEXTS
    plain = embedder.post("/", inputs=texts).json()
    packed = embedder.post("/", inputs=texts, encoding_format="base64", options={"wait_for_model": True})
    assert_equal([np.frombuffer(base64.b64decode(row), "<f4") for row in packed.json()], plain, BATCH_LIMIT)
    assert packed.headers["x-ignored-fields"] == "options"
    nested = embedder.post("/", inputs=texts, parameters={"normalize": False, "dimensions": 8}).json()
    assert np.shape(nested) == (4, 8)
    pair = {"text": query, "text_pair": texts[0]}
    several = classifier.post("/", inputs=[pair, query]).json()
    for found, expected in zip(several, classifier.llm.classify([pair, query], use_tqdm=False), strict=True):
        assert found[0]["score"] == pytest.approx(max(expected.outputs.probs), abs=2e-6)
    ranked = cross_encoder.post("/", query=query, texts=texts).json()
    assert [one["index"] for one in ranked] == [one.index for one in cross_encoder.llm.rerank(query, texts)]
    similar = {"source_sentence": query, "sentences": texts}
    name = f"/hf/models/{embedder.name}/pipeline"
    assert len(embedder.post(f"{name}/sentence-similarity", inputs=similar).json()) == len(texts)
    assert np.shape(embedder.post(f"{name}/feature-extraction", inputs=texts).json()) == np.shape(plain)


@pytest.mark.parametrize("how", ["none", "simple", "average"])
def test_entities(token_classifier: Kind, how: Any) -> None:
    client = InferenceClient(model=token_classifier.server.url)
    found = client.token_classification(TEXTS[0], aggregation_strategy=how, ignore_labels=["LABEL_0"])
    expected = token_classifier.llm.entities(TEXTS[0], aggregation=how, ignore_labels=["LABEL_0"], use_tqdm=False)
    assert expected
    assert [(one.word, one.start, one.end) for one in found] == [(one.word, one.start, one.end) for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-5)
    assert [one.entity if how == "none" else one.entity_group for one in found] == [one.label for one in expected]


def test_entities_of_a_long_text(token_classifier: Kind) -> None:
    long = " ".join(short_texts(12))
    cut = token_classifier.post("/", inputs=long)
    assert cut.headers["x-truncated"] == "1"
    whole = token_classifier.post("/", inputs=[long], parameters={"stride": 4})
    assert whole.headers["x-truncated"] == "0"
    expected = token_classifier.llm.entities(long, stride=4, use_tqdm=False)
    assert [one["word"] for one in whole.json()[0]] == [one.word for one in expected]
    assert len(cut.json()) < len(expected)


@pytest.mark.parametrize("multi_label", [False, True])
def test_any_labels(classifier: Kind, multi_label: bool) -> None:
    labels, template = ["travel", "food", "work"], "It is about {}."
    client = InferenceClient(model=classifier.server.url)
    asked = client.zero_shot_classification(TEXTS[0], labels, hypothesis_template=template, multi_label=multi_label)
    expected = classifier.llm.zero_shot(
        TEXTS[0], labels, hypothesis_template=template, multi_label=multi_label, use_tqdm=False
    )
    assert [one.label for one in asked] == expected.labels
    assert [one.score for one in asked] == pytest.approx(expected.scores, abs=1e-5)


def test_masks(masked_lm: Kind) -> None:
    text = f"{TEXTS[0]} [MASK] a"
    found = InferenceClient(model=masked_lm.server.url).fill_mask(text, top_k=3)
    expected: Any = masked_lm.llm.fill_mask(text, top_k=3, use_tqdm=False)
    assert [(one.token, one.token_str, one.sequence) for one in found] == [
        (one.token, one.token_str, one.sequence) for one in expected
    ]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-5)
    several = masked_lm.post("/", inputs=["[MASK] [MASK]", text], parameters={"top_k": 1}).json()
    assert np.shape(several[0]) == (2, 1)
    assert several[1][0]["token"] == expected[0].token


def test_what_is_not_served_is_said(embedder: Kind, classifier: Kind, masked_lm: Kind) -> None:
    with pytest.raises(HfHubHTTPError, match="The task summarization is not served") as refused:
        InferenceClient(model=f"{embedder.server.url}/hf/models/{NAME}/pipeline/summarization").feature_extraction("a")
    assert refused.value.response.status_code == 422
    with pytest.raises(HfHubHTTPError, match="The model `other` does not exist") as missing:
        InferenceClient(model=f"{embedder.server.url}/hf/models/other").feature_extraction("a")
    assert missing.value.response.status_code == 404
    wrong = classifier.ask("/", inputs="a", parameters={"function_to_apply": "relu"})
    assert "allowed are sigmoid, softmax, none" in wrong.json()["error"]
    wrong_ones: tuple[Any, ...] = (1, [1.5], None, [], {"a": "b"}, ["a", 1])
    for inputs in wrong_ones:
        for kind in (embedder, classifier, masked_lm):
            assert kind.ask("/", inputs=inputs).status_code in (400, 422)
    for task in ("token-classification", "fill-mask", "zero-shot-classification"):
        for inputs in (*wrong_ones, "a"):
            asked = embedder.ask(f"/models/{NAME}/pipeline/{task}", inputs=inputs, parameters={"candidate_labels": "b"})
            assert asked.status_code in (400, 422), asked.text


def test_the_root_is_open_to_get_only(guarded: Server) -> None:
    assert httpx.get(guarded.url).status_code == 200
    assert set(httpx.post(guarded.url, json={"inputs": "a"}).json()) == {"error", "error_type"}
    rows = InferenceClient(model=guarded.url, token=KEY).feature_extraction("a")
    assert np.linalg.norm(rows) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_bodies_are_told_as_the_client_reads_it(client: httpx.Client, name: str) -> None:
    response = client.post("/", content=broken(name, "inputs"), headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert isinstance(response.json()["error"], str)
