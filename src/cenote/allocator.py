"""Memory of the process outside Python: freed activations, which are kept, and compiled products, of which few are."""

from __future__ import annotations

import ctypes
import functools
import sys

from .cores import num_cores

# Numbers of glibc's mallopt(3). The threshold is the highest that glibc takes on 64 bits.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MOST_ARENAS = -1, -3, -8
_LARGEST_MMAP_THRESHOLD = 32 * 1024 * 1024
_KEPT_BYTES = 256 * 1024 * 1024
# Variables of PyTorch's layer over oneDNN, whose entries count for each thread, and of oneDNN itself.
_CACHES = (b"LRU_CACHE_CAPACITY", b"ONEDNN_PRIMITIVE_CACHE_CAPACITY")
_KEPT_PRODUCTS = 128


@functools.cache
def keep_freed_memory() -> str | None:
    """Keep up to 256 MiB of freed activations in the process; None if done, else why not.

    glibc gives large blocks back to the system when they are freed, and the next forward gets fresh pages that the
    system must zero first, which took 3 % of the time of a forward on the CPU. What is kept lies in as many heaps as
    there are cores; glibc would open eight times as many, and each grows with the lengths of its own texts. Like every
    setting of an allocator this holds for the whole process.
    """
    if sys.platform != "linux":
        return f"the platform is {sys.platform}"
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return "the C library has no mallopt"
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    wanted = {
        _MMAP_THRESHOLD: _LARGEST_MMAP_THRESHOLD,
        _TRIM_THRESHOLD: _KEPT_BYTES,
        _MOST_ARENAS: num_cores(),
    }
    return None if all(mallopt(name, value) for name, value in wanted.items()) else "mallopt refused"


@functools.cache
def keep_few_products() -> str | None:
    """Let oneDNN keep 128 compiled products in place of 1,024, unless the user set another number; None, or why not.

    Each number of tokens that a batch may have is compiled anew, at some hundred kilobytes for each linear layer, so
    that texts of random lengths took hundreds of megabytes in the end. 128 hold all lengths of a short question. Both
    read their variables at the first product, so this comes before it.
    """
    if sys.platform == "win32":
        return f"the platform is {sys.platform}"
    setenv = ctypes.CDLL(None).setenv
    setenv.argtypes, setenv.restype = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int), ctypes.c_int
    failed = [name.decode() for name in _CACHES if setenv(name, str(_KEPT_PRODUCTS).encode(), 0)]
    return f"setenv refused {', '.join(failed)}" if failed else None
