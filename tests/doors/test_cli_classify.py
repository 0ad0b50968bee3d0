"""`cenote classify` against the offline API: labels, pairs, forms of output, going on, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cenote import LLM, Pair
from cenote.cli.sinks import JsonlSink

from .conftest import LABELS, Cenote

if TYPE_CHECKING:
    from support.fixtures import TinySentence

TEXTS = ["the cat sat", "on a warm mat", "", "and slept"]


@pytest.fixture(scope="module")
def llm(classifier: str) -> Iterator[LLM]:
    with LLM(classifier) as opened:
        yield opened


def probabilities(llm: LLM, prompts: Any, **options: Any) -> list[list[float]]:
    return [output.outputs.probs for output in llm.classify(prompts, use_tqdm=False, **options)]


def assert_says(lines: str, expected_NL: list[list[float]]) -> list[dict[str, Any]]:
    """Each line names the labels from the likeliest on, with the values of its row."""
    found = [json.loads(line) for line in lines.splitlines()]
    assert len(found) == len(expected_NL)
    for line, row_L in zip(found, expected_NL, strict=True):
        values = [line["probs"][label] for label in LABELS if label in line["probs"]]
        kept = [value for label, value in zip(LABELS, row_L, strict=True) if label in line["probs"]]
        np.testing.assert_allclose(values, kept, atol=2e-6)
        assert list(line["probs"].values()) == sorted(values, reverse=True)
        assert line["label"] == LABELS[int(np.argmax(row_L))]
        assert line["score"] == max(values)
    return found


def test_arguments_become_labels(cenote: Cenote, classifier: str, llm: LLM) -> None:
    result = cenote("classify", "--model", classifier, *TEXTS)
    lines = assert_says(result.stdout, probabilities(llm, TEXTS))
    assert list(lines[0]) == ["index", "label", "score", "probs", "tokens", "truncated"]
    assert [line["index"] for line in lines] == [0, 1, 2, 3]
    assert [set(line["probs"]) for line in lines] == [set(LABELS)] * 4
    assert result.stderr.startswith("4 texts, ")


def test_texts_that_are_too_long_are_cut_or_fail_alone(cenote: Cenote, classifier: str, llm: LLM) -> None:
    long = "word " * 100
    command = ("classify", "--model", classifier, "--errors", "skip")
    lines = [json.loads(line) for line in cenote(*command, "short", long).stdout.splitlines()]
    assert [(line["tokens"], line["truncated"]) for line in lines][1] == (70, True)
    result = cenote(*command, "--on-long", "refuse", long, TEXTS[0])
    assert [line["index"] for line in assert_says(result.stdout, probabilities(llm, TEXTS[0]))] == [1]
    none = cenote(*command, "--on-long", "refuse", long)
    assert none.stdout == ""
    assert "1 failed" in none.stderr


def test_raw_values_and_the_likeliest_labels(cenote: Cenote, classifier: str, llm: LLM) -> None:
    result = cenote("classify", "--model", classifier, "--raw", "--top-k", "2", *TEXTS)
    lines = assert_says(result.stdout, probabilities(llm, TEXTS, use_activation=False))
    assert [len(line["probs"]) for line in lines] == [2] * 4
    assert min(min(line["probs"].values()) for line in lines) < 0


def test_two_fields_are_read_as_a_pair(cenote: Cenote, classifier: str, llm: LLM) -> None:
    records = "".join(json.dumps({"a": text, "b": "a dog", "id": text}) + "\n" for text in TEXTS)
    result = cenote("classify", "--model", classifier, "--field", "a", "--field-pair", "b", stdin=records)
    pairs = assert_says(result.stdout, probabilities(llm, [Pair(text, "a dog") for text in TEXTS]))
    assert [line["id"] for line in pairs] == TEXTS
    lacking = cenote("classify", "--model", classifier, "--field-pair", "c", stdin='{"text": "a"}\n', expect=2)
    assert "no field 'c'" in lacking.stderr
    plain = cenote("classify", "--field-pair", "c", "--lines", "text", stdin="a\n", expect=2)
    assert "no fields to pair" in plain.stderr


def test_parquet_columns_are_read_as_a_pair(cenote: Cenote, classifier: str, llm: LLM, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"b": ["a dog"] * 4, "text": TEXTS}), tmp_path / "pairs.parquet")
    result = cenote("classify", "--model", classifier, "--input", "pairs.parquet", "--field-pair", "b")
    assert_says(result.stdout, probabilities(llm, [Pair(text, "a dog") for text in TEXTS]))


def test_a_npy_has_a_column_per_label(cenote: Cenote, classifier: str, llm: LLM, tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text('"the cat sat"\nnonsense\n"and slept"\n')
    command = ("classify", "--model", classifier, "--input", "docs.jsonl", "--output", "rows.npy")
    assert "Line 2 of docs.jsonl" in cenote(*command, expect=2).stderr
    cenote(*command, "--errors", "skip")
    rows_NL = np.load(tmp_path / "rows.npy")
    assert np.isnan(rows_NL[1]).all()
    np.testing.assert_allclose(rows_NL[[0, 2]], probabilities(llm, [TEXTS[0], TEXTS[3]]), atol=2e-6)


def test_an_interrupted_job_goes_on_with_the_same_options_alone(
    cenote: Cenote, classifier: str, llm: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    command = ("classify", "--model", classifier, "--input", "lines.txt", "--output", "labels.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr(JsonlSink, "write", _interrupt)
        assert "the same command goes on" in cenote(*command, expect=130).stderr
    assert "options is not what it was" in cenote(*command, "--raw", expect=2).stderr
    assert "pooler_config is not what it was" in cenote(*command, "--pooler-config.logit-mean=1", expect=2).stderr
    assert "options is not what it was" in cenote("embed", *command[1:], expect=2).stderr
    cenote(*command)
    assert_says((tmp_path / "labels.jsonl").read_text(), probabilities(llm, TEXTS))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_table_shows_the_likeliest_labels_with_bars(cenote: Cenote, classifier: str, llm: LLM) -> None:
    result = cenote("classify", "--model", classifier, "--format", "table", "--top-k", "1", "[b]cat[/b]", COLUMNS="120")
    ((likeliest, label),) = [max(zip(row, LABELS, strict=True)) for row in probabilities(llm, "[b]cat[/b]")]
    for part in ("[b]cat[/b]", label, f"{likeliest:.4f}", "0 to 1"):
        assert part in result.stdout
    assert result.stdout.count("█") == int(24 * likeliest)
    assert not [other for other in LABELS if other != label and other in result.stdout]
    every = cenote("classify", "--model", classifier, "--format", "table", *TEXTS, COLUMNS="120")
    assert [every.stdout.count(label) for label in LABELS] == [4] * 3


def test_inspect_names_the_labels_and_what_is_done_to_logits(cenote: Cenote, classifier: str) -> None:
    found = json.loads(cenote("inspect", "--json", classifier, "--pooler-config.logit-mean", "2").stdout)
    assert found["classifier"]["value"] == "of sequences"
    assert found["labels"] == {"value": list(LABELS), "source": "config.json: id2label"}
    assert found["activation"]["value"] == "softmax"
    assert found["logit_mean"] == {"value": 2.0, "source": "user"}
    assert [name for name, entry in found.items() if not entry["source"]] == []


def test_a_model_without_a_classifier_is_refused(cenote: Cenote, tiny_sentence: TinySentence, tmp_path: Path) -> None:
    model = str(tiny_sentence())
    refused = cenote("classify", "--model", model, "a", "--output", "labels.jsonl", expect=2)
    assert "is no classifier of texts. It serves embed" in refused.stderr
    assert list(tmp_path.iterdir()) == []
