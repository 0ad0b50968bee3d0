"""Rotary positions: pairs of dimensions of queries and keys are turned by an angle that grows with the position.

Angles, cosines and sines are float32 in every precision. The order of the float32 operations is the published one:
far positions multiply whatever is rounded otherwise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..rope import BY_LENGTH, Dynamic, Linear, Llama3, LongRope, Plain, Rope, Yarn
from .kernels import Kernels
from .norms import RMSNorm
from .packed import Bounds, Packed


class Turn(NamedTuple):
    """Cosines and sines of the rows of one forward, `[T, 1, F]`, where `F` pairs are turned."""

    cos_T1F: Tensor
    sin_T1F: Tensor

    def of_rows(self, rows_Q: Tensor) -> Turn:
        """Those of some rows."""
        return Turn(self.cos_T1F[rows_Q], self.sin_T1F[rows_Q])


class Angles:
    """What one kind of rotary positions needs on a device.

    Args:
        rope: The kind.
        device: Where it is used.
    """

    def __init__(self, rope: Rope, device: torch.device) -> None:
        self._rope = rope
        self._gain = rope.gain if isinstance(rope, (Yarn, LongRope)) else 1.0
        self._usual_F = frequencies(rope).to(device)
        # How far each pair lies along the size, for the kind whose base depends on the sequence.
        self._along_F = _along(rope.size).to(device)
        self._long_F = _over(_along(rope.size), rope.base, rope.long).to(device) if isinstance(rope, LongRope) else None

    def turn(self, packed: Packed, dtype: torch.dtype) -> Turn:
        """The angles of every row of `packed`, as cosines and sines in `dtype`."""
        angle_TF = packed.positions_T.float()[:, None] * self._of(packed.bounds, len(packed.positions_T))
        cos_TF, sin_TF = angle_TF.cos(), angle_TF.sin()
        if self._gain != 1.0:
            cos_TF, sin_TF = cos_TF * self._gain, sin_TF * self._gain
        return Turn(cos_TF.to(dtype)[:, None], sin_TF.to(dtype)[:, None])

    def _of(self, bounds: Bounds, num_rows: int) -> Tensor:
        """Frequencies `[F]`, or `[T, F]` where they depend on the length of the sequence that a row belongs to."""
        rope = self._rope
        if not isinstance(rope, BY_LENGTH):
            return self._usual_F
        lengths_S = bounds.key_S1.long().diff()
        length_T1 = torch.repeat_interleave(lengths_S, lengths_S, output_size=num_rows)[:, None]
        if isinstance(rope, LongRope):
            assert self._long_F is not None
            return torch.where(length_T1 > rope.trained_len, self._long_F, self._usual_F)
        longest_T1 = length_T1.clamp(min=rope.trained_len)
        growth_T1 = (rope.factor * longest_T1 / rope.trained_len) - (rope.factor - 1)
        base_T1 = rope.base * growth_T1 ** (rope.size / (rope.size - 2))
        return 1.0 / (base_T1**self._along_F)


def turned(rows_THK: Tensor, turn: Turn, norm: RMSNorm | None, kernels: Kernels | None) -> Tensor:
    """`rotate`, of each head normalised where a norm is given; by our kernels `rows_THK` is overwritten."""
    if kernels is not None:
        return kernels.turn(rows_THK, *turn, *((None, 0.0) if norm is None else (norm.factors, norm.eps)))
    return rotate(rows_THK if norm is None else norm.forward(rows_THK), turn)


def rotate(rows_THK: Tensor, turn: Turn) -> Tensor:
    """Turn the first `2 * F` dimensions of each head, pairing dimension `i` with `i + F`."""
    num_pairs = turn.cos_T1F.shape[-1]
    left, right, rest = rows_THK.tensor_split((num_pairs, 2 * num_pairs), dim=-1)
    cos, sin = turn
    return torch.cat((left * cos - right * sin, right * cos + left * sin, rest), dim=-1)


def frequencies(rope: Rope) -> Tensor:
    """Angle of each pair for one position, float32 `[F]`, always on the CPU; of short sequences where it depends."""
    along_F = _along(rope.size)
    match rope:
        case Plain() | Dynamic():
            return _over(along_F, rope.base)
        case Linear():
            return _over(along_F, rope.base) / rope.factor
        case LongRope():
            return _over(along_F, rope.base, rope.short)
        case Yarn():
            return _yarn(rope, rope.base**along_F)
        case Llama3():
            return _llama3(rope, _over(along_F, rope.base))


def _along(size: int) -> Tensor:
    return torch.arange(0, size, 2, dtype=torch.int64, device="cpu").float() / size


def _over(along_F: Tensor, base: float, divisors: tuple[float, ...] = ()) -> Tensor:
    waves_F: Tensor = base**along_F
    return 1.0 / (torch.tensor(divisors, device="cpu") * waves_F if divisors else waves_F)


def _yarn(rope: Yarn, waves_F: Tensor) -> Tensor:
    first, last = (_dimension(rope, turns) for turns in (rope.beta_fast, rope.beta_slow))
    if rope.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rope.size - 1)
    if first == last:
        last += 0.001
    pairs_F = torch.arange(rope.size // 2, dtype=torch.float32, device="cpu")
    left_alone_F = 1 - ((pairs_F - first) / (last - first)).clamp(0, 1)
    return 1.0 / (rope.factor * waves_F) * (1 - left_alone_F) + 1.0 / waves_F * left_alone_F


def _dimension(rope: Yarn, turns: float) -> float:
    """The pair, as a fraction, that turns so many times over the trained length."""
    return rope.size * math.log(rope.trained_len / (turns * 2 * math.pi)) / (2 * math.log(rope.base))


def _llama3(rope: Llama3, plain_F: Tensor) -> Tensor:
    wave_F = 2 * math.pi / plain_F
    slow_F = torch.where(wave_F > rope.trained_len / rope.low, plain_F / rope.factor, plain_F)
    share_F = (rope.trained_len / wave_F - rope.low) / (rope.high - rope.low)
    between_F = (1 - share_F) * slow_F / rope.factor + share_F * slow_F
    is_between_F = (wave_F >= rope.trained_len / rope.high) & (wave_F <= rope.trained_len / rope.low)
    return torch.where(is_between_F, between_F, slow_F)
