"""A server runs with the profile of its model, and says so."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from support.profiles import keep_in, leave

from .running import Server


def test_serve_uses_the_profile(raw_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_in(tmp_path, monkeypatch)
    path = leave(raw_folder, {"num_workers": 1, "threads_per_worker": 1, "max_batch_tokens": 96})
    with Server(raw_folder) as server:
        info = httpx.get(f"{server.url}/info").json()
        (model,) = info["cenote"]["models"]
        source = f"profile {path}"
        assert model["machine"] == {
            "num_workers": {"value": 1, "source": source},
            "threads_per_worker": {"value": 1, "source": source},
            "max_batch_tokens": {"value": 96, "source": source},
            "quantization": {"value": "none", "source": "default"},
        }
        answer = httpx.post(f"{server.url}/v1/embeddings", json={"input": ["a", "b"]})
        assert len(answer.json()["data"]) == 2
    with Server(raw_folder, machine={"profile": False}) as server:
        (model,) = httpx.get(f"{server.url}/info").json()["cenote"]["models"]
        assert model["machine"]["max_batch_tokens"] == {"value": 1024, "source": "default: this machine"}
