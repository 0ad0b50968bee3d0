"""One subject in a process of its own: JSON lines in, JSON lines out, one answer per request.

    {"op": "load", "subject": ..., "task": ..., "model": ..., "exports": ..., "threads": ...}
        -> {"load_s": ..., "versions": {...}, "threading": ...}
    {"op": "texts", "texts": [...], "query": ...}    -> {"num_texts": ...}  query: text, or null where there is none
    {"op": "run", "batch_size": ...}                 -> {"seconds": ..., "cpu_s": ..., "max_rss_bytes": ...}
    {"op": "save", "path": ...}                      -> {"path": ...}       the last answers, float32 [N, D] or [N]
    {"op": "latency", "text": ..., "times": ...}     -> {"seconds": [...]}  one text at a time

A failure is answered as {"error": traceback}, and the process lives on.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

import numpy as np

from .subjects import LOADERS, Loaded, Task


class Worker:
    """Keeps one loaded subject, its texts and its last result between requests."""

    def __init__(self) -> None:
        self.loaded: Loaded | None = None
        self.texts: list[str] = []
        self.query: str | None = None
        self.result: Any = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request; see the module's docstring."""
        op = request.pop("op")
        operations: dict[str, Callable[..., dict[str, Any]]] = {
            "load": self.load,
            "texts": self.keep,
            "run": self.run,
            "save": self.save,
            "latency": self.latency,
        }
        return operations[op](**request)

    def load(self, subject: str, task: Task, model: str, exports: str, threads: int) -> dict[str, Any]:
        start = time.perf_counter()
        self.loaded = LOADERS[task, subject](model, exports, threads)
        load_s = time.perf_counter() - start
        return {"load_s": load_s, "versions": self.loaded.versions, "threading": self.loaded.threading}

    def keep(self, texts: list[str], query: str | None) -> dict[str, Any]:
        self.texts, self.query = texts, query
        return {"num_texts": len(texts)}

    def run(self, batch_size: int | None) -> dict[str, Any]:
        loaded = self._loaded()
        self.result = None  # the last round's result is freed outside the clock
        start, start_cpu = time.perf_counter(), time.process_time()
        self.result = loaded.run(self.query, self.texts, batch_size)
        seconds, cpu_s = time.perf_counter() - start, time.process_time() - start_cpu
        rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {"seconds": seconds, "cpu_s": cpu_s, "max_rss_bytes": rss_bytes}

    def save(self, path: str) -> dict[str, Any]:
        np.save(path, np.asarray(self._loaded().to_array(self.result), np.float32))
        return {"path": path}

    def latency(self, text: str, times: int) -> dict[str, Any]:
        loaded = self._loaded()
        seconds = []
        for _ in range(times):
            start = time.perf_counter()
            loaded.run(None, [text], 1)
            seconds.append(time.perf_counter() - start)
        return {"seconds": seconds}

    def _loaded(self) -> Loaded:
        if self.loaded is None:
            raise RuntimeError("nothing is loaded; send op load first")
        return self.loaded


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until the input ends."""
    worker = Worker()
    for line in requests:
        try:
            answer = worker.answer(json.loads(line))
        except Exception:  # the driver turns it into its own error, with this text
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    # Libraries print to standard output while they load; answers go to a copy of it, the prints to standard error.
    with os.fdopen(os.dup(1), "w") as private:
        os.dup2(2, 1)
        serve(sys.stdin, private)
