from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cenote.prefixes import STEP, share
from cenote.types import Batch, Encoded, IntArray, ReadKey

SEEDS = range(20)


def pack(texts: list[list[int]], segments: list[list[int]] | None = None) -> Batch:
    given = segments or [[0] * len(text) for text in texts]
    encoded = [
        Encoded(np.array(text, np.int32), np.array(part, np.int32) if segments else None)
        for text, part in zip(texts, given, strict=True)
    ]
    return Batch.pack(encoded, [ReadKey("embed")] * len(encoded))


def family(seed: int) -> list[list[int]]:
    """Texts of which many begin like others, some for long, and some are a beginning; one is empty, one there twice."""
    source = np.random.default_rng(seed)
    texts: list[list[int]] = [[]]
    for _ in range(30):
        begins_like = texts[source.integers(len(texts))]
        kept = begins_like[: source.integers(0, len(begins_like) + 1)]
        texts.append([*kept, *source.integers(0, 3, source.integers(1, 40)).tolist()])
    return [texts[number] for number in source.permutation([*range(len(texts)), 7])]


def num_alike(one: list[int], other: list[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def split(batch: Batch, values: IntArray) -> list[list[int]]:
    return [part.tolist() for part in np.split(values, batch.bounds[1:-1])]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_row_is_that_of_a_text_that_begins_alike(seed: int) -> None:
    texts = family(seed)
    batch = share(pack(texts))
    assert batch.shared is not None
    assert batch.rows is not None
    shared = batch.shared.tolist()
    owners = [(seq, at) for seq, text in enumerate(texts) for at in range(shared[seq], len(text))]
    for seq, rows in enumerate(split(batch, batch.rows)):
        assert [owners[row][1] for row in rows] == list(range(len(texts[seq])))
        assert all(texts[owners[row][0]][: at + 1] == texts[seq][: at + 1] for at, row in enumerate(rows))
        assert [owners[row][0] == seq for row in rows] == [at >= shared[seq] for at in range(len(rows))]
        # A step is the most that is given up, and the last token never is shared.
        longest = max((num_alike(texts[seq], text) for text in texts[:seq]), default=0)
        longest = max(min(longest, len(texts[seq]) - 1), 0)
        assert longest - STEP < shared[seq] <= longest
        assert shared[seq] == 0 or shared[seq] >= STEP


def test_what_is_alike_by_chance_behind_a_prompt_is_no_length_of_its_own() -> None:
    prompt = list(range(100, 130))
    tails = [[1, 2, 3, 4, 5], [1, 2, 3, 9, 5], [7, 1, 2, 3, 4], [1, 2, 3, 4, 6]]
    batch = share(pack([prompt + tail for tail in tails]))
    assert batch.shared is not None
    assert batch.shared.tolist() == [0, 30, 30, 30]


def test_prompts_of_several_kinds_are_shared_each() -> None:
    kinds = [list(range(100, 120)), list(range(200, 240))]
    batch = share(pack([kinds[number % 2] + [number, 1] for number in range(6)]))
    assert batch.shared is not None
    assert batch.shared.tolist() == [0, 0, 20, 40, 20, 40]


def test_tokens_of_other_segments_are_other_tokens() -> None:
    texts = [[1] * 20 + [number] for number in (2, 3)]
    alike = share(pack(texts, [[0] * 21, [0] * 21]))
    assert alike.shared is not None
    assert alike.shared.tolist() == [0, 20]
    partly = share(pack(texts, [[0] * 21, [0] * 12 + [1] * 9]))
    assert partly.shared is not None
    assert partly.shared.tolist() == [0, 12]


def test_where_it_does_not_pay_a_batch_stays_as_it_is() -> None:
    long = [list(range(start, start + 200)) for start in (1000, 2000, 3000)]
    apart = pack([[1] * STEP + text for text in long])
    assert share(apart) is apart
    alone = pack([[1] * 50])
    assert share(alone) is alone


def test_adapters_and_tokens_that_are_not_attended_to_are_left_alone() -> None:
    batch = pack([[1] * 20 + [number] for number in (2, 3)])
    for other in (
        replace(batch, adapters=np.array([0, 1], np.int32)),
        replace(batch, attended=np.array([21, 12], np.int32)),
    ):
        assert share(other) is other
