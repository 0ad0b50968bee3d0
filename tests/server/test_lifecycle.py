"""Clients that leave, queues that fill, and a server that is told to stop."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cenote.config import ModelSettings, ServerSettings
from cenote.errors import ConfigError
from cenote.server.listen import bind
from cenote.server.serve import serve
from support.texts import paragraphs

from .conftest import LONG_CALLS, NAME
from .running import Server

# One thread and small batches: a call of this size runs for seconds, so that things can happen meanwhile.
SLOW_MACHINE = {"num_workers": 1, "threads_per_worker": 1, "max_batch_tokens": 256}
PATIENCE_S = 30


def slow_body(num_inputs: int = 2000, path: str = "/v1/embeddings") -> bytes:
    field, other = LONG_CALLS[path]
    texts = [f"{number} {text[:150]}" for number, text in enumerate(paragraphs(50) * (num_inputs // 50))]
    return json.dumps({field: texts, **other, "truncate_prompt_tokens": -1}).encode()


@pytest.fixture
def slow(folder: Path) -> Iterator[Server]:
    with Server(folder, served_model_name=[NAME], machine=SLOW_MACHINE) as running:
        yield running


def metric(server: Server, name: str, **labels: str) -> float:
    families = text_string_to_metric_families(httpx.get(f"{server.url}/metrics").text)
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def wait_for(server: Server, name: str, value: float, **labels: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while metric(server, name, **labels) != value:
        assert time.monotonic() < end, f"{name} never became {value}"
        time.sleep(0.01)


def send(server: Server, body: bytes, path: str = "/v1/embeddings") -> socket.socket:
    """Send a request and do not wait for the answer."""
    place = urlsplit(server.url)
    connection = socket.create_connection((place.hostname, place.port))
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    return connection


def test_a_client_that_leaves_cancels_its_call(slow: Server) -> None:
    for number, path in enumerate(LONG_CALLS, 1):
        connection = send(slow, slow_body(path=path), path)
        wait_for(slow, "cenote_open_calls", 1)
        connection.close()
        wait_for(slow, "cenote_calls_ended_total", number, end="cancelled")
        wait_for(slow, "cenote_waiting_sequences", 0)
        assert metric(slow, "cenote_http_requests_total", path=path, status="499") == 1
    assert httpx.post(f"{slow.url}/v1/embeddings", json={"input": "a"}, timeout=60).status_code == 200


def test_a_client_that_leaves_while_sending(slow: Server) -> None:
    connection = send(slow, b"")
    connection.close()
    place = urlsplit(slow.url)
    half = socket.create_connection((place.hostname, place.port))
    half.sendall(
        b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    half.close()
    wait_for(slow, "cenote_http_requests_total", 1, status="499")
    assert httpx.get(f"{slow.url}/health").status_code == 200


def test_a_signal_lets_running_requests_finish(slow: Server) -> None:
    answers: list[httpx.Response] = []
    headers = {"content-type": "application/json"}

    def ask() -> None:
        answers.append(httpx.post(f"{slow.url}/v1/embeddings", content=slow_body(), headers=headers, timeout=60))

    asking = threading.Thread(target=ask)
    asking.start()
    wait_for(slow, "cenote_open_calls", 1)
    slow.terminate()
    asking.join(PATIENCE_S)
    assert [answer.status_code for answer in answers] == [200]
    assert len(answers[0].json()["data"]) == 2000
    code, log = slow.end()
    assert code == 0, log
    assert "Traceback" not in log


def test_a_signal_stops_within_the_time_for_draining(folder: Path) -> None:
    with Server(folder, machine=SLOW_MACHINE, drain_s=0.2) as server:
        connection = send(server, slow_body(20_000))
        wait_for(server, "cenote_open_calls", 1)
        server.terminate()
        code, log = server.end()
        connection.close()
    assert code == 0, log


def test_a_full_queue_says_when_to_come_back(folder: Path) -> None:
    with Server(folder, machine={**SLOW_MACHINE, "max_queue_tokens": 2000}) as server:
        connection = send(server, slow_body())
        wait_for(server, "cenote_open_calls", 1)
        refused = httpx.post(f"{server.url}/v1/embeddings", json={"input": "a " * 60}, timeout=60)
        connection.close()
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert int(refused.headers["retry-after-ms"]) > 0
    assert refused.headers["x-should-retry"] == "true"


def test_cutting_can_be_the_servers_default(folder: Path) -> None:
    with Server(folder, model_settings={"on_long": "cut"}) as server:
        answer = httpx.post(f"{server.url}/v1/embeddings", json={"input": "water " * 500}, timeout=60)
    assert answer.status_code == 200
    assert answer.headers["x-truncated"] == "1"


@pytest.mark.parametrize("port", [-1, 65536, 99999])
def test_a_port_that_does_not_exist_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match=f"port={port} is no port"):
        bind("127.0.0.1", port)


def test_a_taken_port_is_told_before_the_model_loads(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Cannot listen on 127.0.0.1:{port}"):
            serve(ModelSettings(model=str(tmp_path)), server=ServerSettings(port=port))
