"""The worker's protocol, in this process, with a subject that counts letters."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.subjects import LOADERS, Loaded

from bench import worker


def load_letters(model: str, exports: str, threads: int) -> Loaded:
    def run(query: str | None, texts: list[str], batch_size: int | None) -> list[list[int]]:
        return [[len(text) + len(query or ""), batch_size or 0] for text in texts]

    return Loaded(run, lambda result: result, f"{threads} threads", {"letters": "1"})


def converse(*requests: dict[str, Any]) -> list[dict[str, Any]]:
    answers = io.StringIO()
    worker.serve(io.StringIO("".join(json.dumps(request) + "\n" for request in requests)), answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


LOAD = {"op": "load", "subject": "letters", "task": "rerank", "model": "m", "exports": "e", "threads": 2}


@pytest.fixture(autouse=True)
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOADERS, ("rerank", "letters"), load_letters)


def test_a_whole_conversation(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.npy")
    answers = converse(
        LOAD,
        {"op": "texts", "texts": ["a", "abc"], "query": "qq"},
        {"op": "run", "batch_size": 8},
        {"op": "save", "path": path},
        {"op": "latency", "text": "ab", "times": 3},
    )
    load, texts, run, save, latency = answers
    assert (load["threading"], load["versions"]) == ("2 threads", {"letters": "1"})
    assert texts == {"num_texts": 2}
    assert run["seconds"] >= 0
    assert run["cpu_s"] >= 0
    assert run["max_rss_bytes"] > 2**20
    assert save == {"path": path}
    assert len(latency["seconds"]) == 3
    rows = np.load(path)
    assert rows.dtype == np.float32
    assert rows.tolist() == [[3, 8], [5, 8]]


def test_an_error_is_answered_and_the_worker_lives_on() -> None:
    first, second, third = converse({"op": "run", "batch_size": 1}, {"op": "dance"}, LOAD)
    assert "send op load first" in first["error"]
    assert "dance" in second["error"]
    assert "load_s" in third
