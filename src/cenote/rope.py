"""Rotary positions as `config.json` states them, old keys and new, as plain records. No torch.

Source: Su et al. 2021 (arXiv 2104.09864); YaRN, Peng et al. 2023 (arXiv 2309.00071); LongRoPE, Ding et al. 2024
(arXiv 2402.13753); the rest as transformers computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from .errors import CheckpointError
from .hf import Raw


@dataclass(frozen=True, slots=True)
class Plain:
    """Pair `i` of the `size` turned dimensions turns by `base ** (-2i / size)` a position."""

    size: int
    base: float


@dataclass(frozen=True, slots=True)
class Linear:
    """All turn `factor` times as slowly."""

    size: int
    base: float
    factor: float


@dataclass(frozen=True, slots=True)
class Dynamic:
    """The base grows with the length of a sequence, once that is beyond `trained_len`."""

    size: int
    base: float
    factor: float
    trained_len: int


@dataclass(frozen=True, slots=True)
class Yarn:
    """Pairs that turn fewer than `beta_slow` times in `trained_len` positions are slowed by `factor`.

    Those that turn more than `beta_fast` times are left alone, with a ramp between, whose ends are whole numbers where
    `truncate`. `gain` is a factor of both cosine and sine.
    """

    size: int
    base: float
    factor: float
    trained_len: int
    beta_fast: float
    beta_slow: float
    truncate: bool
    gain: float


@dataclass(frozen=True, slots=True)
class LongRope:
    """A divisor for each pair: `long` in a sequence beyond `trained_len`, else `short`; `gain` as in `Yarn`."""

    size: int
    base: float
    short: tuple[float, ...]
    long: tuple[float, ...]
    trained_len: int
    gain: float


@dataclass(frozen=True, slots=True)
class Llama3:
    """Waves longer than `trained_len / low` are slowed by `factor`, those below `trained_len / high` are not."""

    size: int
    base: float
    factor: float
    trained_len: int
    low: float
    high: float


Rope: TypeAlias = Plain | Linear | Dynamic | Yarn | LongRope | Llama3

BY_LENGTH: Final = (Dynamic, LongRope)
"""The kinds whose angles depend on how long a text is."""


def stated(raw: Mapping[str, Any], base: float) -> dict[str, Any]:
    """What a `config.json` says of its one kind of rotary positions, whichever keys it uses.

    Args:
        base: Where it names none.
    """
    found = dict(raw.get("rope_scaling") or raw.get("rope_parameters") or {})
    if found.get("rope_theta") is None:
        found["rope_theta"] = Raw(raw).number("rope_theta", base)
    if raw.get("original_max_position_embeddings") is not None:
        found["original_max_position_embeddings"] = raw["original_max_position_embeddings"]
    return found


def read(says: Mapping[str, Any], *, size: int, max_len: int) -> Rope:
    """The record of one kind.

    Args:
        says: `rope_type` (or `type`, as old files have it), `rope_theta` and what else the kind needs.
        size: Dimensions of a head that are turned.
        max_len: `max_position_embeddings`.

    Raises:
        CheckpointError: The kind is not known, or lacks a value.
    """
    kind = says.get("rope_type") or says.get("type") or "default"
    if kind not in _READERS:
        raise CheckpointError(f"config.json says rope_type={kind!r}.", allowed=f"Known are {', '.join(_READERS)}.")
    base = Raw(says).number("rope_theta")
    if base <= 1:
        raise CheckpointError(f"config.json says rope_theta={base}.", allowed="It is above 1.")
    if size < 2 or size % 2:
        raise CheckpointError(f"config.json makes rotary positions turn {size} dimensions.", allowed="An even number.")
    return _READERS[kind](Raw(says), size, max_len)


def reach(rope: Rope, max_len: int) -> int:
    """The longest sequence that `max_position_embeddings` and the scaling allow."""
    return int(max_len * rope.factor) if isinstance(rope, (Linear, Dynamic)) else max_len


def _plain(says: Raw, size: int, max_len: int) -> Plain:
    return Plain(size, says.number("rope_theta"))


def _linear(says: Raw, size: int, max_len: int) -> Linear:
    return Linear(size, says.number("rope_theta"), _factor(says))


def _dynamic(says: Raw, size: int, max_len: int) -> Dynamic:
    if size == 2:
        raise CheckpointError("config.json asks for dynamic rotary positions of 2 dimensions.", allowed="At least 4.")
    return Dynamic(size, says.number("rope_theta"), _factor(says), max_len)


def _yarn(says: Raw, size: int, max_len: int) -> Yarn:
    trained_len = says.size("original_max_position_embeddings", max_len)
    factor = _factor(says, max_len / trained_len)
    scales = says.number("mscale", 0), says.number("mscale_all_dim", 0)
    gain = _yarn_gain(factor, scales[0]) / _yarn_gain(factor, scales[1]) if all(scales) else _yarn_gain(factor, 1)
    return Yarn(
        size=size,
        base=says.number("rope_theta"),
        factor=factor,
        trained_len=trained_len,
        beta_fast=says.number("beta_fast", 32) or 32,
        beta_slow=says.number("beta_slow", 1) or 1,
        truncate=bool(says.value("truncate", True)),
        gain=says.number("attention_factor", gain),
    )


def _yarn_gain(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _longrope(says: Raw, size: int, max_len: int) -> LongRope:
    trained_len = says.size("original_max_position_embeddings", max_len)
    factor = _factor(says, max_len / trained_len)
    gain = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(trained_len))
    short, long = (_divisors(says, key, size // 2) for key in ("short_factor", "long_factor"))
    return LongRope(size, says.number("rope_theta"), short, long, trained_len, says.number("attention_factor", gain))


def _divisors(says: Raw, key: str, wanted: int) -> tuple[float, ...]:
    values = says.value(key)
    if not isinstance(values, list) or len(values) != wanted or not all(isinstance(v, (int, float)) for v in values):
        raise CheckpointError(f"config.json says {key}={values!r}.", allowed=f"It is a list of {wanted} numbers.")
    return tuple(float(value) for value in values)


def _llama3(says: Raw, size: int, max_len: int) -> Llama3:
    return Llama3(
        size=size,
        base=says.number("rope_theta"),
        factor=_factor(says),
        trained_len=says.size("original_max_position_embeddings", max_len),
        low=says.number("low_freq_factor"),
        high=says.number("high_freq_factor"),
    )


def _factor(says: Raw, *default: float) -> float:
    factor = says.number("factor", *default)
    if factor <= 0:
        raise CheckpointError(f"config.json says factor={factor} of its rotary positions.", allowed="It is above 0.")
    return factor


_READERS: Final[Mapping[str, Callable[[Raw, int, int], Rope]]] = {
    "default": _plain,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
}
