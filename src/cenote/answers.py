"""Finished rows as the objects of the offline API."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from .errors import BadInput
from .outputs import (
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    PoolingOutput,
    PoolingRequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from .types import FloatArray, Outcome
from .uses.score import Plan, Scores, tokens_of

_ids = itertools.count()


def embedding_outputs(outcome: Outcome) -> list[EmbeddingRequestOutput]:
    """One object per input, as the reference has them."""
    return [
        EmbeddingRequestOutput(str(next(_ids)), EmbeddingOutput(row), **_about(outcome, index))
        for index, row in enumerate(_lists(outcome))
    ]


def classification_outputs(outcome: Outcome, labels: tuple[str, ...]) -> list[ClassificationRequestOutput]:
    """One object per input; `labels` name the values."""
    return [
        ClassificationRequestOutput(str(next(_ids)), ClassificationOutput(row, labels), **_about(outcome, index))
        for index, row in enumerate(_lists(outcome))
    ]


def scoring_outputs(planned: Plan, outcome: Outcome, scores: Scores, pad_id: int | None) -> list[ScoringRequestOutput]:
    """One object per pair; its id names both inputs where they were read apart."""
    outputs = []
    ids = [str(next(_ids)) for _ in range(planned.num_inputs)]
    for pair, score in enumerate(scores.scores.tolist()):
        both = sorted({planned.first[pair], planned.second[pair]})
        outputs.append(
            ScoringRequestOutput(
                "_".join(ids[position] for position in both),
                ScoringOutput(score),
                tokens_of(planned, outcome, pair, pad_id),
                num_cached_tokens=sum(outcome.num_cached_tokens(position) for position in both),
                num_cut_tokens=sum(outcome.encoded[position].num_cut for position in both),
            )
        )
    return outputs


def pooling_outputs(outcome: Outcome) -> list[PoolingRequestOutput]:
    """One object per input, its data a torch tensor: `[E]`, or `[T, E]` for tasks with a row per token."""
    import torch

    return [
        PoolingRequestOutput(str(next(_ids)), PoolingOutput(torch.from_numpy(row)), **_about(outcome, index))
        for index, row in enumerate(outcome.rows)
    ]


def as_array(outcome: Outcome) -> FloatArray:
    """Rows as one array `[N, E]`.

    Raises:
        BadInput: They are not of one size.
    """
    if isinstance(outcome.rows, np.ndarray):
        return outcome.rows
    sizes = sorted({len(row) for row in outcome.rows})
    if len(sizes) > 1:
        fix = "Ask for the same dimensions for all prompts, or for output='objects'."
        raise BadInput(f"The vectors have sizes {sizes}, which make no array.", fix=fix, param="output")
    return np.stack(outcome.rows)


def _about(outcome: Outcome, index: int) -> dict[str, Any]:
    """What is said about an input beside its row."""
    item = outcome.encoded[index]
    return {
        "prompt_token_ids": item.ids.tolist(),
        "num_cached_tokens": outcome.num_cached_tokens(index),
        "num_cut_tokens": item.num_cut,
    }


def _lists(outcome: Outcome) -> list[list[float]]:
    rows = outcome.rows
    return rows.tolist() if isinstance(rows, np.ndarray) else [row.tolist() for row in rows]
