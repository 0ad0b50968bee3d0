"""Fewer bits against sentence-transformers, bit for bit, and where ranges come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers.util import quantize_embeddings

from cenote.errors import ConfigError
from cenote.precisions import PRECISIONS, Calibration, quantize, ranges_of

RNG = np.random.default_rng(3)
ROWS = RNG.normal(size=(9, 21)).astype(np.float32)
CALIBRATING = RNG.normal(size=(40, 21)).astype(np.float32)
CALIBRATING[:, 4] = 0.5  # a number that never changes has a range of no width


@pytest.mark.parametrize("precision", PRECISIONS)
def test_codes_are_those_of_sentence_transformers(precision: str) -> None:
    given = {"calibration_embeddings": CALIBRATING} if "int8" in precision else {}
    expected = quantize_embeddings(ROWS, precision, **given)  # type: ignore[arg-type]
    found = quantize(ROWS, precision, ranges_of(CALIBRATING))
    assert found.dtype == expected.dtype  # type: ignore[union-attr]
    np.testing.assert_array_equal(found, expected)


def test_a_bit_is_set_above_zero_only() -> None:
    rows = np.array([[0.0, -0.0, 1e-30, -1e-30, 2.0, -2.0, 0.0, 1.0]], np.float32)
    assert quantize(rows, "ubinary").tolist() == [[0b00101001]]
    assert quantize(rows, "binary").tolist() == [[0b00101001 - 128]]


def test_ranges_survive_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "ranges.safetensors"
    Calibration(ranges_of(CALIBRATING), "some/model", 40).save(path)
    loaded = Calibration.load(str(path))
    assert (loaded.model, loaded.num_texts, loaded.size) == ("some/model", 40, 21)
    np.testing.assert_array_equal(loaded.ranges, ranges_of(CALIBRATING))


@pytest.mark.parametrize(
    "ranges", [np.zeros((3, 4)), np.zeros(4), np.array([[1.0], [0.0]]), np.array([[np.nan], [1.0]])]
)
def test_ranges_that_are_none_are_refused(tmp_path: Path, ranges: np.ndarray) -> None:
    path = tmp_path / "ranges.safetensors"
    Calibration(ranges.astype(np.float32), "", 1).save(path)
    with pytest.raises(ConfigError, match="ranges of shape"):
        Calibration.load(str(path))


@pytest.mark.parametrize("content", [None, b"", b"no tensors"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ranges.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="cenote calibrate"):
        Calibration.load(str(path))
