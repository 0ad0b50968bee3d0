"""Answers as JSON: long lists are encoded in steps, and nobody can tell."""

from __future__ import annotations

import json

import numpy as np
import orjson
import pytest

from cenote.server import replies


@pytest.mark.parametrize("count", [0, 1, 64, 65, 128, 200])
def test_a_list_of_any_length_is_written_as_at_one_go(count: int) -> None:
    rows = np.arange(3 * count, dtype=np.float32).reshape(count, 3) / 7
    data = [{"index": index, "embedding": row} for index, row in enumerate(rows)]
    for answer in ({"object": "list", "data": data, "usage": {"total_tokens": count}}, data, list(rows)):
        body = bytes(replies.as_json(answer).body)
        assert body == orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
        assert json.loads(body) is not None
