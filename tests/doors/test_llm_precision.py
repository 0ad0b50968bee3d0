"""`LLM.embed(precision=...)`: codes of sentence-transformers, with the user's ranges or those of the sample."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers.util import quantize_embeddings

from cenote import LLM, AsyncLLM, PoolingParams
from cenote.calibration import sample_texts
from cenote.errors import BadInput
from cenote.precisions import PRECISIONS, Calibration, Precision, ranges_of
from support.fixtures import TinySentence
from support.texts import short_texts

TEXTS = short_texts(7)


@pytest.fixture(scope="module")
def folder(tiny_sentence: TinySentence) -> Path:
    return tiny_sentence(normalize=True, prompts={"query": "query: "}, matryoshka_dimensions=[8, 16])


@pytest.fixture(scope="module")
def calibration(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ranges of other texts than those of the tests."""
    path = tmp_path_factory.mktemp("ranges") / "ranges.safetensors"
    with LLM(str(folder), device="cpu") as llm:
        rows = llm.embed(short_texts(40)[20:], output="numpy", use_tqdm=False)
    Calibration(ranges_of(rows), "any", 20).save(path)
    return path


@pytest.mark.parametrize("precision", PRECISIONS)
def test_with_a_calibration(folder: Path, calibration: Path, precision: Precision) -> None:
    with LLM(str(folder), device="cpu", calibration=str(calibration)) as llm:
        rows = llm.embed(TEXTS, output="numpy", use_tqdm=False)
        found = llm.embed(TEXTS, output="numpy", precision=precision, use_tqdm=False)
        objects = llm.embed(TEXTS, precision=precision, use_tqdm=False)
        stream = list(llm.embed_iter(iter(TEXTS), output="numpy", precision=precision))
    expected = quantize_embeddings(rows, precision, ranges=Calibration.load(str(calibration)).ranges)
    assert isinstance(expected, np.ndarray)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
    assert [one.outputs.embedding for one in objects] == expected.tolist()
    np.testing.assert_array_equal(np.stack(stream), expected)


@pytest.mark.parametrize("form", [{}, {"dimensions": 8}, {"normalize": False}, {"pooling": "max"}])
async def test_without_one_the_sample_gives_the_ranges(
    folder: Path, caplog: pytest.LogCaptureFixture, form: dict[str, object]
) -> None:
    with LLM(str(folder), device="cpu") as llm:
        rows = llm.embed(TEXTS, output="numpy", use_tqdm=False, **form)
        sample = llm.embed(list(sample_texts()), output="numpy", use_tqdm=False, prompt="", **CUT, **form)
    with caplog.at_level(logging.WARNING):
        async with AsyncLLM(str(folder), device="cpu") as llm:
            found = await llm.embed(TEXTS, output="numpy", precision="uint8", **form)
            again = await llm.embed(TEXTS, output="numpy", precision="uint8", **form)
    expected = quantize_embeddings(rows, "uint8", ranges=ranges_of(sample))
    assert isinstance(expected, np.ndarray)
    # A number on the border of two steps may fall to either side of it.
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1
    assert (found == expected).mean() > 0.97
    np.testing.assert_array_equal(found, again)
    assert caplog.text.count("sample texts") == 1


def test_a_calibration_is_not_for_another_pooling(folder: Path, calibration: Path) -> None:
    with LLM(str(folder), device="cpu", calibration=str(calibration)) as llm, LLM(str(folder), device="cpu") as plain:
        found, expected = (
            model.embed(TEXTS, output="numpy", precision="int8", pooling="max", use_tqdm=False)
            for model in (llm, plain)
        )
    np.testing.assert_array_equal(found, expected)


CUT = {"tokenization_kwargs": {"truncate_prompt_tokens": -1}}


def test_refusals(folder: Path) -> None:
    with LLM(str(folder), device="cpu") as llm:
        with pytest.raises(BadInput, match="float32, int8, uint8, binary, ubinary"):
            llm.embed("a", precision="int4")
        several = [PoolingParams(dimensions=8), PoolingParams(dimensions=16)]
        with pytest.raises(BadInput, match="2 forms of vectors"):
            llm.embed(["a", "b"], pooling_params=several, precision="int8", use_tqdm=False)
