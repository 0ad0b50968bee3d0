"""A call: N inputs that are answered together, through one future, exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from concurrent import futures
from dataclasses import dataclass

import numpy as np

from .chunks import combined
from .errors import Cancelled, CenoteError, DeadlineExceeded
from .guests import check_shaped
from .pieces import Piece, Reader, moved
from .scheduler import Lane, Pending
from .types import Encoded, FloatArray, Input, Outcome, ReadKey

log = logging.getLogger(__name__)

_NOTHING = Encoded(np.zeros(0, np.int32))


class Call:
    """What `Engine.submit` gives back.

    `future` is a `concurrent.futures.Future[Outcome]`; it stays pending until the very end, so that its `cancel()`
    works while the call waits and while it runs. Cancelling it, by whatever road, drops what still waits.

    Attributes:
        future: Ends once: with an `Outcome`, with an error, or cancelled.
        task, lane, request_id, use_cache: As given to `submit`.
        num_inputs: How many inputs it has.
        reader: How they become tokens.
        work: What is done so far; the engine's.
        lone: Whether one worker does all of it, since nothing else was there when it came.
    """

    def __init__(
        self,
        task: str,
        inputs: Sequence[Input],
        reader: Reader,
        *,
        lane: Lane,
        deadline_s: float | None,
        request_id: str | None,
        use_cache: bool = True,
        on_end: Callable[[Call, Outcome | BaseException], object],
    ) -> None:
        self.task, self.lane, self.request_id, self.use_cache = task, lane, request_id, use_cache
        self.num_inputs = len(inputs)
        self.reader = reader
        self.future: futures.Future[Outcome] = futures.Future()
        self.work = Work(inputs, reader.key)
        self.lone = False
        self._on_end = on_end
        self._arrived_s = time.monotonic()
        self._deadline_s = deadline_s
        # Weakly, as the future keeps what it calls: else each call would be a cycle, with all its rows.
        self.future.add_done_callback(functools.partial(_notice, weakref.ref(self)))

    @property
    def age_s(self) -> float:
        """Seconds since the call arrived."""
        return time.monotonic() - self._arrived_s

    def remaining_s(self) -> float | None:
        """Seconds until the deadline, at least 0; None where there is none."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self.age_s)

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self.remaining_s() == 0.0

    @property
    def num_done(self) -> int:
        """Inputs that are answered, by a row or an error; copies of identical ones count at the end."""
        return self.num_inputs if self.future.done() else self.work.num_done

    @property
    def num_done_tokens(self) -> int:
        """Tokens that went through the model for this call."""
        return self.work.num_done_tokens

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end, no longer than `timeout_s`, and say whether it came; the deadline brings it about."""
        limits_s = [limit_s for limit_s in (timeout_s, self.remaining_s()) if limit_s is not None]
        # Not `futures.wait`, which is made for several of them and takes longer.
        with contextlib.suppress(TimeoutError, futures.CancelledError):
            self.future.exception(min(limits_s, default=None))
        if self.expired:
            self.expire()
        return self.future.done()

    def cancel(self) -> bool:
        """Give the call up, waiting or running; False if it had ended already."""
        return self.future.cancel()

    def expire(self) -> None:
        """End the call with `DeadlineExceeded`, unless it has ended."""
        self._on_end(self, self.deadline_error())

    def unexpected(self, error: BaseException) -> CenoteError:
        """What the call ends with when `error`, which is none of ours, was raised; also logs it."""
        what = f"The call of {self.num_inputs} inputs failed: {error!r}."
        log.error("%s Request %s.", what, self.request_id, exc_info=error)
        wrapped = CenoteError(what, fix="This is a defect of Cenote; please report it with the log.")
        wrapped.__cause__ = error
        return wrapped

    def deadline_error(self) -> DeadlineExceeded:
        """What the call ends with when its deadline passes."""
        return DeadlineExceeded(
            f"The {self.num_inputs} inputs were not done within the deadline of {self._deadline_s} s.",
            fix="Allow more time, send fewer inputs at once, or try again when less is waiting.",
            param="deadline_s",
        )

    def result(self) -> Outcome:
        """Wait for the end, no longer than the deadline; an interrupt while waiting cancels the call.

        Raises:
            CenoteError: Whatever the call ended with; `Cancelled` where it was cancelled.
        """
        try:
            self.wait()
            return self.future.result()
        except futures.CancelledError:
            raise self._cancelled() from None
        except (KeyboardInterrupt, SystemExit):
            self.cancel()
            raise

    async def outcome(self) -> Outcome:
        """`result` for an event loop; cancelling the waiting task cancels the call.

        Raises:
            CenoteError: Whatever the call ended with; `Cancelled` where it was cancelled by someone else.
        """
        loop = asyncio.get_running_loop()
        ended = loop.create_future()  # not the call's own, so that whoever cancels it is the one who waits

        def wake() -> None:
            if not ended.done():
                ended.set_result(None)

        def notice(_: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(wake)

        self.future.add_done_callback(notice)
        remaining_s = self.remaining_s()
        timer = None if remaining_s is None else loop.call_later(remaining_s, self.expire)
        try:
            await ended
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if self.future.cancelled():
            raise self._cancelled()
        return self.future.result()

    def finished(self, outcome: Outcome) -> Outcome:
        """`outcome`, as `Work.outcome` gave it, with the options of this call applied to its rows.

        Raises:
            CenoteError: An input failed, and errors are not kept.
        """
        reader = self.reader
        if not reader.keep_errors:
            outcome.raise_first()
        if isinstance(outcome.rows, list):
            rows = enumerate(outcome.rows)
            outcome.rows = [row if at in outcome.errors else reader.shape(row) for at, row in rows]
        elif outcome.rows.size:  # no input has a row where all failed
            outcome.rows = reader.shape(outcome.rows)
            check_shaped(self.task, outcome.rows, self.num_inputs)
        return outcome

    def close(self, result: Outcome | CenoteError) -> str:
        """How the call ends for its caller: `ok`, or the kind of an error; no cancelling reaches it any more.

        Only the one who ended it asks, once, and then gives the result to `resolve`.
        """
        if not self.future.set_running_or_notify_cancel():
            return Cancelled.kind
        return "ok" if isinstance(result, Outcome) else result.kind

    def resolve(self, result: Outcome | CenoteError) -> None:
        """Give the future its result, unless it was cancelled before `close`."""
        if self.future.cancelled():
            return
        if isinstance(result, BaseException):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)

    def notice_cancelled(self) -> None:
        """The future was cancelled, by whatever road."""
        self._on_end(self, self._cancelled())

    def _cancelled(self) -> Cancelled:
        return Cancelled(f"The call of {self.num_inputs} inputs was cancelled.")


def _notice(called: weakref.ref[Call], future: futures.Future[Outcome]) -> None:
    call = called()  # while it has not ended, its engine holds it
    if call is not None and future.cancelled():
        call.notice_cancelled()


class Work:
    """What a call has done so far. The engine changes it, under the engine's lock.

    Identical inputs share one sequence: the first one leads, the others copy its row when all is done.

    Attributes:
        encoded: One per input, None where it is not tokenised yet or failed.
        held_tokens: What the call holds of the queue's bound.
        num_unread: Inputs that are not tokenised yet.
        num_unadded: Inputs whose sequences were not handed to the scheduler yet.
        num_unanswered: Sequences that wait or run.
        num_done, num_done_tokens: Inputs, and tokens of sequences, that are answered.
        cached: Positions of the inputs that the cache answered.
        ended: Set once, by whoever ends the call.
    """

    def __init__(self, inputs: Sequence[Input], read: ReadKey) -> None:
        self.inputs, self._read = inputs, read
        self.encoded: list[Encoded | None] = [None] * len(inputs)
        self.errors: dict[int, CenoteError] = {}
        self.held_tokens = 0
        self.num_unread = self.num_unadded = len(inputs)
        self.num_unanswered = 0
        self.num_done = self.num_done_tokens = 0
        self.cached: set[int] = set()
        self.ended = False
        self.queue_s: float | None = None
        self.tokenize_s = self.inference_s = 0.0
        self._rows: FloatArray | list[FloatArray] | None = None
        self._leaders: dict[Hashable, int] = {}
        self._followers: list[tuple[int, int]] = []
        self._chunks: list[_ChunkRow] = []
        self._unfinished: dict[int, int] = {}  # input -> its pieces that are not answered yet

    @property
    def complete(self) -> bool:
        """Whether every input has its row or its error."""
        return self.num_unadded == 0 and self.num_unanswered == 0

    def note(self, piece: Piece, took_s: float) -> None:
        """Keep the tokens and errors of a piece."""
        self.encoded[piece.start : piece.start + len(piece.encoded)] = piece.encoded
        self.errors.update(piece.errors)
        self.num_unread -= len(piece.encoded)
        self.num_done += len(piece.errors)
        self.tokenize_s += took_s

    def sequences(self, call: Call, where: slice) -> list[Pending[Call]]:
        """The sequences that must run for the inputs at `where`, which are tokenised."""
        fresh = []
        for index, item in enumerate(self.encoded[where], where.start):
            if item is None:
                continue
            if item.row is not None:
                self.room_for([item.row])[index] = item.row
                self.num_done += 1
                continue
            leader = self._leaders.setdefault(item.key, index)
            if leader == index:
                fresh += self._pending(item, call, index)
            else:
                self._followers.append((index, leader))
        self.num_unadded -= where.stop - where.start
        self.num_unanswered += len(fresh)
        return fresh

    def _pending(self, item: Encoded, call: Call, index: int) -> list[Pending[Call]]:
        if not item.chunks:
            return [Pending(item, self._read, call, index)]
        first = len(self._chunks)
        self._chunks += [_ChunkRow(index, chunk.num_own) for chunk in item.chunks]
        self._unfinished[index] = len(item.chunks)
        return [
            Pending(chunk.encoded, self._read, call, index, chunk=number)
            for number, chunk in enumerate(item.chunks, first)
        ]

    def answered(self, pending: Pending[Call]) -> None:
        """One sequence has its row or its error."""
        self.num_unanswered -= 1
        self.num_done_tokens += pending.num_tokens
        if pending.chunk is not None:
            self._unfinished[pending.index] -= 1
        if pending.chunk is None or self._unfinished[pending.index] == 0:
            self.num_done += 1

    def room_for(self, rows: FloatArray | list[FloatArray]) -> FloatArray | list[FloatArray]:
        """Where rows go, allocated in the form of the first `rows` that arrive; threads write different entries."""
        if self._rows is None:
            num_inputs = len(self.encoded)
            if isinstance(rows, list):
                self._rows = [np.zeros(0, np.float32)] * num_inputs
            else:
                self._rows = np.full((num_inputs, *rows.shape[1:]), np.nan, np.float32)
        return self._rows

    def store(
        self,
        pendings: Sequence[Pending[Call]],
        rows: FloatArray | list[FloatArray],
        target: FloatArray | list[FloatArray],
    ) -> None:
        """Keep the rows of `pendings` in `target`, which is from `room_for`, or aside where they are of pieces."""
        if isinstance(rows, np.ndarray) and isinstance(target, np.ndarray) and not self._chunks:
            target[[pending.index for pending in pendings]] = rows
            return
        for pending, row in zip(pendings, rows, strict=True):
            if pending.chunk is None:
                target[pending.index] = row
            else:
                self._chunks[pending.chunk].row = row.copy()

    def _combine(self, shape: Callable[[FloatArray], FloatArray]) -> None:
        """One row for each input that was read in pieces."""
        assert self._rows is not None
        by_input: dict[int, list[_ChunkRow]] = {}
        for chunk in self._chunks:
            by_input.setdefault(chunk.index, []).append(chunk)
        for index in self._unfinished.keys() - self.errors.keys():
            pieces = by_input[index]
            rows = [chunk.row for chunk in pieces if chunk.row is not None]
            self._rows[index] = combined(rows, [chunk.weight for chunk in pieces], shape)

    def outcome(self, shape: Callable[[FloatArray], FloatArray]) -> Outcome:
        """The record of the complete call, with rows as the model gave them; identical inputs get copies.

        Args:
            shape: Finishes rows, before those of the pieces of one input are made into one.
        """
        if self._unfinished:
            self._combine(shape)
        rows = self._rows if self._rows is not None else np.full((len(self.encoded), 0), np.nan, np.float32)
        for index, leader in self._followers:
            rows[index] = rows[leader].copy()
            if leader in self.cached:
                self.cached.add(index)
            if leader in self.errors:
                self.errors[index] = moved(self.errors[leader], index)
        return Outcome(
            rows=rows,
            encoded=[item or _NOTHING for item in self.encoded],
            errors=dict(sorted(self.errors.items())),
            cached=frozenset(self.cached),
            queue_s=self.queue_s or 0.0,
            tokenize_s=self.tokenize_s,
            inference_s=self.inference_s,
        )

    def release(self) -> None:
        """Let go of all that is large, once the call has ended."""
        self.inputs, self.encoded, self._rows = (), [], None
        self._leaders, self._followers = {}, []
        for chunk in self._chunks:
            chunk.row = None


@dataclass(slots=True)
class _ChunkRow:
    """The row of one piece of the input at `index`."""

    index: int
    weight: int
    row: FloatArray | None = None
