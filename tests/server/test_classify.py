"""`/classify` through a real server: labels, values, and every form of input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from cenote import Pair
from support.texts import edge_texts, short_texts

from .conftest import LABELS, Kind

TEXTS = short_texts(5)


def values(items: list[dict[str, object]]) -> np.ndarray[Any, Any]:
    assert [item["index"] for item in items] == list(range(len(items)))
    return np.array([item["probs"] for item in items], np.float32)


def test_equal_to_transformers(classifier: Kind) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(classifier.folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(classifier.folder)
    with torch.inference_mode():
        logits = np.concatenate([model(**tokenizer(text, return_tensors="pt")).logits.numpy() for text in TEXTS])
    data = classifier.post("/classify", input=TEXTS, use_activation=False).json()["data"]
    assert np.abs(values(data) - logits).max() <= 1e-5 * np.abs(logits).max()
    assert [item["label"] for item in data] == [LABELS[int(row.argmax())] for row in logits]


def test_equal_to_the_offline_api(classifier: Kind) -> None:
    response = classifier.post("/classify", input=TEXTS)
    body = response.json()
    offline = classifier.llm.classify(TEXTS, use_tqdm=False)
    np.testing.assert_allclose(values(body["data"]), [out.outputs.probs for out in offline], atol=2e-6)
    assert [item["label"] for item in body["data"]] == [out.outputs.label for out in offline]
    assert {item["num_classes"] for item in body["data"]} == {3}
    assert body["id"] == f"classify-{response.headers['x-request-id']}"
    assert body["usage"]["prompt_tokens"] == sum(len(out.prompt_token_ids) for out in offline)
    assert (body["object"], body["model"]) == ("list", "classifier")


def test_pairs(classifier: Kind) -> None:
    pairs = [{"text": TEXTS[0], "text_pair": TEXTS[1]}, {"text": TEXTS[2], "text_pair": ""}]
    data = classifier.post("/classify", input=pairs).json()["data"]
    offline = classifier.llm.classify([Pair(TEXTS[0], TEXTS[1]), Pair(TEXTS[2], "")], use_tqdm=False)
    np.testing.assert_allclose(values(data), [out.outputs.probs for out in offline], atol=2e-6)
    alone = classifier.post("/classify", input=pairs[0]).json()["data"]
    np.testing.assert_allclose(values(alone), values(data)[:1], atol=2e-6)


def test_token_ids_and_cut_inputs(classifier: Kind) -> None:
    tokenizer = AutoTokenizer.from_pretrained(classifier.folder)
    ids = [tokenizer(text)["input_ids"] for text in TEXTS]
    by_text = classifier.post("/classify", input=TEXTS)
    np.testing.assert_allclose(
        values(classifier.post("/classify", input=ids).json()["data"]), values(by_text.json()["data"]), atol=2e-6
    )
    long = edge_texts()[-1]
    cut = classifier.post("/classify", input=long, truncate_prompt_tokens=20, padding="max_length", request_id="mine")
    assert cut.json()["usage"]["prompt_tokens"] == 20
    assert cut.headers["x-truncated"] == "1"
    assert cut.headers["x-ignored-fields"] == "padding"
    assert cut.json()["id"] == "classify-mine"
    refused = classifier.ask("/classify", input=[TEXTS[0], long])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input_tokens")


def test_prompts_go_before_texts(classifier: Kind) -> None:
    ours = values(classifier.post("/classify", input=TEXTS, prompt="about water: ").json()["data"])
    joined = values(classifier.post("/classify", input=[f"about water: {text}" for text in TEXTS]).json()["data"])
    np.testing.assert_allclose(ours, joined, atol=2e-6)


def test_one_label_is_no_error(cross_encoder: Kind) -> None:
    (item,) = cross_encoder.post("/classify", input=TEXTS[0]).json()["data"]
    (out,) = cross_encoder.llm.classify(TEXTS[0], use_tqdm=False)
    assert (item["label"], item["num_classes"]) == ("LABEL_0", 1)
    np.testing.assert_allclose(item["probs"], out.outputs.probs, atol=2e-6)


@pytest.mark.parametrize("kind", ["embedder", "token_classifier"], indirect=True)
def test_other_models_are_refused(kind: Kind) -> None:
    response = kind.ask("/classify", input="a")
    assert response.status_code == 501
    found = response.json()["error"]
    assert "The model does not support Classification API" in found["message"]
    assert (found["type"], found["code"]) == ("NotImplementedError", 501)


def test_a_classifier_has_no_vectors(classifier: Kind) -> None:
    response = classifier.ask("/v1/embeddings", input="a")
    assert response.status_code == 501
    assert "The model does not support Embeddings API" in response.json()["error"]["message"]
