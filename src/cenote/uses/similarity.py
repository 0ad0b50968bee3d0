"""How close two vectors, or two matrices of token vectors, are. All in float32, larger is closer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np

from ..types import FloatArray

_NO_TOKENS: Final = -1e9

Similarity: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]
"""Rows `[n, E]` and rows `[n, E]` to `[n]`, pair by pair."""


def dot(a: FloatArray, b: FloatArray) -> FloatArray:
    """Dot product."""
    return np.asarray(np.einsum("ne,ne->n", a, b), np.float32)


def cosine(a: FloatArray, b: FloatArray) -> FloatArray:
    """Cosine of the angle; 0 where a vector is zero."""
    return dot(unit(a), unit(b))


def euclidean(a: FloatArray, b: FloatArray) -> FloatArray:
    """Negative Euclidean distance."""
    return -np.asarray(np.linalg.norm(a - b, axis=1), np.float32)


def manhattan(a: FloatArray, b: FloatArray) -> FloatArray:
    """Negative sum of absolute differences."""
    return -np.asarray(np.abs(a - b).sum(axis=1), np.float32)


SIMILARITIES: Final[Mapping[str, Similarity]] = {
    "cosine": cosine,
    "dot": dot,
    "euclidean": euclidean,
    "manhattan": manhattan,
}
"""By the names that `similarity_fn_name` of a checkpoint uses."""


def max_sim(query: FloatArray, document: FloatArray) -> float:
    """Sum over the query's tokens `[q, E]` of the largest dot product with a token of the document `[d, E]`.

    A document without tokens, such as one of punctuation alone where that is left out, is worse than all others.

    Source: Khattab and Zaharia 2020, ColBERT (arXiv 2004.12832).
    """
    if len(query) == 0 or len(document) == 0:
        return _NO_TOKENS if len(query) else 0.0
    # One document at a time: identical ones get identical scores, and memory stays that of one.
    return float((query @ document.T).max(axis=1).sum())


def mean_max_sim(query: FloatArray, document: FloatArray) -> float:
    """`max_sim` over the number of the query's tokens, so that scores of short and long queries compare."""
    return max_sim(query, document) / max(len(query), 1)


LATE_SIMILARITIES: Final[Mapping[str, Callable[[FloatArray, FloatArray], float]]] = {
    "maxsim": max_sim,
    "meanmaxsim": mean_max_sim,
}
"""Of matrices of token vectors, by the names that `similarity_fn_name` of a late-interaction checkpoint uses."""


def of_sparse(a_n2: FloatArray, b_m2: FloatArray, name: str) -> float:
    """One of `SIMILARITIES` of two sparse rows, pairs of dimension and value; all other dimensions are zero."""
    dimensions = np.union1d(a_n2[:, 0], b_m2[:, 0])
    dense = np.zeros((2, len(dimensions)), np.float32)
    for row, pairs_n2 in zip(dense, (a_n2, b_m2), strict=True):
        row[np.searchsorted(dimensions, pairs_n2[:, 0])] = pairs_n2[:, 1]
    return float(SIMILARITIES[name](dense[:1], dense[1:])[0])


def unit(rows: FloatArray) -> FloatArray:
    """Rows at unit length; a zero one stays."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(norms, np.float32(1e-12)), np.float32)
