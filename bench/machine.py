"""Facts about the machine that a figure is worth nothing without."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from pathlib import Path
from typing import Any

from .errors import TooFewCpus


def pin(num_cpus: int) -> list[int]:
    """Bind this process, and so every child, to the first `num_cpus` CPUs that it may use; answer their numbers.

    Raises:
        TooFewCpus: Fewer are allowed.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < num_cpus:
        raise TooFewCpus(f"{num_cpus} CPUs were asked for and this process may use {len(allowed)}; lower --threads")
    os.sched_setaffinity(0, allowed[:num_cpus])
    return allowed[:num_cpus]


def busy_fraction(window_s: float = 1.0) -> float:
    """Share of all CPUs' time that anything used during the window, while this process sleeps."""
    before = _jiffies()
    time.sleep(window_s)
    after = _jiffies()
    total = sum(after) - sum(before)
    idle = after[3] + after[4] - before[3] - before[4]
    return 1 - idle / total if total else 0.0


def facts() -> dict[str, Any]:
    """Processor, Python and the versions of what the main environment compares."""
    packages = ("torch", "tokenizers", "sentence-transformers", "transformers", "numpy")
    return {
        "processor": _cpu_name(),
        "num_cpus": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {package: importlib.metadata.version(package) for package in packages},
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _jiffies() -> list[int]:
    return [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
