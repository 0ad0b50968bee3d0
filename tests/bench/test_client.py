"""The light client, and how servers are watched, against small servers of the standard library."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from bench.client import Answered, quantile, run
from bench.servers import CENOTE, Peak, Server


@contextmanager
def answering(status: int = 200) -> Iterator[tuple[int, list[bytes]]]:
    """A server that keeps connections and the bodies that it got; its answers come in two pieces."""
    bodies: list[bytes] = []

    class Echo(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            for _ in range(2):
                self.wfile.write(b"x" * 50_000)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1], bodies
    finally:
        server.shutdown()
        server.server_close()


def test_every_connection_takes_its_turn_with_the_bodies() -> None:
    with answering() as (port, bodies):
        found = asyncio.run(run(port, "/v1/embeddings", ["a", "bc"], 3, 0.3, 0.0))
    assert set(bodies) == {b"a", b"bc"}
    assert abs(bodies.count(b"a") - bodies.count(b"bc")) <= 1
    assert len(found["latencies_s"]) == len(bodies) >= 3
    assert found["seconds"] >= 0.3
    assert 0 < min(found["latencies_s"]) <= found["seconds"]


def test_a_pause_leaves_time_between_requests() -> None:
    with answering() as (port, bodies):
        asyncio.run(run(port, "/", ["a"], 1, 0.25, 0.1))
    assert 2 <= len(bodies) <= 4


def test_an_answer_that_is_an_error_ends_the_run() -> None:
    with answering(status=503) as (port, _), pytest.raises(ConnectionError, match=r"answered HTTP/1\.1 503"):
        asyncio.run(run(port, "/", ["a"], 1, 0.2, 0.0))


def test_quantiles() -> None:
    values = [float(value) for value in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile(values, 1.0)) == (51.0, 100.0, 100.0)
    assert Answered(1.0, (0.5,), 0.0).quantile_ms(0.99) == 500.0


def test_processor_time_and_the_peak_of_memory_are_those_of_the_process() -> None:
    server = Server(CENOTE, 0, os.getpid())
    before_s = server.cpu_s()
    with Peak(os.getpid(), every_s=0.001) as peak:
        held = bytearray(os.urandom(1) * (64 * 2**20))
        while server.cpu_s() - before_s < 0.05:
            held[0] = sum(range(1000)) % 256
    assert peak.mib - peak.before_mib > 32


def test_a_request_holds_the_texts_and_the_model() -> None:
    assert json.loads(Server(CENOTE, 0, 1).body(["a"])) == {"model": "", "input": ["a"], "encoding_format": "base64"}
