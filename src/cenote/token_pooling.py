"""Rows of similar tokens to their mean, so that a document takes less room. No torch.

Source: Clavié, Chaffin and Adams 2024, Reducing the Footprint of Multi-Vector Retrieval (arXiv 2409.14683).
"""

from __future__ import annotations

import importlib.util

import numpy as np

from .errors import MissingExtra
from .modules.late_interaction import TokenPooling
from .types import FloatArray

_NORM_EPS = np.float32(1e-12)


def check_installed() -> None:
    """Raise `MissingExtra` where rows cannot be clustered."""
    if importlib.util.find_spec("scipy") is None:
        raise MissingExtra(
            "Rows of tokens are pooled by clusters, which scipy finds.",
            fix="`pip install 'cenote[token-pooling]'`.",
        )


def pooled(rows: FloatArray, pooling: TokenPooling) -> FloatArray:
    """`[n, E]` to fewer rows: those that are protected, then the mean of each cluster.

    Clusters are Ward's on the cosine distances of rows of unit length, as sentence-transformers makes them; so is the
    order of their means.
    """
    kept, rest = rows[: pooling.num_protected], rows[pooling.num_protected :]
    num_clusters = max(int(len(rest) // pooling.factor), 1)
    if num_clusters < len(rest):
        clusters = _clusters(rest, num_clusters)
        sums = np.zeros((clusters.max() + 1, rows.shape[1]), np.float32)
        np.add.at(sums, clusters, rest)
        rows = np.concatenate([kept, sums / np.bincount(clusters)[:, None].astype(np.float32)])
    if pooling.normalize:
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _NORM_EPS)
    return np.asarray(rows, np.float32)


def _clusters(rows: FloatArray, most: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Number of the cluster of each row, from 0 and without gaps; at most `most` clusters."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    distances = np.clip(1 - rows @ rows.T, 0, 2)
    tree = linkage(squareform(distances, checks=False), method="ward")
    _, clusters = np.unique(fcluster(tree, most, criterion="maxclust"), return_inverse=True)
    return clusters
