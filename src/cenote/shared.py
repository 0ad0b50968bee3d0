"""What all engines of a process share: one lock, and the pools that work beside the device."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .errors import Unavailable

NUM_FINISH_THREADS = 2


class Shared:
    """One lock behind two conditions, and two pools, so that an answer never stands behind somebody's long texts.

    Args:
        num_tokenize_threads: Size of the tokenise pool; no call has more pieces under way.

    Attributes:
        lock: The one lock; to take it so costs a third of what it costs by a condition.
        work: Notified when sequences start to wait; workers wait on it.
        room: Notified when a call ends or tokens leave a queue.
        num_open: Calls of all engines that have not ended. Under the lock.
        num_running: Batches of all engines that run now. Under the lock.
        lone: What workers do before all else: small calls that came while nothing else was there. Under the lock.
        tokenize_pool: Its `submit` raises `RuntimeError` once closed.
    """

    def __init__(self, num_tokenize_threads: int) -> None:
        self.num_tokenize_threads = num_tokenize_threads
        self._pid = os.getpid()
        # Re-entrant, because collecting garbage may close a forgotten registry anywhere.
        self.lock = threading.RLock()
        self.work, self.room = threading.Condition(self.lock), threading.Condition(self.lock)
        self.tokenize_pool = ThreadPoolExecutor(num_tokenize_threads, "cenote-tokenize")
        self._finish_pool = ThreadPoolExecutor(NUM_FINISH_THREADS, "cenote-finish")
        self.num_open = self.num_running = 0
        self.lone: deque[Callable[[], object]] = deque()

    def check_not_forked(self, name: str) -> None:
        """Raise `Unavailable` in a fork, before any lock is asked for: one held at the fork stays held in the child."""
        if os.getpid() != self._pid:
            raise Unavailable(
                f"{name} was loaded by process {self._pid}, and this is a fork of it, {os.getpid()}.",
                allowed="Its threads stay behind in the process that loaded it.",
                fix="Start children with multiprocessing's spawn, and load the model there.",
            )

    def has_one_batch(self) -> bool:
        """Whether one call is open and one batch runs, of all engines."""
        with self.work:
            return self.num_open == self.num_running == 1

    def soon(self, step: Callable[..., object], *arguments: Any) -> None:
        """Run `step` on the finish pool, or here where that is closed; it must not raise."""
        try:
            self._finish_pool.submit(step, *arguments)
        except RuntimeError:
            step(*arguments)

    def close(self) -> None:
        """Let the pools end; what they have not begun is dropped, so every call must have ended before."""
        self.tokenize_pool.shutdown(wait=False, cancel_futures=True)
        self._finish_pool.shutdown(wait=False, cancel_futures=True)
