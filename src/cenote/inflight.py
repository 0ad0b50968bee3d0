"""Inputs that are equal to one that waits or runs: they wait for its row and do not run again.

Pure: no thread, no clock. Whoever uses an `InFlight` from several threads holds one lock around it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from .call import Call
from .scheduler import Pending


@dataclass(slots=True, eq=False)
class _Group:
    """Sequences that the model reads alike: one that waits or runs, and those that get its row too."""

    key: Hashable
    leader: Pending[Call]
    followers: list[Pending[Call]] = field(default_factory=list)
    runs: bool = False


class InFlight:
    """The sequences that wait or run, by what the model reads and how it is read.

    A call that passes the cache by neither follows nor leads. One of the interactive lane never follows one of the
    bulk lane that still waits: it takes the lead, and the other follows.
    """

    def __init__(self) -> None:
        self._by_key: dict[Hashable, _Group] = {}
        self._by_leader: dict[Pending[Call], _Group] = {}

    def enter(self, sequences: Iterable[Pending[Call]]) -> tuple[list[Pending[Call]], list[Pending[Call]]]:
        """Take in `sequences`; the others than those returned follow.

        Returns:
            Those that must run, and those that no longer need to and must not wait for a forward any more.
        """
        fresh, relieved = [], []
        for pending in sequences:
            if not pending.call.use_cache:
                fresh.append(pending)
                continue
            key = (pending.encoded.key, pending.read)
            group = self._by_key.get(key)
            if group is None:
                self._by_key[key] = self._by_leader[pending] = _Group(key, pending)
                fresh.append(pending)
            elif group.runs or pending.call.lane == "bulk" or group.leader.call.lane == "interactive":
                group.followers.append(pending)
            else:
                relieved.append(group.leader)
                group.followers.append(group.leader)
                self._lead(group, pending)
                fresh.append(pending)
        return fresh, relieved

    def begin(self, batch: Iterable[Pending[Call]]) -> None:
        """`batch` runs now, also if its calls end."""
        for pending in batch:
            group = self._by_leader.get(pending)
            if group is not None:
                group.runs = True

    def finish(self, batch: Iterable[Pending[Call]]) -> list[list[Pending[Call]]]:
        """`batch` has run: each of it, and after it those that get the same, whose calls have not ended."""
        groups = []
        for pending in batch:
            group = self._by_leader.pop(pending, None)
            if group is not None:
                del self._by_key[group.key]
            groups.append([pending, *([] if group is None else _living(group.followers))])
        return groups

    def succeed(self, gone: Iterable[Pending[Call]]) -> list[Pending[Call]]:
        """`gone` will not run: those that must run in their place, for those that followed them."""
        heirs = []
        for pending in gone:
            group = self._by_leader.get(pending)
            if group is None:
                continue
            group.followers = _living(group.followers)
            if group.followers:
                heir = next((one for one in group.followers if one.call.lane == "interactive"), group.followers[0])
                group.followers.remove(heir)
                self._lead(group, heir)
                heirs.append(heir)
            else:
                del self._by_leader[pending], self._by_key[group.key]
        return heirs

    def _lead(self, group: _Group, pending: Pending[Call]) -> None:
        del self._by_leader[group.leader]
        group.leader = pending
        self._by_leader[pending] = group


def _living(followers: Sequence[Pending[Call]]) -> list[Pending[Call]]:
    return [pending for pending in followers if not pending.call.work.ended]
