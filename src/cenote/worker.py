"""The threads that put batches through models."""

from __future__ import annotations

import logging
import threading
import time

from .call import Call
from .engine import Engine
from .scheduler import Pending
from .shared import Shared

log = logging.getLogger(__name__)

JOIN_S = 5.0
"""How long a stop waits for running batches; a thread stuck in a forward cannot be killed, only left behind."""


class Workers:
    """The worker threads of one device. They draw from all engines in turn.

    The threads know this object and nothing above it, so that a forgotten registry can be collected and stop them.

    Args:
        shared: What they wait on.

    Attributes:
        engines: The models they serve.
        death: What the first dying worker died of; then none serves any more.
    """

    def __init__(self, shared: Shared) -> None:
        self.engines: list[Engine] = []
        self.death: BaseException | None = None
        self._shared = shared
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self._turn = 0

    def serve(self, engine: Engine) -> None:
        """Draw from `engine` too, with as many threads as its runner wants."""
        with self._shared.work:
            self.engines.append(engine)
            self._shared.work.notify_all()
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
                engine, batch = work
                engine.run(batch)
                del engine, batch, work  # an idle worker keeps no call alive
        except BaseException as error:
            self._die(error)

    def _next(self) -> tuple[Engine, list[Pending[Call]]] | None:
        """The next batch and its engine, waiting until there is one; None to stop."""
        with self._shared.work:
            while not self._stopping:
                for _ in self.engines:
                    self._turn = (self._turn + 1) % len(self.engines)
                    engine = self.engines[self._turn]
                    if batch := engine.take():
                        return engine, batch
                self._shared.work.wait()
        return None

    def _die(self, error: BaseException) -> None:
        log.critical("A worker thread died; nothing more can be served.", exc_info=error)
        with self._shared.work:
            self.death = self.death or error
            self._stopping = True
            self._shared.work.notify_all()
            for engine in self.engines:
                engine.refuse(f"is out of service, because a worker thread died of {error!r}")
        for engine in self.engines:
            engine.end_all()
