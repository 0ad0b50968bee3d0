"""What waits for a forward of one model, and those inputs that wait for the row of an equal one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from threading import Condition

from .admission import Admission
from .call import Call
from .inflight import InFlight
from .scheduler import Pending, Scheduler


class Waiting:
    """Sequences on their way to a worker, and the tokens that they hold of the queue. Under the lock of `work`.

    Args:
        admission: The bound of the queue.
        work: Notified when sequences start to wait.
    """

    def __init__(self, admission: Admission, work: Condition) -> None:
        self._admission, self._work = admission, work
        self._scheduler: Scheduler[Call] = Scheduler()
        self._in_flight = InFlight()

    @property
    def num_seqs(self) -> int:
        """Sequences that wait for a worker."""
        return self._scheduler.num_waiting

    @property
    def num_tokens(self) -> int:
        """Their tokens."""
        return self._scheduler.waiting_tokens

    def enter(self, sequences: Iterable[Pending[Call]], *, tell: bool) -> None:
        """Let sequences wait: for a worker, or for an equal one that waits or runs.

        Args:
            tell: Whether workers are notified; not where the one that asks takes next.
        """
        fresh, relieved = self._in_flight.enter(sequences)
        for pending in relieved:
            self._scheduler.withdraw(pending)
            self._admission.hold(pending.call, -pending.num_tokens)
        self._queue(fresh)
        if tell:
            self._work.notify(len(fresh))

    def take(self, max_tokens: int, max_seqs: int) -> tuple[list[Pending[Call]], set[Call]]:
        """The next batch, see `Scheduler.take`, which runs from now on, and calls whose deadline has passed.

        Whoever asks must end the latter; nothing of them is in the batch, which is empty only if nothing waits.
        """
        all_late: set[Call] = set()
        while taken := self._scheduler.take(max_tokens, max_seqs):
            for pending in taken:
                self._admission.hold(pending.call, -pending.num_tokens)
            calls = {pending.call for pending in taken}
            late = {call for call in calls if call.expired}
            if late:
                self._gone(pending for pending in taken if pending.call in late)
                taken = [pending for pending in taken if pending.call not in late]
                all_late |= late
            for call in calls - late:
                if call.work.queue_s is None:
                    call.work.queue_s = call.age_s
            if taken:
                break
        self._in_flight.begin(taken)
        return taken, all_late

    def finish(self, batch: Iterable[Pending[Call]]) -> list[list[Pending[Call]]]:
        """`batch` has run: each of it, and after it those that get the same, whose calls have not ended."""
        return self._in_flight.finish(batch)

    def drop(self, call: Call) -> None:
        """Nothing of `call` is to run any more, unless it runs already."""
        self._gone(self._scheduler.drop(call))

    def _gone(self, sequences: Iterable[Pending[Call]]) -> None:
        # Those that waited for their rows must run in their place.
        heirs = self._in_flight.succeed(sequences)
        self._queue(heirs)
        self._work.notify(len(heirs))

    def _queue(self, sequences: Sequence[Pending[Call]]) -> None:
        for call, own in itertools.groupby(sequences, lambda pending: pending.call):
            waiting = list(own)
            self._admission.hold(call, sum(pending.num_tokens for pending in waiting))
            self._scheduler.add(waiting, call.lane)
