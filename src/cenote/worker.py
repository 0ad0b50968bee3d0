"""The threads that put batches through models."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable

from .engine import Engine
from .shared import Shared

log = logging.getLogger(__name__)

JOIN_S = 5.0
"""How long a stop waits for running batches; a thread stuck in a forward cannot be killed, only left behind."""


class Workers:
    """The worker threads of one device. They draw from all engines in turn.

    The threads know this object and nothing above it, so that a forgotten registry can be collected and stop them.

    Args:
        shared: What they wait on.
        max_forward_s: Seconds after which a batch counts as stuck; 0 for never.

    Attributes:
        engines: The models they serve.
        death: What the first dying worker died of; then none serves any more.
    """

    def __init__(self, shared: Shared, max_forward_s: float = 0.0) -> None:
        self.engines: list[Engine] = []
        self.death: BaseException | None = None
        self._shared, self._max_forward_s = shared, max_forward_s
        self._threads: list[threading.Thread] = []
        self._began_s: dict[threading.Thread, float] = {}  # of the batch that each thread runs
        self._stopping = False
        self._stopped = threading.Event()
        self._turn = 0

    def serve(self, engine: Engine) -> None:
        """Draw from `engine` too, with as many threads as its runner wants."""
        with self._shared.work:
            self.engines.append(engine)
            self._shared.work.notify_all()
        if self._max_forward_s and not self._threads:
            threading.Thread(target=self._watch, name="cenote-watchdog", daemon=True).start()
        for number in range(len(self._threads), engine.runner.num_workers):
            thread = threading.Thread(
                target=self._live,
                args=(engine.runner.threads_per_worker,),
                name=f"cenote-worker-{number}",
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Let the threads finish their batches and end; waits `JOIN_S` at most. Repeatable, from any thread."""
        self._stopped.set()
        with self._shared.work:
            self._stopping = True
            self._shared.work.notify_all()
        ends_s = time.monotonic() + JOIN_S
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, ends_s - time.monotonic()))

    def _live(self, num_threads: int) -> None:
        try:
            import torch

            torch.set_num_threads(num_threads)
            while (work := self._next()) is not None:
                self._began_s[threading.current_thread()] = time.monotonic()
                work()
                del self._began_s[threading.current_thread()]
                del work  # an idle worker keeps no call alive
        except BaseException as error:
            self._die(error)

    def _next(self) -> Callable[[], object] | None:
        """What to do next, waiting until there is something: a lone call, or a batch; None to stop."""
        with self._shared.work:
            while not self._stopping:
                if self._shared.lone:
                    return self._shared.lone.popleft()
                for _ in self.engines:
                    self._turn = (self._turn + 1) % len(self.engines)
                    engine = self.engines[self._turn]
                    if batch := engine.take():
                        return functools.partial(engine.run, batch)
                self._shared.work.wait()
        return None

    def _watch(self) -> None:
        """A thread stuck in a forward cannot be killed, so all that it owes is ended, and nothing more is taken."""
        while not self._stopped.wait(min(1.0, self._max_forward_s / 4)):
            now_s = time.monotonic()
            took_s = max((now_s - began_s for began_s in list(self._began_s.values())), default=0.0)
            if took_s > self._max_forward_s:
                self._die(TimeoutError(f"a batch ran for more than {self._max_forward_s:g} s (max_forward_s)"))
                return

    def _die(self, error: BaseException) -> None:
        log.critical("A worker thread died; nothing more can be served.", exc_info=error)
        self._stopped.set()
        with self._shared.work:
            self.death = self.death or error
            self._stopping = True
            self._shared.work.notify_all()
            for engine in self.engines:
                engine.refuse(f"is out of service, because a worker thread died of {error!r}")
        for engine in self.engines:
            engine.end_all()
