"""`cenote calibrate`: what it measures, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote import LLM
from cenote.errors import ConfigError
from cenote.precisions import Calibration, ranges_of
from support.fixtures import TinySentence
from support.texts import short_texts

from .conftest import Cenote

TEXTS = [text.replace("\n", " ") for text in short_texts(12)]


@pytest.fixture(scope="module")
def folder(tiny_sentence: TinySentence) -> Path:
    return tiny_sentence(normalize=True, prompts={"query": "query: "}, matryoshka_dimensions=[8, 16])


def test_ranges_of_lines_and_of_fields(cenote: Cenote, folder: Path, tmp_path: Path) -> None:
    lines, records, output = tmp_path / "texts.txt", tmp_path / "texts.jsonl", tmp_path / "ranges.safetensors"
    lines.write_text("\n".join([*TEXTS, "word " * 400]) + "\n", encoding="utf-8")
    records.write_text("".join(json.dumps({"body": text}) + "\n" for text in TEXTS), encoding="utf-8")
    with LLM(str(folder), device="cpu") as llm:
        texts = [*TEXTS, "word " * 60]
        rows = llm.embed(texts, output="numpy", use_tqdm=False, tokenization_kwargs={"truncate_prompt_tokens": -1})
        short = llm.embed(TEXTS, output="numpy", use_tqdm=False, dimensions=8, prompt_name="query")
    result = cenote("calibrate", str(folder), str(lines), "--output", str(output))
    found = Calibration.load(str(output))
    assert "13 texts" in result.stderr
    assert found.num_texts == 13
    assert found.ranges.shape == (2, rows.shape[1])
    np.testing.assert_allclose(found.ranges[:, :8].min(), rows[:, :8].min(), atol=2e-6)
    options = ("--field", "body", "--dimensions", "8", "--prompt-name", "query", "--quiet")
    assert cenote("calibrate", str(folder), str(records), "--output", str(output), *options).stderr == ""
    expected = np.stack([short.min(axis=0), short.max(axis=0)])
    np.testing.assert_allclose(Calibration.load(str(output)).ranges, expected, atol=2e-6)


def test_what_is_measured_is_what_is_used(cenote: Cenote, folder: Path, tmp_path: Path) -> None:
    lines, output = tmp_path / "texts.txt", tmp_path / "ranges.safetensors"
    lines.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    cenote("calibrate", str(folder), str(lines), "--output", str(output))
    with LLM(str(folder), device="cpu", calibration=str(output)) as llm:
        codes = llm.embed(TEXTS, output="numpy", precision="uint8", use_tqdm=False)
    # The texts themselves reach both ends of every range; a rounding may take the last step.
    assert codes.min(axis=0).max() <= 1
    assert codes.max(axis=0).min() >= 254


@pytest.mark.parametrize("asked", [{"normalize": False, "dimensions": 16}, {"pooling": "max", "prompt": "query: "}])
def test_another_form_has_ranges_of_its_own(
    cenote: Cenote, folder: Path, tmp_path: Path, asked: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    lines, output = tmp_path / "texts.txt", tmp_path / "ranges.safetensors"
    lines.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    flags = ["--no-normalize" if value is False else f"--{name}={value}" for name, value in asked.items()]
    cenote("calibrate", str(folder), str(lines), "--output", str(output), *flags)
    with LLM(str(folder), device="cpu", calibration=str(output)) as llm:
        rows = llm.embed(TEXTS, output="numpy", use_tqdm=False, **asked)
        np.testing.assert_allclose(Calibration.load(str(output)).ranges, ranges_of(rows), atol=2e-6)
        codes = llm.embed(TEXTS, output="numpy", precision="uint8", use_tqdm=False, **asked)
        assert codes.min(axis=0).max() <= 1
        assert codes.max(axis=0).min() >= 254
        assert "sample texts" not in caplog.text
        # Vectors as the checkpoint says are others, and take the ranges of the sample.
        llm.embed(TEXTS, output="numpy", precision="uint8", use_tqdm=False)
    assert "sample texts" in caplog.text


def test_an_adapter_and_a_type_that_are_not_there_are_refused(cenote: Cenote, folder: Path, tmp_path: Path) -> None:
    lines = tmp_path / "texts.txt"
    lines.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    command = ("calibrate", str(folder), str(lines), "--output", "x.safetensors")
    assert "has no adapter named 'retrieval'" in cenote(*command, "--adapter", "retrieval", expect=2).stderr
    assert "pooling='median'" in cenote(*command, "--pooling", "median", expect=2).stderr


@pytest.mark.parametrize(("content", "part"), [("one\n", "two or more"), ("", "There is no text")])
def test_refusals(cenote: Cenote, folder: Path, tmp_path: Path, content: str, part: str) -> None:
    lines, output = tmp_path / "texts.txt", tmp_path / "ranges.safetensors"
    lines.write_text(content, encoding="utf-8")
    result = cenote("calibrate", str(folder), str(lines), "--output", str(output), expect=2)
    assert part in result.stderr
    assert not output.exists()


def test_an_output_that_cannot_be_is_refused_before_anything_is_read(
    cenote: Cenote, folder: Path, tmp_path: Path
) -> None:
    lines = tmp_path / "texts.txt"
    lines.write_text("one\ntwo\n", encoding="utf-8")
    for output, part in ((tmp_path / "nowhere" / "x", "There is no folder"), (lines, "is an input and would be")):
        assert part in cenote("calibrate", str(folder), str(lines), "--output", str(output), expect=2).stderr
    assert lines.read_text(encoding="utf-8") == "one\ntwo\n"


def test_what_is_no_calibration_says_how_one_is_made(cenote: Cenote, folder: Path, tmp_path: Path) -> None:
    lines, output = tmp_path / "texts.txt", tmp_path / "ranges.safetensors"
    lines.write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="Write one with `cenote calibrate") as raised:
        Calibration.load(str(lines))
    (command,) = re.findall("`cenote (.*)`", str(raised.value))
    given = {"MODEL": str(folder), "TEXTS": str(lines), "FILE": str(output)}
    cenote(*(given.get(word, word) for word in command.split()))
    assert Calibration.load(str(output)).num_texts == 2
