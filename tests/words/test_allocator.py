"""Settings of libraries outside Python, each tried in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

NAMES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
CODE = f"""
import ctypes
from cenote.allocator import keep_few_products
assert keep_few_products() is None
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
print(*(getenv(name.encode()).decode() for name in {NAMES}))
"""

MANY_THREADS = """
import ctypes, sys, threading
from cenote import allocator
allocator.num_cores = lambda: 2
if "bounded" in sys.argv:
    assert allocator.keep_freed_memory() is None
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
together = threading.Barrier(6)

def allocate():
    together.wait()
    assert libc.malloc(10_000)
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.fdopen.restype = ctypes.c_void_p
libc.malloc_info(0, ctypes.c_void_p(libc.fdopen(1, b"w")))
libc.fflush(None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="these are settings of glibc")
def test_threads_share_as_many_heaps_as_there_are_cores() -> None:
    def num_heaps(*how: str) -> int:
        command = [sys.executable, "-c", MANY_THREADS, *how]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.count("<heap nr=")

    assert num_heaps("bounded") == 2 < num_heaps()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no setenv")
@pytest.mark.parametrize(("given", "expected"), [(None, "128"), ("7", "7")])
def test_few_compiled_products_are_kept_unless_the_user_says_how_many(given: str | None, expected: str) -> None:
    env = {key: value for key, value in os.environ.items() if key not in NAMES}
    if given:
        env |= dict.fromkeys(NAMES, given)
    done = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [expected, expected]
