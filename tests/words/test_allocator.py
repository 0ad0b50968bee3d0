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


@pytest.mark.skipif(sys.platform == "win32", reason="there is no setenv")
@pytest.mark.parametrize(("given", "expected"), [(None, "128"), ("7", "7")])
def test_few_compiled_products_are_kept_unless_the_user_says_how_many(given: str | None, expected: str) -> None:
    env = {key: value for key, value in os.environ.items() if key not in NAMES}
    if given:
        env |= dict.fromkeys(NAMES, given)
    done = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [expected, expected]
