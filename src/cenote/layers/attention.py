"""One packed attention. Sequences never see each other, and there is no padding to mask.

Sequences of equal length lie side by side and share one call of PyTorch's fused kernel. Where the kernel cannot do
what is asked (`why_not_fused`), scores are computed in blocks of query rows, so that memory stays linear in length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from .packed import Bounds, Run

Bias: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Positions of queries `[..., q]` and of keys `[k]` -> what is added to the scaled scores, `[..., H, q, k]`."""

# Rows of queries whose scores are held at once where a mask or the plain computation is needed.
_QUERY_BLOCK = 512


@dataclass(frozen=True)
class Rule:
    """Who sees whom, and how scores are made.

    Args:
        scale: Factor of the dot products; None means `K ** -0.5`.
        causal: A query sees no later key.
        window: A query sees keys at most this far away, inclusive; None for all.
        bias: Added to the scaled scores.
        softcap: Scores become `softcap * tanh(score / softcap)`.
    """

    scale: float | None = None
    causal: bool = False
    window: int | None = None
    bias: Bias | None = None
    softcap: float | None = None


PLAIN = Rule()


def attend(query_QHK: Tensor, key_THK: Tensor, value_THK: Tensor, bounds: Bounds, rule: Rule = PLAIN) -> Tensor:
    """Attention of each sequence over its own keys.

    Args:
        query_QHK: `[Q, H, K]`, any strides.
        key_THK, value_THK: `[T, H', K]` where `H'` divides `H` (grouped queries).
        bounds: Whose rows are whose.
        rule: Who sees whom.

    Returns:
        `[Q, H * K]`.
    """
    fused = why_not_fused(rule) is None
    outs = [
        out
        for run in bounds.runs
        for out in (_fused if fused else _plain)(query_QHK, key_THK, value_THK, bounds, run, _needed(rule, run))
    ]
    return outs[0] if len(outs) == 1 else torch.cat(outs)


def why_not_fused(rule: Rule) -> str | None:
    """Why PyTorch's fused kernel cannot compute `rule`, or None where it can."""
    return None if rule.softcap is None else "it has no soft cap on scores"


def _fused(
    query_QHK: Tensor, key_THK: Tensor, value_THK: Tensor, bounds: Bounds, run: Run, rule: Rule
) -> Iterator[Tensor]:
    grouped = query_QHK.shape[1] != key_THK.shape[1]
    key, value = _keys(key_THK, run), _keys(value_THK, run)
    whole = bounds.query_index_Q is None
    if rule.window is None and rule.bias is None and (whole or not rule.causal):
        query = _queries(query_QHK, run, 0, run.query_len)
        out = F.scaled_dot_product_attention(
            query, key, value, is_causal=rule.causal, scale=rule.scale, enable_gqa=grouped
        )
        yield _flat(out)
        return
    blocks = []
    for start, stop in _blocks(run):
        mask = _mask(bounds, run, rule, start, stop, query_QHK)
        query = _queries(query_QHK, run, start, stop)
        blocks.append(
            F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=rule.scale, enable_gqa=grouped)
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
    for start, stop in _blocks(run):
        query = _queries(query_QHK, run, start, stop)
        scores = torch.matmul(query, key.transpose(-1, -2)).float() * scale
        if rule.softcap is not None:
            scores = rule.softcap * torch.tanh(scores / rule.softcap)
        mask = _mask(bounds, run, rule, start, stop, scores)
        if mask is not None:
            scores = scores + mask
        blocks.append(torch.matmul(torch.softmax(scores, dim=-1).to(value.dtype), value))
    yield _flat(torch.cat(blocks, dim=2))


def _needed(rule: Rule, run: Run) -> Rule:
    """`rule` without a window that is wider than the sequences of `run`."""
    return rule if rule.window is None or rule.window < run.key_len - 1 else replace(rule, window=None)


def _queries(rows_QHK: Tensor, run: Run, start: int, stop: int) -> Tensor:
    """Rows of a run as `[n, H, stop - start, K]`."""
    _, heads, size = rows_QHK.shape
    end = run.query_start + run.num_seqs * run.query_len
    rows = rows_QHK[run.query_start : end].view(run.num_seqs, run.query_len, heads, size)
    return rows[:, start:stop].transpose(1, 2)


def _keys(rows_THK: Tensor, run: Run) -> Tensor:
    """Rows of a run as `[n, H', k, K]`."""
    _, heads, size = rows_THK.shape
    end = run.key_start + run.num_seqs * run.key_len
    return rows_THK[run.key_start : end].view(run.num_seqs, run.key_len, heads, size).transpose(1, 2)


def _flat(out_nHqK: Tensor) -> Tensor:
    n, heads, rows, size = out_nHqK.shape
    return out_nHqK.transpose(1, 2).reshape(n * rows, heads * size)


def _blocks(run: Run) -> Iterator[tuple[int, int]]:
    for start in range(0, run.query_len, _QUERY_BLOCK):
        yield start, min(start + _QUERY_BLOCK, run.query_len)


def _mask(bounds: Bounds, run: Run, rule: Rule, start: int, stop: int, like: Tensor) -> Tensor | None:
    """What is added to the scores of query rows `start` to `stop`: `[1 or n, 1 or H, q, k]`, or None for nothing."""
    key_k = torch.arange(run.key_len, device=like.device)
    if bounds.query_index_Q is None:
        query_nq = torch.arange(start, stop, device=like.device)[None]
    else:
        end = run.query_start + run.num_seqs * run.query_len
        query_nq = bounds.query_index_Q[run.query_start : end].view(run.num_seqs, run.query_len)[:, start:stop]
    away_nqk = query_nq[..., None] - key_k
    hidden_nqk: Tensor | None = None
    if rule.causal:
        hidden_nqk = away_nqk < 0
    if rule.window is not None:
        far_nqk = away_nqk.abs() > rule.window
        hidden_nqk = far_nqk if hidden_nqk is None else hidden_nqk | far_nqk
    mask: Tensor | None = None
    if rule.bias is not None:
        mask = rule.bias(query_nq, key_k).to(like.dtype)
    if hidden_nqk is not None:
        zero = torch.zeros((), dtype=like.dtype, device=like.device)
        base = zero.expand(hidden_nqk[:, None].shape) if mask is None else mask
        mask = base.masked_fill(hidden_nqk[:, None], float("-inf"))
    return mask
