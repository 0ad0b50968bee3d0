"""Answers of `LLM.encode` as those of the other methods."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cenote.errors import BadInput, NotFinite
from cenote.outputs import (
    ClassificationRequestOutput,
    EmbeddingRequestOutput,
    PoolingOutput,
    PoolingRequestOutput,
    ScoringRequestOutput,
)


def answer(data: Any, **more: Any) -> PoolingRequestOutput:
    return PoolingRequestOutput("7", PoolingOutput(torch.tensor(data)), [1, 2], 0, True, **more)


def test_an_answer_becomes_another_with_all_that_is_known_of_it() -> None:
    base = answer([0.25, 0.75], num_cut_tokens=3)
    embedded, classified = EmbeddingRequestOutput.from_base(base), ClassificationRequestOutput.from_base(base)
    assert embedded.outputs.embedding == classified.outputs.probs == [0.25, 0.75]
    assert (embedded.request_id, embedded.prompt_token_ids, embedded.num_cut_tokens) == ("7", [1, 2], 3)
    scored = ScoringRequestOutput.from_base(answer([[0.5]]))
    assert repr(scored) == (
        "ScoringRequestOutput(request_id='7', outputs=ScoringOutput(score=0.5), prompt_token_ids=[1, 2], "
        "num_cached_tokens=0, finished=True)"
    )


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (EmbeddingRequestOutput, [[1.0]], "pooled_data should be a 1-D embedding vector"),
        (ClassificationRequestOutput, [[1.0]], "pooled_data should be a 1-D probability vector"),
        (ScoringRequestOutput, [1.0, 2.0], "pooled_data should be a scalar score"),
    ],
)
def test_data_of_another_shape_is_refused(kind: Any, data: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        kind.from_base(answer(data))


def test_an_answer_with_an_error_has_empty_outputs() -> None:
    base = answer([[0.0]], error=NotFinite("no"))
    assert EmbeddingRequestOutput.from_base(base).outputs.embedding == []
    assert ClassificationRequestOutput.from_base(base).outputs.probs == []
    scored = ScoringRequestOutput.from_base(base)
    assert scored.outputs.score == 0.0
    assert repr(scored).endswith("finished=True, error=NotFinite('no'))")


def test_data_is_equal_where_shape_and_numbers_are() -> None:
    assert answer([1.0, 2.0]).outputs == answer([1.0, 2.0]).outputs
    assert answer([1.0, 2.0]).outputs != answer([1.0, 3.0]).outputs
    assert answer([1.0, 2.0]).outputs != answer([1.0, 2.0, 3.0]).outputs
