"""What keeps a server under load fair and lean."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cenote.server.calls import BULK_INPUTS, lane_of


@pytest.mark.parametrize(
    ("priority", "num_inputs", "lane"),
    [
        (0, 1, "interactive"),
        (0, BULK_INPUTS - 1, "interactive"),
        (0, BULK_INPUTS, "bulk"),
        (-1, BULK_INPUTS, "interactive"),
        (1, 1, "bulk"),
    ],
)
def test_large_requests_let_others_go_first_unless_they_say_otherwise(
    priority: int, num_inputs: int, lane: str
) -> None:
    assert lane_of(priority, num_inputs) == lane


def test_what_is_loaded_is_out_of_the_collectors_way() -> None:
    code = """
import gc
from cenote.server import serve
serve._settle()
print(gc.get_freeze_count() > 10_000, gc.get_threshold()[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "20000"]
