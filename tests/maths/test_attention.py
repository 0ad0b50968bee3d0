"""The packed attention against sums written out in float64, one sequence, head and query at a time."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import cenote_kernels
from cenote.layers import attention
from cenote.layers.attention import PLAIN, Rule, attend
from cenote.layers.kernels import Kernels
from cenote.layers.packed import Packed, Wanted
from cenote.types import Batch, Encoded, ReadKey

Array = NDArray[np.float64]

HEADS, SIZE = 4, 6
SLOPES = (0.5, -0.25, 0.125, -1.0)
LENGTHS = (5, 5, 1, 12, 30, 30, 30, 2)


def slanted(query: Tensor, key_k: Tensor) -> Tensor:
    """A bias that tells queries from keys, left from right, and heads from each other."""
    away = (key_k - query[..., None]).float()
    slopes_H11 = torch.tensor(SLOPES)[:, None, None]
    return (slopes_H11 * away.unsqueeze(-3)).sin() + 0.1 * (query[..., None] % 3).unsqueeze(-3)


def slanted_at(head: int, query: int, key: int) -> float:
    return float(np.sin(SLOPES[head] * (key - query)) + 0.1 * (query % 3))


def met(query: Tensor, key: Tensor, query_nq: Tensor, key_k: Tensor, farthest: int) -> Tensor:
    """Scores of what a query holds against where the key stands, and of what a key holds against how far away it is."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    away = (query_nq[..., None] - key_k)[:, None]
    assert int(away.abs().max()) <= farthest
    return query[..., :1] * (key_k % 5) + 0.3 * key[..., 1:2].transpose(2, 3) * away.float().sin()


def met_at(q: Array, k: Array, query: int, key: int) -> float:
    return float(q[0] * (key % 5) + 0.3 * k[1] * np.sin(query - key))


RULES = {
    "plain": PLAIN,
    "scale": Rule(scale=1.3),
    "causal": Rule(causal=True),
    "window": Rule(window=4),
    "window of 0": Rule(window=0),
    "causal window": Rule(causal=True, window=3),
    "bias": Rule(bias=slanted),
    "bias, causal window, scale": Rule(bias=slanted, causal=True, window=7, scale=0.2),
    "content": Rule(content=met),
    "content, bias, causal window, scale": Rule(content=met, bias=slanted, causal=True, window=7, scale=0.2),
    "softcap": Rule(softcap=1.5),
    "softcap, content": Rule(softcap=0.8, content=met),
    "softcap, bias, causal window, scale": Rule(softcap=0.8, bias=slanted, causal=True, window=9, scale=2.0),
}
FIRST: Wanted = "first"
LAST: Wanted = "last"
WANTED: dict[str, tuple[Wanted, ...]] = {
    "all": (),
    "first": (FIRST,) * len(LENGTHS),
    "last": (LAST,) * len(LENGTHS),
    "mixed": ("first", "first", "all", "last", "all", "last", "last", "first"),
}
BLOCKS = {"one block": 512, "blocks of 7": 7}
# How many tokens of each sequence are seen; two neighbours of 30 tokens share a run, the third does not.
ATTENDED = (5, 3, 1, 11, 9, 9, 30, 1)


@pytest.fixture(params=["torch", *(cenote_kernels.isas() if cenote_kernels.why_not() is None else ())])
def kernels(request: pytest.FixtureRequest) -> Kernels | None:
    """Who computes what our own kernels can: they, or PyTorch."""
    return None if request.param == "torch" else Kernels(request.param)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("rule", RULES)
def test_attention_equals_the_sums(
    rule: str, wanted: str, block: str, kv_heads: int, kernels: Kernels | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_QUERY_BLOCK", BLOCKS[block])
    # Two of the three equal sequences at once.
    monkeypatch.setattr(attention, "_ROWS_AT_ONCE", 60)
    query, key, value = random_rows(HEADS, 0), random_rows(kv_heads, 1), random_rows(kv_heads, 2)
    packed = pack(WANTED[wanted])
    kept = packed.kept
    bounds = packed.bounds if kept is None else kept.bounds
    rows_Q = torch.arange(sum(LENGTHS)) if kept is None else kept.rows_Q

    ours = attend(query[rows_Q], key, value, bounds, RULES[rule], kernels).double().numpy()

    expected = expected_rows(rule, kv_heads)[rows_Q.numpy()]
    assert ours.shape == expected.shape
    assert np.abs(ours - expected).max() <= 2e-6 * np.abs(expected).max()


@pytest.mark.parametrize("kv_heads", [1])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("wanted", ["all", "mixed"])
@pytest.mark.parametrize("rule", [rule for rule in RULES if "window" not in rule])
def test_tokens_that_are_not_attended_to_look_and_are_not_seen(
    rule: str, wanted: str, block: str, kv_heads: int, kernels: Kernels | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_QUERY_BLOCK", BLOCKS[block])
    query, key, value = random_rows(HEADS, 0), random_rows(kv_heads, 1), random_rows(kv_heads, 2)
    packed = pack(WANTED[wanted], ATTENDED)
    bounds = packed.bounds if packed.kept is None else packed.kept.bounds
    rows_Q = torch.arange(sum(LENGTHS)) if packed.kept is None else packed.kept.rows_Q

    ours = attend(query[rows_Q], key, value, bounds, RULES[rule], kernels).double().numpy()

    expected = expected_rows(rule, kv_heads, ATTENDED)[rows_Q.numpy()]
    assert np.abs(ours - expected).max() <= 2e-6 * np.abs(expected).max()


def test_a_window_counts_from_tokens_that_are_not_attended_to(kernels: Kernels | None) -> None:
    rule, attended = Rule(window=9), (5, 3, 1, 11, 22, 25, 30, 1)
    rows = random_rows(HEADS, 0), random_rows(HEADS, 1), random_rows(HEADS, 2)
    ours = attend(*rows, pack((), attended).bounds, rule, kernels).double().numpy()
    query, key, value = (part.double().numpy() for part in rows)
    expected = sums(query, key, value, rule, attended)
    assert np.abs(ours - expected).max() <= 2e-6 * np.abs(expected).max()


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("wanted", ["all", "mixed"])
@pytest.mark.parametrize("rule", [rule for rule in RULES if RULES[rule].causal])
def test_sequences_may_share_the_rows_that_they_begin_with(
    rule: str, wanted: str, block: str, kernels: Kernels | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_QUERY_BLOCK", BLOCKS[block])
    monkeypatch.setattr(attention, "_WINDOW_BLOCK", 5)
    batch = sharing(pack_batch())
    packed = Packed.of(batch, torch.device("cpu"), WANTED[wanted])
    assert packed.bounds.key_rows_T is not None
    assert batch.rows is not None
    computed = torch.from_numpy(np.unique(batch.rows, return_index=True)[1])
    rows = random_rows(HEADS, 0), random_rows(2, 1), random_rows(2, 2)
    query, key, value = (part[computed] for part in rows)
    bounds, rows_Q = packed.bounds, torch.arange(len(computed))
    if packed.kept is not None:
        bounds, rows_Q = packed.kept.bounds, packed.kept.rows_Q

    ours = attend(query[rows_Q], key, value, bounds, RULES[rule], kernels).double().numpy()

    query_T, key_T, value_T = (part[packed.bounds.key_rows_T].double().numpy() for part in (query, key, value))
    expected = sums(query_T, key_T, value_T, RULES[rule], LENGTHS)
    unshared = pack(WANTED[wanted]).kept
    expected = expected[(computed if unshared is None else unshared.rows_Q).numpy()]
    assert ours.shape == expected.shape
    assert np.abs(ours - expected).max() <= 2e-6 * np.abs(expected).max()


def sharing(batch: Batch) -> Batch:
    """The second of 5 tokens begins as the first, the texts of 30 as the text of 12 or as one another."""
    shared, owners = np.array([0, 2, 0, 0, 4, 9, 9, 0], np.int32), [0, 0, 0, 0, 3, 4, 4, 0]
    rows: list[int] = []
    num_rows = 0
    for seq, (length, num) in enumerate(zip(LENGTHS, shared.tolist(), strict=True)):
        first = batch.bounds[owners[seq]]
        rows += [*rows[first : first + num], *range(num_rows, num_rows + length - num)]
        num_rows += length - num
    return replace(batch, shared=shared, rows=np.array(rows, np.int32))


def test_queries_may_have_any_strides(kernels: Kernels | None) -> None:
    wide = torch.randn(sum(LENGTHS), 3 * HEADS * SIZE, generator=torch.Generator().manual_seed(4))
    parts = [part.unflatten(1, (HEADS, SIZE)) for part in wide.chunk(3, dim=1)]
    bounds = pack(()).bounds
    query, key, value = parts
    strided = attend(query, key, value, bounds, PLAIN, kernels)
    copied = attend(query.contiguous(), key.contiguous(), value.contiguous(), bounds, PLAIN, kernels)
    torch.testing.assert_close(strided, copied, rtol=0, atol=1e-6)


def test_a_long_sequence_crosses_the_border_of_a_block() -> None:
    length = attention._QUERY_BLOCK + 3
    rows = torch.randn(length, 1, 4, generator=torch.Generator().manual_seed(5))
    batch = Batch.pack([Encoded(np.zeros(length, np.int32))], [ReadKey("embed")])
    bounds = Packed.of(batch, torch.device("cpu")).bounds
    ours = attend(rows, rows, rows, bounds, Rule(causal=True, window=2)).double()
    for query in (0, 1, length // 2, length - 5, length - 4, length - 3, length - 1):
        near = rows[max(0, query - 2) : query + 1, 0].double()
        weights = torch.softmax(near @ rows[query, 0].double() / 2.0, dim=0)
        torch.testing.assert_close(ours[query], weights @ near, rtol=0, atol=1e-5)


def random_rows(heads: int, seed: int) -> Tensor:
    return 1.5 * torch.randn(sum(LENGTHS), heads, SIZE, generator=torch.Generator().manual_seed(seed))


def pack(wanted: tuple[Wanted, ...], attended: tuple[int, ...] = LENGTHS) -> Packed:
    return Packed.of(pack_batch(attended), torch.device("cpu"), wanted)


def pack_batch(attended: tuple[int, ...] = LENGTHS) -> Batch:
    encoded = [
        Encoded(np.zeros(length, np.int32), attended=None if seen == length else seen)
        for length, seen in zip(LENGTHS, attended, strict=True)
    ]
    return Batch.pack(encoded, [ReadKey("embed")] * len(encoded))


@functools.cache
def expected_rows(rule: str, kv_heads: int, attended: tuple[int, ...] = LENGTHS) -> Array:
    rows = random_rows(HEADS, 0), random_rows(kv_heads, 1), random_rows(kv_heads, 2)
    query, key, value = (part.double().numpy() for part in rows)
    return sums(query, key, value, RULES[rule], attended)


def sums(query_THK: Array, key_THK: Array, value_THK: Array, rule: Rule, attended: tuple[int, ...]) -> Array:
    out = np.zeros_like(query_THK)
    share = query_THK.shape[1] // key_THK.shape[1]
    start = 0
    for length, seen in zip(LENGTHS, attended, strict=True):
        for head in range(HEADS):
            key, value = (rows[start : start + seen, head // share] for rows in (key_THK, value_THK))
            for query in range(length):
                row = query_THK[start + query, head]
                scores = np.array([score(row, key[k], head, query, k, rule) for k in range(seen)])
                weights = np.exp(scores - scores.max())
                out[start + query, head] = weights @ value / weights.sum()
        start += length
    return out.reshape(len(out), -1)


def score(q: Array, k: Array, head: int, query: int, key: int, rule: Rule) -> float:
    if (rule.causal and key > query) or (rule.window is not None and abs(key - query) > rule.window):
        return -np.inf
    value = float(q @ k) * (SIZE**-0.5 if rule.scale is None else rule.scale)
    if rule.softcap is not None:
        value = rule.softcap * float(np.tanh(value / rule.softcap))
    value += slanted_at(head, query, key) if rule.bias is not None else 0.0
    return value + (met_at(q, k, query, key) if rule.content is not None else 0.0)
