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
from support.faulty import WAITS, until
from support.texts import paragraphs

from .conftest import LONG_CALLS
from .running import Server

# One thread and small batches: a call of many thousand texts runs for seconds, so that things can happen meanwhile.
SLOW_MACHINE = {"num_workers": 1, "threads_per_worker": 1, "max_batch_tokens": 256}
PATIENCE_S = 20  # shorter than that of a gate, so that a test fails before its gate gives way


def body_of(num_inputs: int = 2000, path: str = "/v1/embeddings") -> bytes:
    field, other = LONG_CALLS[path]
    texts = [f"{number} {text[:150]}" for number, text in enumerate(paragraphs(50) * (num_inputs // 50))]
    return json.dumps({field: texts, **other, "truncate_prompt_tokens": -1}).encode()


@pytest.fixture
def faulty(folder: Path) -> Iterator[Server]:
    with Server(folder, machine={"num_workers": 1}, faulty=True) as running:
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


def hold(server: Server) -> socket.socket:
    """Occupy the only worker of a faulty server until its gate opens, so that other calls wait on any machine."""
    connection = send(server, json.dumps({"input": [2, WAITS, 3]}).encode())
    wait_for(server, "cenote_running_sequences", 1)
    return connection


def assert_left(server: Server, path: str, num_requests: int) -> None:
    """Of so many requests whose clients left before the answer, nothing is done any more; one call holds the worker."""
    wait_for(server, "cenote_http_requests_total", num_requests, path=path, status="499")
    assert metric(server, "cenote_http_requests_total", path=path) == num_requests
    assert metric(server, "cenote_open_calls") == 1
    assert metric(server, "cenote_waiting_sequences") == 0
    num_left = metric(server, "cenote_requests_total") - 1
    assert metric(server, "cenote_calls_ended_total") == num_left
    assert metric(server, "cenote_calls_ended_total", end="cancelled") == num_left


def test_a_client_that_leaves_cancels_its_call(faulty: Server) -> None:
    holding = hold(faulty)
    for path in LONG_CALLS:
        with send(faulty, body_of(50, path), path):
            until(lambda: metric(faulty, "cenote_waiting_sequences") >= 50)
        assert_left(faulty, path, 1)
    send(faulty, body_of()).close()  # before it is watched, and while its body is read
    assert_left(faulty, "/v1/embeddings", 2)
    holding.close()  # while it runs, and is watched
    wait_for(faulty, "cenote_open_calls", 0)
    wait_for(faulty, "cenote_http_requests_total", 3, path="/v1/embeddings", status="499")
    faulty.open_gate()
    assert httpx.post(f"{faulty.url}/v1/embeddings", json={"input": "a"}, timeout=60).status_code == 200


def test_a_client_that_leaves_while_sending(faulty: Server) -> None:
    connection = send(faulty, b"")
    connection.close()
    place = urlsplit(faulty.url)
    half = socket.create_connection((place.hostname, place.port))
    half.sendall(
        b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    half.close()
    wait_for(faulty, "cenote_http_requests_total", 1, status="499")
    assert httpx.get(f"{faulty.url}/health").status_code == 200


def listens(server: Server) -> bool:
    place = urlsplit(server.url)
    try:
        socket.create_connection((place.hostname, place.port)).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_signal_lets_running_requests_finish(faulty: Server) -> None:
    answers: list[httpx.Response] = []
    inputs = [[2, *divmod(number, 50), 3] for number in range(2000)]

    def ask() -> None:
        answers.append(httpx.post(f"{faulty.url}/v1/embeddings", json={"input": inputs}, timeout=60))

    with hold(faulty):
        asking = threading.Thread(target=ask)
        asking.start()
        wait_for(faulty, "cenote_waiting_sequences", 2000)
        faulty.terminate()
        until(lambda: not listens(faulty))
        faulty.open_gate()
        asking.join(PATIENCE_S)
    assert [answer.status_code for answer in answers] == [200]
    assert len(answers[0].json()["data"]) == 2000
    code, log = faulty.end()
    assert code == 0, log
    assert "Traceback" not in log


def test_a_signal_stops_within_the_time_for_draining(folder: Path) -> None:
    with Server(folder, machine=SLOW_MACHINE, drain_s=0.2) as server:
        connection = send(server, body_of(20_000))
        wait_for(server, "cenote_open_calls", 1)
        server.terminate()
        code, log = server.end()
        connection.close()
    assert code == 0, log


def test_a_full_queue_says_when_to_come_back(folder: Path) -> None:
    waiting = json.dumps({"input": [2, *range(9, 29), 3]}).encode()
    machine = {"num_workers": 1, "max_queue_tokens": 10}
    with Server(folder, machine=machine, faulty=True) as server, hold(server), send(server, waiting):
        wait_for(server, "cenote_waiting_sequences", 1)
        refused = httpx.post(f"{server.url}/v1/embeddings", json={"input": "a " * 60}, timeout=60)
        server.open_gate()
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
