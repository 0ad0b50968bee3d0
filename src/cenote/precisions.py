"""Vectors in fewer bits, by the rules of sentence-transformers' `quantize_embeddings`.

One byte a number needs to know from where to where each number goes, its range; one bit a number needs nothing: it is
set where the number is above 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from .errors import BadInput, ConfigError
from .types import FloatArray

Precision: TypeAlias = Literal["float32", "int8", "uint8", "binary", "ubinary"]

PRECISIONS: Final = ("float32", "int8", "uint8", "binary", "ubinary")
WITH_RANGES: Final = ("int8", "uint8")
"""Those that need ranges."""

_KEY: Final = "ranges"
_NUM_STEPS: Final = 255
_LENGTHS: Final = {None: "", True: "true", False: "false"}  # what a file says of `normalize`


def check(precision: str) -> None:
    """Raise `BadInput` where there is no such precision."""
    if precision not in PRECISIONS:
        raise BadInput(f"precision={precision!r}.", allowed=f"It is one of {', '.join(PRECISIONS)}.", param="precision")


def quantize(rows: FloatArray, precision: str, ranges: FloatArray | None = None) -> NDArray[Any]:
    """Rows in fewer bits.

    Args:
        rows: float32 `[N, E]`.
        precision: `int8` and `uint8` are one of 256 steps within the range, counted from -128 and from 0; `binary` and
            `ubinary` are 8 numbers a byte, the first one its highest bit, as int8 (128 less) and as uint8.
        ranges: For one byte a number: the least and the greatest value of each, float32 `[2, E]`.

    Returns:
        float32, int8 or uint8 `[N, E]`, or for bits `[N, ceil(E / 8)]`.
    """
    if precision == "float32":
        return rows
    if precision in WITH_RANGES:
        assert ranges is not None, "the caller finds the ranges"
        starts = ranges[0]
        steps = (ranges[1] - starts) / _NUM_STEPS
        places: FloatArray = np.clip(np.floor((rows - starts) / np.where(steps == 0, 1, steps)), 0, _NUM_STEPS)
        return places.astype(np.uint8) if precision == "uint8" else (places - 128).astype(np.int8)
    bits: NDArray[np.uint8] = np.packbits(rows > 0, axis=-1)
    return bits if precision == "ubinary" else (bits.astype(np.int16) - 128).astype(np.int8)


def ranges_of(rows: FloatArray) -> FloatArray:
    """The least and the greatest value of each number: `[N, E]` to `[2, E]`."""
    return np.stack([rows.min(axis=0), rows.max(axis=0)])


@dataclass(frozen=True, eq=False)
class Calibration:
    """Ranges that were measured on texts like those to come.

    Args:
        ranges: float32 `[2, E]`.
        model: Name of the model that made the vectors.
        num_texts: How many there were.
        source: The file that they were read from.
        normalize: Whether they were told to have unit length; None as the checkpoint says.
        pooling: The mode that they were told to be pooled by; "" as the checkpoint says.
    """

    ranges: FloatArray
    model: str
    num_texts: int
    source: str = ""
    normalize: bool | None = None
    pooling: str = ""

    @property
    def size(self) -> int:
        """Numbers of a vector."""
        return int(self.ranges.shape[1])

    def save(self, path: Path) -> None:
        """Write a safetensors file with one tensor, `ranges`."""
        about = {"model": self.model, "num_texts": str(self.num_texts), "pooling": self.pooling}
        about["normalize"] = _LENGTHS[self.normalize]
        save_file({_KEY: np.ascontiguousarray(self.ranges, np.float32)}, path, metadata=about)

    @classmethod
    def load(cls, path: str) -> Calibration:
        """Read what `save` wrote.

        Raises:
            ConfigError: There is no such file, or it holds something else.
        """
        try:
            with safe_open(path, framework="numpy") as file:
                about = file.metadata() or {}
                ranges = file.get_tensor(_KEY)
        except (OSError, SafetensorError) as error:
            raise ConfigError(
                f"The calibration {path} cannot be read: {error}.",
                fix="Write one with `cenote calibrate MODEL TEXTS --output FILE`.",
                param="calibration",
            ) from error
        fine = ranges.ndim == 2 and len(ranges) == 2 and np.isfinite(ranges).all() and (ranges[0] <= ranges[1]).all()
        if not fine:
            raise ConfigError(
                f"The calibration {path} has ranges of shape {list(ranges.shape)} that are none.",
                allowed="They are finite, of shape [2, size of a vector], the least values first.",
                param="calibration",
            )
        count = about.get("num_texts", "0")
        normalize = {word: value for value, word in _LENGTHS.items()}.get(about.get("normalize", ""))
        return cls(
            ranges.astype(np.float32),
            about.get("model", ""),
            int(count) if count.isdigit() else 0,
            path,
            normalize,
            about.get("pooling", ""),
        )
