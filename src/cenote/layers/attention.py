"""One packed attention. Sequences never see each other, and there is no padding to mask.

Our own kernels take all sequences in one call, where they are there and can do what is asked (`why_not_kernels`).
Elsewhere sequences of equal length, which lie side by side, share one call of PyTorch's fused kernel; where that cannot
do it (`why_not_fused`), scores are computed in blocks of query rows, so that memory stays linear in length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from .kernels import DistanceTables, Kernels
from .packed import Bounds, Run

Bias: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Positions of queries `[..., q]` and of keys `[k]` -> what is added to the scaled scores, `[..., H, q, k]`."""

Content: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
"""Queries `[n, H, q, K]`, keys `[n, H', k, K]`, their positions `[1 or n, q]` and `[k]`, and a distance that none is
beyond -> what is added to the scaled scores, `[n, H, q, k]`."""

# Rows of queries whose scores are held at once where a mask or the plain computation is needed.
_QUERY_BLOCK = 512
# The fewest of them under a window; fewer would score fewer keys in vain, but in more calls.
_WINDOW_BLOCK = 64
# Rows of queries or keys, over sequences, whose scores are held at once where each sequence has scores of its own.
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Rule:
    """Who sees whom, and how scores are made.

    Args:
        scale: Factor of the dot products; None means `K ** -0.5`.
        causal: A query sees no later key.
        window: A query sees keys at most this far away, inclusive; None for all.
        bias: Added to the scaled scores, the same for all sequences.
        content: Added to the scaled scores too, and made of what stands at the positions.
        distances: What queries and keys meet at each distance beside each other, for our own kernels alone.
        softcap: Scores become `softcap * tanh(score / softcap)`.
    """

    scale: float | None = None
    causal: bool = False
    window: int | None = None
    bias: Bias | None = None
    content: Content | None = None
    distances: DistanceTables | None = None
    softcap: float | None = None


PLAIN = Rule()


def attend(
    query_QHK: Tensor,
    key_THK: Tensor,
    value_THK: Tensor,
    bounds: Bounds,
    rule: Rule = PLAIN,
    kernels: Kernels | None = None,
) -> Tensor:
    """Attention of each sequence over its own keys.

    Args:
        query_QHK: `[Q, H, K]`, any strides.
        key_THK, value_THK: `[T, H', K]` where `H'` divides `H` (grouped queries); only the computed rows where
            sequences share some.
        bounds: Whose rows are whose.
        rule: Who sees whom.
        kernels: Our own kernels, for what they can do (`why_not_kernels`).

    Returns:
        `[Q, H * K]`.
    """
    if bounds.key_rows_T is not None:
        key_THK, value_THK = key_THK[bounds.key_rows_T], value_THK[bounds.key_rows_T]
    if kernels is not None and why_not_kernels(rule) is None:
        return kernels.attend(
            query_QHK,
            key_THK,
            value_THK,
            bounds,
            scale=rule.scale,
            causal=rule.causal,
            window=rule.window,
            distances=rule.distances,
        )
    assert rule.distances is None
    fused = why_not_fused(rule) is None
    outs = [
        out
        for whole in bounds.runs
        for run in _pieces(whole, rule)
        for out in (_fused if fused else _plain)(query_QHK, key_THK, value_THK, bounds, run, _needed(rule, run))
    ]
    return outs[0] if len(outs) == 1 else torch.cat(outs)


def why_not_fused(rule: Rule) -> str | None:
    """Why PyTorch's fused kernel cannot compute `rule`, or None where it can."""
    return None if rule.softcap is None else "it has no soft cap on scores"


def why_not_kernels(rule: Rule) -> str | None:
    """Why our own kernels cannot compute `rule`, or None where they can."""
    for name in ("bias", "content", "softcap"):
        if getattr(rule, name) is not None:
            return f"they have no {name}"
    return None


def _fused(
    query_QHK: Tensor, key_THK: Tensor, value_THK: Tensor, bounds: Bounds, run: Run, rule: Rule
) -> Iterator[Tensor]:
    grouped = query_QHK.shape[1] != key_THK.shape[1]
    key, value = _keys(key_THK, run), _keys(value_THK, run)
    # The kernel's own causal mask starts in the first corner, so all tokens must be both queries and keys.
    whole = bounds.query_index_Q is None and run.key_len == run.query_len == run.num_tokens
    if rule.window is None and rule.bias is None and rule.content is None and (whole or not rule.causal):
        query = _queries(query_QHK, run, 0, run.query_len)
        out = F.scaled_dot_product_attention(
            query, key, value, is_causal=rule.causal, scale=rule.scale, enable_gqa=grouped
        )
        yield _flat(out)
        return
    blocks = []
    for start, stop in _blocks(run, rule):
        seen = _seen(bounds, run, rule, start, stop)
        query = _queries(query_QHK, run, start, stop)
        near, values = key[:, :, seen], value[:, :, seen]
        mask = _mask(bounds, run, rule, start, query, near, seen)
        blocks.append(
            F.scaled_dot_product_attention(query, near, values, attn_mask=mask, scale=rule.scale, enable_gqa=grouped)
        )
    yield _flat(torch.cat(blocks, dim=2))


def _plain(
    query_QHK: Tensor, key_THK: Tensor, value_THK: Tensor, bounds: Bounds, run: Run, rule: Rule
) -> Iterator[Tensor]:
    """Scores in float32, in blocks of query rows: everything a rule can ask for."""
    share = query_QHK.shape[1] // key_THK.shape[1]
    key = _keys(key_THK, run).repeat_interleave(share, dim=1)
    value = _keys(value_THK, run).repeat_interleave(share, dim=1)
    scale = query_QHK.shape[2] ** -0.5 if rule.scale is None else rule.scale
    blocks = []
    for start, stop in _blocks(run, rule):
        seen = _seen(bounds, run, rule, start, stop)
        query = _queries(query_QHK, run, start, stop)
        near = key[:, :, seen]
        scores = torch.matmul(query, near.transpose(-1, -2)).float() * scale
        if rule.softcap is not None:
            scores = rule.softcap * torch.tanh(scores / rule.softcap)
        mask = _mask(bounds, run, rule, start, query, near, seen, scores.dtype)
        if mask is not None:
            scores = scores + mask
        blocks.append(torch.matmul(torch.softmax(scores, dim=-1).to(value.dtype), value[:, :, seen]))
    yield _flat(torch.cat(blocks, dim=2))


def _needed(rule: Rule, run: Run) -> Rule:
    """`rule` without a window that is wider than the sequences of `run`."""
    return rule if rule.window is None or rule.window < run.num_tokens - 1 else replace(rule, window=None)


def _queries(rows_QHK: Tensor, run: Run, start: int, stop: int) -> Tensor:
    """Rows of a run as `[n, H, stop - start, K]`."""
    _, heads, size = rows_QHK.shape
    end = run.query_start + run.num_seqs * run.query_len
    rows = rows_QHK[run.query_start : end].view(run.num_seqs, run.query_len, heads, size)
    return rows[:, start:stop].transpose(1, 2)


def _keys(rows_THK: Tensor, run: Run) -> Tensor:
    """The keys of a run as `[n, H', k, K]`."""
    _, heads, size = rows_THK.shape
    end = run.key_start + run.num_seqs * run.num_tokens
    rows = rows_THK[run.key_start : end].view(run.num_seqs, run.num_tokens, heads, size)
    return rows[:, : run.key_len].transpose(1, 2)


def _flat(out_nHqK: Tensor) -> Tensor:
    n, heads, rows, size = out_nHqK.shape
    return out_nHqK.transpose(1, 2).reshape(n * rows, heads * size)


def _blocks(run: Run, rule: Rule) -> Iterator[tuple[int, int]]:
    size = _QUERY_BLOCK if rule.window is None else min(_QUERY_BLOCK, max(_WINDOW_BLOCK, rule.window))
    for start in range(0, run.query_len, size):
        yield start, min(start + size, run.query_len)


def _seen(bounds: Bounds, run: Run, rule: Rule, start: int, stop: int) -> slice:
    """The keys that the query rows `start` to `stop` can see, as far as the host knows; at least one."""
    if rule.window is None or bounds.query_index_Q is not None:
        return slice(0, run.key_len)
    start, stop = start + run.query_offset, stop + run.query_offset
    last = stop if rule.causal else stop + rule.window
    return slice(min(max(0, start - rule.window), run.key_len - 1), min(last, run.key_len))


def _pieces(run: Run, rule: Rule) -> Iterator[Run]:
    """`run` itself, or runs of some of its sequences where each of them has scores of its own."""
    size = run.num_seqs
    if rule.content is not None:
        size = max(1, _ROWS_AT_ONCE // max(min(run.query_len, _QUERY_BLOCK), run.key_len))
    for first in range(0, run.num_seqs, size):
        yield Run(
            run.query_start + first * run.query_len,
            run.key_start + first * run.num_tokens,
            min(size, run.num_seqs - first),
            run.query_len,
            run.key_len,
            run.num_tokens,
        )


def _mask(
    bounds: Bounds,
    run: Run,
    rule: Rule,
    start: int,
    query_nHqK: Tensor,
    key_nHkK: Tensor,
    seen: slice,
    dtype: torch.dtype | None = None,
) -> Tensor | None:
    """What is added to the scores of query rows from `start` on and the keys `seen`; None for nothing.

    `[1 or n, 1 or H, q, k]`, in `dtype` or that of the queries.
    """
    dtype, device, stop = dtype or query_nHqK.dtype, query_nHqK.device, start + query_nHqK.shape[2]
    key_k = torch.arange(seen.start, seen.stop, device=device)
    if bounds.query_index_Q is None:
        query_nq = torch.arange(start + run.query_offset, stop + run.query_offset, device=device)[None]
    else:
        end = run.query_start + run.num_seqs * run.query_len
        query_nq = bounds.query_index_Q[run.query_start : end].view(run.num_seqs, run.query_len)[:, start:stop]
    parts: list[Tensor] = []
    if rule.bias is not None:
        parts.append(rule.bias(query_nq, key_k).to(dtype))
    if rule.content is not None:
        parts.append(rule.content(query_nHqK, key_nHkK, query_nq, key_k, run.num_tokens - 1).to(dtype))
    mask = sum(parts[1:], parts[0]) if parts else None
    hidden_nqk = _hidden(rule, query_nq[..., None] - key_k)
    if hidden_nqk is not None:
        zero = torch.zeros((), dtype=dtype, device=device)
        base = zero.expand(hidden_nqk[:, None].shape) if mask is None else mask
        mask = base.masked_fill(hidden_nqk[:, None], float("-inf"))
    return mask


def _hidden(rule: Rule, away_nqk: Tensor) -> Tensor | None:
    """Which keys a query does not see, by how far it is behind them; None where it sees all."""
    later_nqk = away_nqk < 0 if rule.causal else None
    if rule.window is None:
        return later_nqk
    far_nqk = away_nqk.abs() > rule.window
    return far_nqk if later_nqk is None else far_nqk | later_nqk
