"""Arrays of texts, such as a column of a table, are lists of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cenote import LLM
from cenote.errors import BadInput

TEXTS = ["A cenote is a pit.", "Rain dissolves limestone.", "The train was late."]


@pytest.mark.parametrize("dtype", [str, object])
def test_arrays_are_scored_and_ranked(cross_encoder: str, dtype: type) -> None:
    array: np.ndarray[Any, Any] = np.array(TEXTS, dtype)
    with LLM(cross_encoder) as llm:
        expected = [out.outputs.score for out in llm.score("a pit", TEXTS, use_tqdm=False)]
        found = [out.outputs.score for out in llm.score("a pit", array, use_tqdm=False)]
        assert found == pytest.approx(expected, abs=1e-5)
        ranked = llm.rerank("a pit", array, use_tqdm=False)  # type: ignore[arg-type]
        assert [TEXTS[result.index] for result in ranked] == [result.document for result in ranked]
        assert {type(result.document) for result in ranked} == {str}
        with pytest.raises(BadInput, match="Element 0 of data_2 is of type list"):
            llm.score("a pit", array[None], use_tqdm=False)
