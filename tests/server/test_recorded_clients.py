"""Clients that cannot be installed beside the others: what they sent to a real server, sent again.

`clients/record.py` runs them in an environment of their own; `make clients` does it anew and compares.
"""

from __future__ import annotations

import base64
import binascii
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from cenote.checkpoint import embedded_default
from cenote.llm import LLM
from clients.record import HERE, LIMIT, NUM_KEPT, RECORDED
from clients.talk import MODEL, QUERY, STEPS, TEXTS
from support.rows import BATCH_LIMIT, assert_equal

from .conftest import Kind
from .running import Server

STORED: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
MIN_BYTES = 48  # of a vector in the fewest bits


@pytest.fixture(scope="module")
def served() -> Iterator[Kind]:
    """The embedded model under the name that the clients ask for."""
    folder = embedded_default().folder
    with Server(folder, model_alias=[MODEL]) as server, LLM(device="cpu") as llm:
        yield Kind(MODEL, folder, server, llm)


def vectors_in(answer: Any) -> list[Any]:
    """All vectors of an answer of any dialect, in its order: lists of numbers, or base64 of them."""
    if isinstance(answer, str):
        try:
            raw = base64.b64decode(answer, validate=True)
        except binascii.Error:
            return []
        return [np.frombuffer(raw, "u1" if len(raw) == MIN_BYTES else "<f4")] if len(raw) >= MIN_BYTES else []
    if isinstance(answer, dict):
        return [one for value in answer.values() for one in vectors_in(value)]
    if not isinstance(answer, list):
        return []
    if len(answer) >= MIN_BYTES and isinstance(answer[0], (int, float)):
        return [np.array(answer)]
    return [one for value in answer for one in vectors_in(value)]


def ranking_in(answer: Any) -> list[list[float]]:
    """The ranking of an answer of any dialect: places and scores."""
    rows = answer if isinstance(answer, list) else answer.get("results") or answer["data"]
    return [[row["index"], row.get("relevance_score", row.get("score"))] for row in rows]


def offline(llm: LLM, name: str) -> dict[str, Any]:
    """What the offline API says to a step."""
    if name.endswith("rerank"):
        return {"ranking": [[one.index, one.score] for one in llm.rerank(QUERY, TEXTS, use_tqdm=False)]}
    if name.endswith("contextualized"):
        return {"vectors": llm.embed_chunks(TEXTS, input_type="document")}
    texts = [QUERY] if name.endswith("query") else TEXTS
    precision: Any = "ubinary" if name.endswith("bits") else "float32"
    return {"vectors": llm.embed(texts, precision=precision, output="numpy", use_tqdm=False)}


@pytest.mark.parametrize("name", STEPS)
def test_what_a_client_sent_is_answered_as_the_offline_api_does(served: Kind, name: str) -> None:
    ((kind, expected),) = offline(served.llm, name).items()
    found: list[Any] = []
    for sent in STORED[name]["requests"]:
        url, body = served.server.url + sent["path"], sent["body"].encode()
        answer = httpx.request(sent["method"], url, content=body, headers=sent["headers"], timeout=60)
        assert answer.status_code == 200, answer.text
        found += (vectors_in if kind == "vectors" else ranking_in)(answer.json())
    if kind == "vectors":
        assert_equal(found, expected, BATCH_LIMIT)
    else:
        np.testing.assert_allclose(found, expected, atol=2e-6)
    # What the client itself read out of the answer when it was recorded.
    np.testing.assert_allclose(STORED[name]["got"][kind], np.asarray(expected)[:, :NUM_KEPT], atol=LIMIT)


def test_every_step_is_recorded() -> None:
    assert list(STORED) == list(STEPS)
    assert all(step["requests"] for step in STORED.values())


@pytest.mark.clients
@pytest.mark.timeout(900)
def test_the_clients_still_send_and_get_the_same() -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "record.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
