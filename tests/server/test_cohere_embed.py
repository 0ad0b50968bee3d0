"""Vectors and labels for Cohere's official clients, both versions, against sentence-transformers."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cohere
import numpy as np
import pytest
from cohere.core.api_error import ApiError
from sentence_transformers.util import quantize_embeddings

from cenote import LLM
from cenote.precisions import Calibration, Precision, ranges_of
from cenote.server.cohere import prompt
from support.references import reference_vectors
from support.texts import short_texts

from .conftest import PROMPTS, Kind
from .running import Server

TEXTS = short_texts(5)
TYPES = ["float", "int8", "uint8", "binary", "ubinary", "base64"]


@pytest.fixture(scope="module")
def ranges(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibration on other texts."""
    path = tmp_path_factory.mktemp("ranges") / "ranges.safetensors"
    with LLM(str(folder), device="cpu") as llm:
        rows = llm.embed(short_texts(40)[20:], output="numpy", use_tqdm=False)
    Calibration(ranges_of(rows), "any", 20).save(path)
    return path


@pytest.fixture(scope="module")
def calibrated(folder: Path, ranges: Path) -> Iterator[Server]:
    """The normalising model with a calibration, under a name of Cohere's."""
    settings = {"calibration": str(ranges)}
    with Server(folder, served_model_name=["embed-english-v3.0"], model_settings=settings) as running:
        yield running


def near(found: Any, expected: Any) -> bool:
    return bool(np.abs(np.asarray(found) - expected).max() <= 1e-5 * np.abs(expected).max())


def test_version_2_in_every_type_at_once(calibrated: Server, folder: Path, ranges: Path) -> None:
    with cohere.ClientV2("any", base_url=calibrated.url) as client:
        answer = client.embed(model="embed-english-v3.0", texts=TEXTS, input_type="search_query", embedding_types=TYPES)
    found = answer.embeddings
    rows = np.asarray(found.float_, np.float32)
    assert near(rows, reference_vectors(folder, [PROMPTS["query"] + text for text in TEXTS]))
    assert found.base64 is not None
    assert [base64.b64decode(row) for row in found.base64] == [row.astype("<f4").tobytes() for row in rows]
    known = Calibration.load(str(ranges)).ranges
    names: tuple[Precision, ...] = ("int8", "uint8", "binary", "ubinary")
    for name in names:
        np.testing.assert_array_equal(getattr(found, name), quantize_embeddings(rows, name, ranges=known))
    assert answer.texts == TEXTS
    assert answer.meta is not None
    assert answer.meta.warnings is None
    assert answer.meta.billed_units is not None
    assert answer.meta.billed_units.input_tokens > len(TEXTS)
    assert answer.id


@pytest.mark.filterwarnings("ignore::DeprecationWarning:pydantic")  # the client's own
@pytest.mark.filterwarnings("ignore::DeprecationWarning:cohere")
def test_version_1_in_both_shapes(embedder: Kind, folder: Path) -> None:
    reference = reference_vectors(folder, TEXTS)
    with cohere.Client("any", base_url=embedder.server.url) as client:
        floats = client.embed(texts=TEXTS, model=embedder.name)
        by_type = client.embed(texts=TEXTS, model=embedder.name, embedding_types=["float"], input_type="nothing")
        # The client cuts this into requests of 96 and puts the answers together.
        many = client.embed(texts=TEXTS * 40, model=embedder.name)
    assert near(floats.embeddings, reference)
    assert near(by_type.embeddings.float_, reference)
    assert floats.response_type == "embeddings_floats"
    assert by_type.response_type == "embeddings_by_type"
    assert near(many.embeddings, np.tile(reference, (40, 1)))
    assert many.texts == TEXTS * 40


def test_only_what_was_asked_for_is_there(embedder: Kind) -> None:
    answer = embedder.post("/v2/embed", texts=["a"], embedding_types=["binary"]).json()
    assert list(answer["embeddings"]) == ["binary"]
    assert list(embedder.post("/v2/embed", texts=["a"]).json()["embeddings"]) == ["float"]


def test_without_a_calibration_there_is_a_warning(embedder: Kind) -> None:
    answer = embedder.post("/cohere/v2/embed", texts=TEXTS, embedding_types=["int8", "uint8"]).json()
    (warning,) = answer["meta"]["warnings"]
    assert "cenote calibrate" in warning
    expected = embedder.llm.embed(TEXTS, output="numpy", precision="int8", use_tqdm=False)
    assert np.abs(np.array(answer["embeddings"]["int8"]) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize(
    ("input_type", "text"),
    [
        (None, None),
        ("search_query", "query: "),
        ("search_document", "passage: "),
        ("SEARCH_QUERY", "query: "),
        ("passage", "passage: "),
        ("clustering", ""),
    ],
)
def test_input_types_are_prompts(embedder: Kind, input_type: str | None, text: str | None) -> None:
    warnings: list[str] = []
    assert prompt(embedder.llm.recipe, input_type, warnings) == text
    assert len(warnings) == (text == "")
    answer = embedder.post("/v2/embed", texts=["some text"], input_type=input_type).json()
    assert ("warnings" in answer["meta"]) == (text == "")
    expected = embedder.llm.embed("some text", output="numpy", use_tqdm=False, prompt=text)
    np.testing.assert_allclose(answer["embeddings"]["float"], expected, atol=2e-6)


def test_lengths(embedder: Kind) -> None:
    text = "one two three four five six seven eight nine ten"

    def tokens(**more: Any) -> Any:
        return embedder.post("/v2/embed", texts=[text], **more).json()["meta"]["billed_units"]["input_tokens"]

    assert tokens(max_tokens=6) == tokens(max_tokens=6, truncate="START") == 6
    ends = [embedder.post("/v2/embed", texts=[text], max_tokens=6, truncate=end).json() for end in ("END", "START")]
    assert ends[0]["embeddings"] != ends[1]["embeddings"]
    assert embedder.post("/v2/embed", texts=["a " * 500]).headers["x-truncated"] == "1"
    for body in ({"max_tokens": 6, "texts": [text]}, {"texts": ["a " * 500]}):
        refused = embedder.ask("/v2/embed", truncate="NONE", **body)
        assert refused.status_code == 400
        assert "maximum context length" in refused.json()["message"]


def test_inputs_with_content(embedder: Kind) -> None:
    part = {"type": "text", "text": "a b"}
    found = embedder.post("/v2/embed", inputs=[{"content": [part]}, {"content": "c"}]).json()
    assert found["texts"] == ["a b", "c"]
    np.testing.assert_allclose(
        found["embeddings"]["float"], embedder.post("/v2/embed", texts=["a b", "c"]).json()["embeddings"]["float"]
    )


def test_dimensions(embedder: Kind) -> None:
    found = embedder.post("/v2/embed", texts=TEXTS, output_dimension=8, embedding_types=["float", "ubinary"]).json()
    expected = embedder.llm.embed(TEXTS, output="numpy", dimensions=8, use_tqdm=False)
    np.testing.assert_allclose(found["embeddings"]["float"], expected, atol=2e-6)
    assert len(found["embeddings"]["ubinary"][0]) == 1


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({}, "no texts"),
        ({"texts": []}, "no texts"),
        ({"texts": ["a"], "inputs": [{"content": "a"}]}, "both"),
        ({"texts": ["a"], "output_dimension": 5}, "Matryoshka dimensions [8, 16]"),
        ({"texts": ["a"], "embedding_types": ["int4"]}, "int4"),
        ({"texts": ["a"], "truncate": "LEFT"}, "NONE, START, END"),
        ({"images": ["data:image/png;base64,AAAA"]}, "images"),
        ({"inputs": [{"content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}]}, "image_url"),
    ],
)
def test_refusals(embedder: Kind, body: dict[str, Any], part: str) -> None:
    response = embedder.ask("/v2/embed", **body)
    assert response.status_code == 400
    assert part in response.json()["message"]


def test_a_model_that_is_no_embedder(cross_encoder: Kind) -> None:
    with cohere.ClientV2("any", base_url=cross_encoder.server.url) as client, pytest.raises(ApiError) as unable:
        client.embed(model="cross-encoder", texts=["a"], input_type="search_query")
    assert unable.value.status_code == 400
    assert "is no embedder" in unable.value.body["message"]


def test_labels_by_examples(embedder: Kind) -> None:
    examples = [("red", "a b c"), ("red", "a b d"), ("blue", "x y z"), ("green", "m n o p")]
    given = [cohere.ClassifyExample(text=text, label=label) for label, text in examples]
    with cohere.Client("any", base_url=embedder.server.url) as client:
        answer = client.classify(model=embedder.name, inputs=["x y z", "m n o p"], examples=given)
        with pytest.raises(ApiError) as few:
            client.classify(model=embedder.name, inputs=["a"], examples=given[:2])
    first, second = answer.classifications
    # An example itself is nearest to its own label.
    assert (first.prediction, second.prediction) == ("blue", "green")
    assert first.predictions == ["blue"]
    assert first.labels.keys() == {"red", "blue", "green"}
    shares = [label.confidence for label in first.labels.values()]
    assert sum(share for share in shares if share is not None) == pytest.approx(1, abs=1e-6)
    rows = embedder.llm.embed(["x y z", *(text for _, text in examples)], output="numpy", prompt="", use_tqdm=False)
    centres = np.stack([rows[1:3].mean(axis=0), rows[3], rows[4]])
    logits = 20 * rows[0] @ (centres / np.linalg.norm(centres, axis=1, keepdims=True)).T
    expected = np.exp(logits) / np.exp(logits).sum()
    assert shares == pytest.approx(expected.tolist(), abs=1e-5)
    assert "1 labels" in few.value.body["message"]


def test_labels_by_the_model(classifier: Kind) -> None:
    with cohere.Client("any", base_url=classifier.server.url) as client:
        answer = client.classify(model="classifier", inputs=TEXTS)
        with pytest.raises(ApiError) as unable:
            client.classify(
                model="classifier", inputs=["a"], examples=[cohere.ClassifyExample(text="a", label="red")] * 2
            )
    for found, expected in zip(answer.classifications, classifier.llm.classify(TEXTS, use_tqdm=False), strict=True):
        assert found.prediction == expected.outputs.label
        assert found.confidence == pytest.approx(max(expected.outputs.probs), abs=2e-6)
        assert found.classification_type == "single-label"
    assert "labels of its own" in unable.value.body["message"]


def test_several_labels_of_one_text(cross_encoder: Kind) -> None:
    (found,) = cross_encoder.post("/v1/classify", inputs=["a"]).json()["classifications"]
    assert found["classification_type"] == "multi-label"
    assert len(found["predictions"]) == (found["confidence"] >= 0.5)
