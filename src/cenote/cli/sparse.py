"""What `cenote embed` says of sparse vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..types import FloatArray, Input
from .bars import print_classes
from .run import Loaded
from .sinks import TableSink

if TYPE_CHECKING:
    from ..call import Call
    from ..tasks.sparse import Params

_SHOWN_WORDS = 5


@dataclass(frozen=True)
class SparseVectors:
    """A model read as one sparse vector per input; a row is pairs of dimension and value, `[n, 2]`."""

    model: Loaded
    params: Params

    @property
    def num_columns(self) -> int:
        """Of the row of an input without one."""
        return 0

    def submit(self, inputs: Sequence[Input]) -> Call:
        """Start embedding."""
        return self.model.submit("sparse", inputs, self.params)

    def answer(self, row: FloatArray) -> dict[str, Any]:
        """Dimensions by number, their values, and their words where they are words."""
        from ..sparse import parted

        indices, values = parted(row)
        said: dict[str, Any] = {"indices": indices, "values": values}
        return said | ({"words": self._words(row)} if self._of_words else {})

    def show(self, kept: TableSink) -> None:
        """A table with a bar for each of the largest values."""

        def largest(row: FloatArray) -> list[tuple[str, Any]]:
            best = row[np.argsort(-row[:, 1], kind="stable")[:_SHOWN_WORDS]]
            names = self._words(best) if self._of_words else [str(int(dimension)) for dimension in best[:, 0]]
            return list(zip(names, best[:, 1], strict=True))

        print_classes(kept, largest, "word" if self._of_words else "dimension")

    @property
    def _of_words(self) -> bool:
        sparse = self.model.llm.recipe.sparse
        return sparse is not None and sparse.of_words

    def _words(self, row: FloatArray) -> list[str]:
        return self.model.llm.engine.tokenizer.words(row[:, 0].astype(np.int64).tolist())
