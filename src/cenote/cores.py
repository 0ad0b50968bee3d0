"""How many cores this process may use."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path


def num_cores(root: Path = Path("/")) -> int:
    """Cores of this process: its affinity, cut down to the CPU quota of its control group (rounded up), at least 1.

    Args:
        root: Where `proc` and `sys` are.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota(root)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cgroup_quota(root: Path = Path("/")) -> float | None:
    """The tightest quota from this process's control group up to the root, in cores; None where there is none."""
    try:
        entries = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    quotas: list[float] = []
    for entry in entries:
        _, controllers, path = entry.split(":", 2)
        if not controllers:
            quotas += _quotas(root / "sys/fs/cgroup", path, _quota_v2)
        elif "cpu" in controllers.split(","):
            quotas += _quotas(root / "sys/fs/cgroup/cpu", path, _quota_v1)
    return min(quotas, default=None)


def _quotas(mount: Path, path: str, read: Callable[[Path], float | None]) -> Iterator[float]:
    # In a container the path may be the host's while only the group's own folder is mounted, as the root.
    own = Path(path.lstrip("/"))
    for folder in dict.fromkeys((own, *own.parents, Path())):
        try:
            quota = read(mount / folder)
        except (OSError, ValueError):
            continue
        if quota is not None:
            yield quota


def _quota_v2(folder: Path) -> float | None:
    quota, period = (folder / "cpu.max").read_text().split()
    return None if quota == "max" else int(quota) / int(period)


def _quota_v1(folder: Path) -> float | None:
    quota = int((folder / "cpu.cfs_quota_us").read_text())
    return None if quota <= 0 else quota / int((folder / "cpu.cfs_period_us").read_text())


def cpu_name(root: Path = Path("/")) -> str:
    """What the processor calls itself, "unknown" where it does not say.

    Args:
        root: Where `proc` is.
    """
    try:
        lines = (root / "proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == "model name"]
    return named[0] if named else platform.processor() or "unknown"
