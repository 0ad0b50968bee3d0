"""What sequences of a batch begin with alike, so that a model computes it once. Pure NumPy."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .types import Batch, IntArray

STEP: Final = 8
"""Fewest tokens that are shared. Lengths that differ by less count as the shortest of them: what texts begin with alike
by chance behind a prompt is short, and sequences that share equally many tokens go through attention together."""

PAYS: Final = 1 / 16
"""Least part of the tokens of a batch that must be saved, because the keys and values of all of them are copied."""


def share(batch: Batch) -> Batch:
    """`batch` with `shared` and `rows`; as it is where that would save too little, or where sequences have adapters or
    tokens that are not attended to.

    Rows that are shared are right for the models that say so (`Nature.shares_prefixes`). Each sequence keeps at least
    its last token.
    """
    if batch.num_seqs < 2 or batch.adapters is not None or batch.attended is not None:
        return batch
    owners, common = _alike(batch)
    shared_S = _in_steps(common)
    if shared_S.sum() < PAYS * batch.num_tokens:
        return batch
    rows_T = np.empty(batch.num_tokens, np.int32)
    num_rows = 0
    for seq, (owner, num) in enumerate(zip(owners.tolist(), shared_S.tolist(), strict=True)):
        start, end, first = batch.bounds[seq], batch.bounds[seq + 1], batch.bounds[owner]
        rows_T[start : start + num] = rows_T[first : first + num]
        rows_T[start + num : end] = np.arange(num_rows, num_rows + end - start - num)
        num_rows += end - start - num
    return replace(batch, shared=shared_S, rows=rows_T)


def _alike(batch: Batch) -> tuple[IntArray, IntArray]:
    """For each sequence an earlier one that begins like it for longest, and for how many tokens, both `[S]`."""
    tokens = batch.ids.astype(np.int64)
    if batch.segments is not None:
        tokens += batch.segments.astype(np.int64) << 32
    texts = np.split(tokens, batch.bounds[1:-1])
    owners, common = np.zeros((2, batch.num_seqs), np.int32)
    # In the order of their bytes, what begins like a sequence for longest stands right before or right behind it.
    ordered: list[tuple[bytes, int]] = []
    for seq, text in enumerate(texts):
        entry = (text.tobytes(), seq)
        place = bisect_left(ordered, entry)
        for _, other in ordered[max(place - 1, 0) : place + 1]:
            num = min(_num_alike(text, texts[other]), len(text) - 1)
            if num > common[seq]:
                owners[seq], common[seq] = other, num
        ordered.insert(place, entry)
    return owners, common


def _num_alike(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    size = min(len(one), len(other))
    differs = one[:size] != other[:size]
    return int(differs.argmax()) if differs.any() else size


def _in_steps(common_S: IntArray) -> IntArray:
    """The lengths `common_S`, each lowered to one that is at least `STEP` above the next lower one."""
    steps = [0]
    for num in np.unique(common_S).tolist():
        if num >= steps[-1] + STEP:
            steps.append(num)
    levels = np.array(steps, np.int32)
    found: IntArray = levels[np.searchsorted(levels, common_S, side="right") - 1]
    return found
