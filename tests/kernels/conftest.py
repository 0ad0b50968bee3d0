"""The kernels of every instruction set that this CPU has; without the compiled library there is nothing to test."""

from __future__ import annotations

import pytest

import cenote_kernels

if (why_not := cenote_kernels.why_not()) is not None:
    collect_ignore_glob = ["test_*.py"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what asks for `kernels` once for each instruction set."""
    if "kernels" in metafunc.fixturenames:
        here = [cenote_kernels.load(isa) for isa in cenote_kernels.isas()]
        metafunc.parametrize("kernels", here, ids=lambda kernels: kernels.isa)
