"""Prompts that were handed in: waited for with a progress bar, and put together in their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from tqdm import tqdm

from .call import Call
from .errors import CenoteError
from .pieces import Named, placed
from .types import Encoded, FloatArray, Input, Outcome
from .uses import Group

UseTqdm: TypeAlias = bool | Callable[..., Any]
"""Whether a progress bar is shown, or what makes it."""

BAR_AFTER_S = 0.1
"""Seconds after which a bar of ours is shown; one of the caller's is made at once."""


@dataclass(frozen=True)
class Part:
    """Prompts with the same options, and the call that runs them.

    Args:
        where: Their positions among all prompts; of parts of one prompt, its position for each.
        called: What errors call one of them; with a name of their own they are counted apart from the others.
        named: What errors say of each, where that is more than what it is called and its position.
    """

    where: Sequence[int]
    call: Call
    called: str = "input"
    named: Named | None = None

    def result(self) -> Outcome:
        """`Call.result`, whose errors name positions among all prompts."""
        try:
            return self._named(self.call.result())
        except CenoteError as error:
            raise self.placed(error) from error.__cause__

    async def outcome(self) -> Outcome:
        """`Call.outcome`, whose errors name positions among all prompts."""
        try:
            return self._named(await self.call.outcome())
        except CenoteError as error:
            raise self.placed(error) from error.__cause__

    def _named(self, outcome: Outcome) -> Outcome:
        if not outcome.errors:
            return outcome
        return replace(outcome, errors={at: self.placed(error) for at, error in outcome.errors.items()})

    def placed(self, error: CenoteError) -> CenoteError:
        """The same error, naming the position that the caller knows."""
        return placed(error, self.named or self._positioned, self.called)

    def _positioned(self, number: int) -> tuple[int, str]:
        counts = self.called != "input" or number >= len(self.where)
        position = number if counts else self.where[number]
        return position, f"{self.called} {position}"


@dataclass(frozen=True)
class Started:
    """Prompts that were handed in; one call for each distinct set of options."""

    parts: Sequence[Part]

    @property
    def params(self) -> list[Any]:
        """The options of each call, as its task has them."""
        return [part.call.reader.params for part in self.parts]

    @classmethod
    def of(cls, parts: Iterable[Part]) -> Started:
        """Start the parts one after the other; where one is refused, none is left running."""
        started: list[Part] = []
        try:
            for part in parts:
                started.append(part)  # noqa: PERF402  # what is started must be known when the next one raises
        except BaseException:
            cls(started).cancel()
            raise
        return cls(started)

    def finish(self, use_tqdm: UseTqdm = False, *, keep_errors: bool = False) -> Outcome:
        """Wait, showing how far it is, and raise the first error there is, unless they are kept in the outcome."""
        try:
            if use_tqdm and not (use_tqdm is True and self._ends_soon()):
                _show([part.call for part in self.parts], tqdm if use_tqdm is True else use_tqdm)
            outcome = self._merge([part.result() for part in self.parts])
        except BaseException:
            self.cancel()
            raise
        if not keep_errors:
            outcome.raise_first()
        return outcome

    def _ends_soon(self) -> bool:
        """Whether all ends before a bar would be looked at; to make one takes as long as some texts."""
        ends_s = time.monotonic() + BAR_AFTER_S
        return all(part.call.wait(max(0.0, ends_s - time.monotonic())) for part in self.parts)

    async def outcome(self) -> Outcome:
        """`finish` for an event loop."""
        try:
            outcome = self._merge([await part.outcome() for part in self.parts])
        except BaseException:
            self.cancel()
            raise
        outcome.raise_first()
        return outcome

    def cancel(self) -> None:
        """Give up what has not ended."""
        for part in self.parts:
            part.call.cancel()

    def _merge(self, outcomes: Sequence[Outcome]) -> Outcome:
        """Outcomes of the parts as one, in the order of the prompts."""
        if len(outcomes) == 1:
            return outcomes[0]
        num = sum(len(part.where) for part in self.parts)
        rows: list[FloatArray] = [np.zeros(0, np.float32)] * num
        encoded = [Encoded(np.zeros(0, np.int32))] * num
        both = list(zip(self.parts, outcomes, strict=True))
        for part, outcome in both:
            for position, row, item in zip(part.where, outcome.rows, outcome.encoded, strict=True):
                rows[position], encoded[position] = row, item
        return Outcome(
            rows,
            encoded,
            errors={part.where[at]: e for part, o in both for at, e in o.errors.items()},
            cached=frozenset(part.where[at] for part, outcome in both for at in outcome.cached),
            queue_s=max(outcome.queue_s for outcome in outcomes),
            tokenize_s=sum(outcome.tokenize_s for outcome in outcomes),
            inference_s=sum(outcome.inference_s for outcome in outcomes),
        )


def parts_of(groups: Iterable[Group], submit: Callable[[str, Sequence[Input], Any], Call]) -> Iterator[Part]:
    """The groups of a plan, each handed in by `submit(task, inputs, params)` when it is asked for."""
    start = 0
    for group in groups:
        stop = start + len(group.inputs)
        yield Part(range(start, stop), submit(group.task, group.inputs, group.params), group.called)
        start = stop


def _show(calls: Sequence[Call], make_bar: Callable[..., Any]) -> None:
    """A bar with texts/s, and tokens/s beside it."""
    total = sum(call.num_inputs for call in calls)
    with make_bar(total=total, desc="Processed prompts", unit="text", dynamic_ncols=True) as bar:
        if isinstance(bar, tqdm):
            bar.start_t -= max(call.age_s for call in calls)  # it comes late, and tells texts/s
        for call in calls:
            before = bar.n
            ended = False
            while not ended:
                ended = call.wait(0.1)
                bar.set_postfix_str(f"{call.num_done_tokens / max(call.age_s, 1e-9):,.0f} tokens/s", refresh=False)
                bar.update(before + call.num_done - bar.n)
