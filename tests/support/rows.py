"""When rows count as equal, by `docs/decisions.md`."""

from __future__ import annotations

from typing import Any

from .references import worst_error

REFERENCE_LIMIT = 1e-5
BATCH_LIMIT = 2e-6


def assert_equal(ours: Any, theirs: Any, limit: float = REFERENCE_LIMIT) -> None:
    """Check that every row of `ours` is within `limit` of its row in `theirs`, as a part of its largest value."""
    assert len(ours) == len(theirs)
    for row, expected in zip(ours, theirs, strict=True):
        assert worst_error(row, expected) <= limit
