"""Labels by a few examples of each: the class whose examples are nearest on average.

Source: Snell, Swersky and Zemel 2017, Prototypical Networks for Few-shot Learning (arXiv 1703.05175), with the cosine
for the distance, scaled as sentence embedders are trained (20 in sentence-transformers' MultipleNegativesRankingLoss).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..types import FloatArray
from .similarity import unit

SCALE: Final = np.float32(20)


def confidences(rows: FloatArray, examples: FloatArray, labels: Sequence[int], num_labels: int) -> FloatArray:
    """How near each row is to each label's examples, as shares that sum to 1; ranks, and is no calibrated probability.

    Args:
        rows: Vectors to classify `[N, E]`.
        examples: Vectors of examples `[M, E]`.
        labels: Label of each example, below `num_labels`; each has one or more.

    Returns:
        `[N, num_labels]`.
    """
    which = np.asarray(labels)
    known = unit(examples)
    centres = unit(np.stack([known[which == label].mean(axis=0) for label in range(num_labels)]))
    logits = SCALE * (unit(rows) @ centres.T)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True), np.float32)
