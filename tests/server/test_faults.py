"""What clients see when the engine refuses, fails, stops or dies; poison tokens set the faults off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from cenote.config import MachineSettings, ModelSettings, ServerSettings
from cenote.registry import Registry
from cenote.server import app
from support.faulty import GIVES_NAN, KILLS, RAISES, WAITS, FaultyRunner

PATIENCE_S = 30


@pytest.fixture
def registry(folder: Path) -> Iterator[Registry]:
    """A registry whose runner does what poison tokens say."""
    machine = MachineSettings(device="cpu", num_workers=2)
    with Registry(machine, runner_factory=FaultyRunner) as registry:
        registry.open(ModelSettings(model=str(folder)), ["faulty"])
        yield registry


@pytest.fixture
async def client(registry: Registry) -> AsyncIterator[httpx.AsyncClient]:
    """Asks the application without a connection between."""
    transport = httpx.ASGITransport(app.build(registry, ServerSettings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


async def embed(client: httpx.AsyncClient, *ids: int) -> httpx.Response:
    return await client.post("/v1/embeddings", json={"input": [2, *ids, 3]})


@pytest.mark.parametrize("poison", [RAISES, GIVES_NAN])
async def test_a_forward_that_fails_is_a_500_and_the_next_one_works(client: httpx.AsyncClient, poison: int) -> None:
    failed = await embed(client, poison)
    assert failed.status_code == 500
    assert failed.json()["error"]["type"] == "InternalServerError"
    assert failed.headers["x-should-retry"] == "false"
    assert "Traceback" not in failed.text
    assert (await embed(client, 9)).status_code == 200


async def test_draining_refuses_new_calls_and_is_not_ready(client: httpx.AsyncClient, registry: Registry) -> None:
    assert (await client.get("/health")).status_code == 200
    registry.drain(0)
    for path in ("/health", "/health/ready", "/ping"):
        answer = await client.get(path)
        assert (answer.status_code, answer.content) == (503, b"")
    assert (await client.get("/health/live")).status_code == 200
    refused = await embed(client, 9)
    assert refused.status_code == 503
    assert refused.json()["error"]["type"] == "ServiceUnavailableError"
    assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_dead_worker_turns_health_red(client: httpx.AsyncClient, registry: Registry) -> None:
    lost = await asyncio.wait_for(embed(client, KILLS), PATIENCE_S)
    assert lost.status_code == 503
    assert registry.state == "dead"
    for path in ("/health", "/health/ready", "/health/live"):
        assert (await client.get(path)).status_code == 503


async def test_running_requests_count_as_load(client: httpx.AsyncClient, registry: Registry) -> None:
    runner = registry.get().runner
    assert isinstance(runner, FaultyRunner)
    held = asyncio.create_task(embed(client, WAITS))
    await asyncio.to_thread(runner.wait_until_waiting)
    assert (await client.get("/load")).json() == {"server_load": 1}
    runner.gate.set()
    assert (await asyncio.wait_for(held, PATIENCE_S)).status_code == 200
    assert (await client.get("/load")).json() == {"server_load": 0}


async def test_a_short_request_is_answered_while_another_is_stuck(
    client: httpx.AsyncClient, registry: Registry
) -> None:
    runner = registry.get().runner
    assert isinstance(runner, FaultyRunner)
    before = (await embed(client, 9, 10)).json()["data"]
    held = asyncio.create_task(embed(client, WAITS))
    await asyncio.to_thread(runner.wait_until_waiting)
    beside = await asyncio.wait_for(embed(client, 9, 10), PATIENCE_S)
    assert beside.json()["data"] == before
    assert not held.done()
    runner.gate.set()
    assert (await asyncio.wait_for(held, PATIENCE_S)).status_code == 200


async def test_unforeseen_errors_do_not_leak(
    client: httpx.AsyncClient, registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret in /var/lib/secret")

    monkeypatch.setattr(registry.get().tokenizer, "decode", broken)
    answer = await client.post("/detokenize", json={"tokens": [5]}, headers={"x-request-id": "some-id"})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "some-id" in answer.text
    assert "secret" in caplog.text
