"""The C library's allocator, told to keep what a forward frees for the next one."""

from __future__ import annotations

import ctypes
import functools
import sys

# Numbers of glibc's mallopt(3). The threshold is the highest that glibc takes on 64 bits.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 * 1024 * 1024
_KEPT_BYTES = 256 * 1024 * 1024


@functools.cache
def keep_freed_memory() -> str | None:
    """Keep up to 256 MiB of freed activations in the process; None if done, else why not.

    glibc gives large blocks back to the system when they are freed, and the next forward gets fresh pages that the
    system must zero first, which took 3 % of the time of a forward on the CPU. Like every setting of an allocator this
    holds for the whole process.
    """
    if sys.platform != "linux":
        return f"the platform is {sys.platform}"
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return "the C library has no mallopt"
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    if mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD) and mallopt(_TRIM_THRESHOLD, _KEPT_BYTES):
        return None
    return "mallopt refused"
