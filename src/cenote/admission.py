"""Who comes in: calls wait for room or are refused, and tokens that wait are counted."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition

from .call import Call
from .errors import Overloaded, Unavailable


class Admission:
    """The bound of one model's queue. Under the lock of `room`.

    Args:
        name: The model's, for messages.
        max_queue_tokens: How many tokens may wait.
        room: Notified when there is more of it.
        tokens_per_s: Tells how fast the queue shrinks, 0 where that is not known.
    """

    def __init__(self, name: str, max_queue_tokens: int, room: Condition, tokens_per_s: Callable[[], float]) -> None:
        self._name, self._max_queue_tokens = name, max_queue_tokens
        self._room, self._tokens_per_s = room, tokens_per_s
        self._held_tokens = 0
        self._refusal = ""

    def enter(self, call: Call, num_tokens: int, wait: bool) -> None:
        """Let a call of about `num_tokens` in, and hold them for it; `wait` waits for room.

        Raises:
            Overloaded: There is no room, and `wait` is False.
            DeadlineExceeded: The deadline passed while waiting for room.
            Unavailable: Nothing is let in any more.
        """
        while True:
            if self._refusal:
                raise self.unavailable()
            # A call larger than the whole bound gets in once nothing else is there.
            if self._held_tokens == 0 or self._held_tokens + num_tokens <= self._max_queue_tokens:
                break
            if not wait:
                raise self._overloaded()
            if call.expired:
                raise call.deadline_error()
            self._room.wait(call.remaining_s())
        self.hold(call, num_tokens)

    def hold(self, call: Call, num_tokens: int) -> None:
        """`num_tokens` more of a call wait; fewer where it is negative."""
        call.work.held_tokens += num_tokens
        self._held_tokens += num_tokens
        if num_tokens < 0:
            self._room.notify_all()

    def refuse(self, why: str) -> None:
        """Let nothing in from now on; `why` completes a sentence that starts with the model's name."""
        self._refusal = why
        self._room.notify_all()

    def unavailable(self) -> Unavailable:
        """What calls end with that came too late."""
        return Unavailable(f"{self._name} {self._refusal}.", fix="Try again later, or elsewhere.")

    def _overloaded(self) -> Overloaded:
        rate = self._tokens_per_s()
        retry_after_s = min(max(self._held_tokens / rate, 1.0), 60.0) if rate else 1.0
        return Overloaded(
            f"{self._held_tokens} tokens wait for {self._name}.",
            retry_after_s=retry_after_s,
            allowed=f"At most {self._max_queue_tokens} may wait.",
            fix=f"Try again in {retry_after_s:.0f} s.",
        )
