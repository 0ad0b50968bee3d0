"""The main job: its texts, and what counts as the same vectors."""

from __future__ import annotations

import numpy as np
import pytest

from bench import job


def test_texts_are_distinct_and_the_same_every_time() -> None:
    texts = job.texts(500)
    assert texts == job.texts(500)
    assert len(set(texts)) == 500
    assert min(map(len, texts)) > 20


def test_more_texts_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="were asked for"):
        job.texts(10**6)


def test_difference_is_that_of_the_worst_row() -> None:
    reference = job.Road("a", 1.0, np.array([[1.0, 0.5], [100.0, 0.0]], np.float32))
    other = job.Road("b", 1.0, np.array([[1.0, 0.75], [99.0, 0.0]], np.float32))
    assert job.difference(other, reference) == pytest.approx(0.25)
