"""Prompts that were handed in: waited for with a progress bar, and put together in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from .call import Call
from .errors import CenoteError
from .pieces import placed
from .types import Encoded, FloatArray, Outcome

UseTqdm: TypeAlias = bool | Callable[..., Any]
"""Whether a progress bar is shown, or what makes it."""


@dataclass(frozen=True)
class Part:
    """Prompts with the same options: their positions, and the call that runs them."""

    where: NDArray[np.intp]
    call: Call

    def result(self) -> Outcome:
        """`Call.result`, whose errors name positions among all prompts."""
        with self._placing():
            return self.call.result()

    async def outcome(self) -> Outcome:
        """`Call.outcome`, whose errors name positions among all prompts."""
        with self._placing():
            return await self.call.outcome()

    @contextmanager
    def _placing(self) -> Iterator[None]:
        try:
            yield
        except CenoteError as error:
            raise placed(error, self.where.tolist()) from error.__cause__


@dataclass(frozen=True)
class Started:
    """Prompts that were handed in; one call for each distinct set of options."""

    parts: Sequence[Part]

    def finish(self, use_tqdm: UseTqdm = False) -> Outcome:
        """Wait, showing how far it is, and raise the first error there is."""
        try:
            if use_tqdm:
                _show([part.call for part in self.parts], tqdm if use_tqdm is True else use_tqdm)
            return self.merge([part.result() for part in self.parts])
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Give up what has not ended."""
        for part in self.parts:
            part.call.cancel()

    def merge(self, outcomes: Sequence[Outcome]) -> Outcome:
        """Outcomes of the parts as one, in the order of the prompts; raises the first error there is."""
        for outcome in outcomes:
            outcome.raise_first()
        if len(outcomes) == 1:
            return outcomes[0]
        num = sum(len(part.where) for part in self.parts)
        rows: list[FloatArray] = [np.zeros(0, np.float32)] * num
        encoded = [Encoded(np.zeros(0, np.int32))] * num
        for part, outcome in zip(self.parts, outcomes, strict=True):
            for position, row, item in zip(part.where.tolist(), outcome.rows, outcome.encoded, strict=True):
                rows[position], encoded[position] = row, item
        return Outcome(rows, encoded)


def _show(calls: Sequence[Call], make_bar: Callable[..., Any]) -> None:
    """A bar with texts/s, and tokens/s beside it."""
    total = sum(call.num_inputs for call in calls)
    with make_bar(total=total, desc="Processed prompts", unit="text", dynamic_ncols=True) as bar:
        for call in calls:
            before = bar.n
            ended = False
            while not ended:
                ended = call.wait(0.1)
                bar.set_postfix_str(f"{call.num_done_tokens / max(call.age_s, 1e-9):,.0f} tokens/s", refresh=False)
                bar.update(before + call.num_done - bar.n)
