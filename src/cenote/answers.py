"""Finished rows as the objects of the offline API."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .errors import BadInput, MissingExtra
from .outputs import (
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    HybridOutput,
    HybridRequestOutput,
    PoolingOutput,
    PoolingRequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
    SparseEmbeddingOutput,
    SparseEmbeddingRequestOutput,
)
from .sparse import Sparse, parted
from .tasks import hybrid
from .types import FloatArray, IntArray, Outcome
from .uses.score import Plan, Scores, tokens_of

if TYPE_CHECKING:
    from .recipe import Recipe
    from .tokenizer import Tokenizer

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
                num_pieces=sum(outcome.encoded[position].num_pieces for position in both),
            )
        )
    return outputs


def pooling_outputs(outcome: Outcome, sparse_size: int | None = None) -> list[PoolingRequestOutput]:
    """One object per input, its data a torch tensor: `[E]`, or `[T, E]` for tasks with a row per token.

    Args:
        sparse_size: For the task `sparse` how many dimensions there are: each tensor is sparse, and has one axis.
    """
    import torch

    def tensor(row: FloatArray) -> torch.Tensor:
        if sparse_size is None:
            return torch.from_numpy(row)
        indices, values = parted(row)
        at = torch.from_numpy(indices.astype(np.int64))[None]
        return torch.sparse_coo_tensor(at, torch.from_numpy(values), (sparse_size,), check_invariants=True)

    return [
        PoolingRequestOutput(str(next(_ids)), PoolingOutput(tensor(row)), **_about(outcome, index))
        for index, row in enumerate(outcome.rows)
    ]


def sparse_answer(outcome: Outcome, recipe: Recipe, tokenizer: Tokenizer, output: str) -> Any:
    """Rows of the task `sparse`: one object per input, or one array where `output` is `csr`."""
    sparse = recipe.sparse
    assert sparse is not None
    if output == "csr":
        return _as_csr(outcome, sparse.size)
    return [
        SparseEmbeddingRequestOutput(
            str(next(_ids)),
            SparseEmbeddingOutput(vector.indices.tolist(), vector.values.tolist(), vector.tokens, sparse.size),
            **_about(outcome, index),
        )
        for index, vector in enumerate(sparse_vectors(outcome.rows, sparse, tokenizer))
    ]


def hybrid_outputs(outcome: Outcome, recipe: Recipe, tokenizer: Tokenizer) -> list[HybridRequestOutput]:
    """Rows of the composite task `hybrid`: one object per input."""
    assert recipe.sparse is not None
    apart = [hybrid.parts(row) for row in outcome.rows]
    vectors = sparse_vectors([part.pairs_n2 for part in apart], recipe.sparse, tokenizer)
    outputs = []
    for index, (part, sparse) in enumerate(zip(apart, vectors, strict=True)):
        words = SparseEmbeddingOutput(
            sparse.indices.tolist(), sparse.values.tolist(), sparse.tokens, recipe.sparse.size
        )
        found = HybridOutput(part.vector_E, words, part.tokens_ND)
        outputs.append(HybridRequestOutput(str(next(_ids)), found, **_about(outcome, index)))
    return outputs


class SparseVector(NamedTuple):
    """One row of the task `sparse`: ascending dimensions, their values, and their words where they are words."""

    indices: IntArray
    values: FloatArray
    tokens: list[str] | None


def sparse_vectors(rows_n2: Iterable[FloatArray], sparse: Sparse, tokenizer: Tokenizer) -> list[SparseVector]:
    """One for each row of the task `sparse`."""
    rows = [parted(row) for row in rows_n2]
    return [SparseVector(at, values, tokenizer.words(at.tolist()) if sparse.of_words else None) for at, values in rows]


def check_output(output: str, forms: Sequence[str] = ("objects", "numpy")) -> None:
    """Raise `BadInput` where `output` is none of the forms."""
    if output not in forms:
        raise BadInput(f"output={output!r}.", allowed=f"It is {' or '.join(forms)}.", param="output")


def _as_csr(outcome: Outcome, size: int) -> Any:
    """Rows of the task `sparse` as one `scipy.sparse.csr_array`, float32 `[N, size]`.

    Raises:
        MissingExtra: scipy is not installed.
    """
    try:
        from scipy.sparse import csr_array
    except ImportError as error:
        raise MissingExtra("output='csr' needs scipy.", fix="Install cenote[sparse].", param="output") from error
    rows = [parted(row) for row in outcome.rows]
    starts = np.cumsum([0, *(len(indices) for indices, _ in rows)])
    indices = np.concatenate([indices for indices, _ in rows])
    values = np.concatenate([values for _, values in rows])
    return csr_array((values, indices, starts), shape=(len(rows), size))


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
        "num_pieces": item.num_pieces,
    }


def _lists(outcome: Outcome) -> list[list[float]]:
    rows = outcome.rows
    return rows.tolist() if isinstance(rows, np.ndarray) else [row.tolist() for row in rows]
