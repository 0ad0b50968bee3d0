"""Small calls on their way to the tokenizer: what came meanwhile is read in one go, and waits for a worker as one."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

from .call import Call
from .errors import Unavailable
from .pieces import Piece
from .shared import Shared
from .types import Outcome

Note: TypeAlias = Callable[[Call, Piece, float], object]
End: TypeAlias = Callable[[Call, "Outcome | BaseException"], object]


class Gathered:
    """Calls of a piece each. One turn of the tokenise pool reads all that are there, as a job and a wake-up for each
    would cost more than their tokens.

    Args:
        name: The model's, for messages.
        shared: The pool, and the lock.
        note: Takes what was read of a call and the seconds that it took; may raise what the call then ends with.
        end: Ends a call.
    """

    def __init__(self, name: str, shared: Shared, note: Note, end: End) -> None:
        self._name, self._shared, self._note, self._end = name, shared, note, end
        self._calls: list[Call] = []

    def add(self, call: Call) -> None:
        """Read `call` soon."""
        with self._shared.lock:
            self._calls.append(call)
            if len(self._calls) > 1:  # the turn that the first one asked for has not begun
                return
        try:
            self._shared.tokenize_pool.submit(self._turn)
        except RuntimeError:  # the pool is shut down, and no turn will come for those that joined meanwhile either
            with self._shared.lock:
                calls, self._calls = self._calls, []
            for each in calls:
                self._end(each, self._closed())

    def soon(self, call: Call, step: Callable[..., object], *arguments: object) -> None:
        """Do `step` on the pool; where that is shut down, end `call`."""
        try:
            self._shared.tokenize_pool.submit(step, *arguments)
        except RuntimeError:
            self._end(call, self._closed())

    def _closed(self) -> Unavailable:
        return Unavailable(f"{self._name} is closed.")

    def _turn(self) -> None:
        with self._shared.lock:
            calls, self._calls = self._calls, []
        for _, alike in itertools.groupby(calls, _kind):
            self._read(list(alike))

    def _read(self, calls: Sequence[Call]) -> None:
        began_s = time.monotonic()
        with self._shared.lock:
            late = [call for call in calls if call.expired]
            inputs = [() if call in late else call.work.inputs for call in calls]  # of those that ended too
        for call in late:
            self._end(call, call.deadline_error())
        try:
            piece = calls[0].reader.read(0, list(itertools.chain.from_iterable(inputs)))
        except BaseException as error:  # a panic of a tokenizer in Rust is no Exception
            if len(calls) == 1:
                self._end(calls[0], error)
            else:  # the others must not suffer for one, and its error names its own position
                for call in calls:
                    self._read([call])
            return
        self._hand_in(calls, [len(own) for own in inputs], piece, time.monotonic() - began_s)

    def _hand_in(self, calls: Sequence[Call], counts: Sequence[int], piece: Piece, took_s: float) -> None:
        refused: list[tuple[Call, BaseException]] = []
        encoded = iter(piece.encoded)
        with self._shared.lock:  # a worker that wakes finds all of them
            for call, count in zip(calls, counts, strict=True):
                own = Piece(0, list(itertools.islice(encoded, count)), piece.errors)
                try:
                    self._note(call, own, took_s)
                except BaseException as error:
                    refused.append((call, error))
        for call, why in refused:
            self._end(call, why)


def _kind(call: Call) -> tuple[Hashable, ...]:
    """Equal for calls that are tokenised alike; one that keeps its errors is read alone, as they name positions."""
    reader = call.reader
    return reader.key, reader.params, reader.length, call if reader.keep_errors else None
