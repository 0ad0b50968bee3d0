"""A light HTTP client that keeps so many requests under way: a process of its own, so that it shares no lock.

One JSON line in, one out:

    {"port": ..., "path": ..., "bodies": [...], "connections": ..., "seconds": ..., "pause_s": ...}
        -> {"seconds": ..., "latencies_s": [...], "cpu_s": ...}

Each connection sends one body after another, waits for each answer, and `pause_s` before the next. After `seconds` none
is sent any more; the answers to those under way still count, as does the time until they are there.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import LoadFailed

_HEADER_END = b"\r\n\r\n"


def request(path: str, body: str) -> bytes:
    """The bytes of one request."""
    data = body.encode()
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    return head.encode() + _HEADER_END + data


class Connection(asyncio.Protocol):
    """One connection that stays open; `answered` tells each answer's seconds by `latencies_s`."""

    def __init__(self, requests: Iterator[bytes], end_s: float, pause_s: float) -> None:
        self.latencies_s: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests, self._end_s, self._pause_s = requests, end_s, pause_s
        self._head = b""
        self._missing = -1  # bytes of the answer's body that are still to come; -1 while the head is read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        if self._missing < 0:
            self._head += data
            if _HEADER_END not in self._head:
                return
            head, _, data = self._head.partition(_HEADER_END)
            self._head = b""
            self._missing = _content_length(head)
        self._missing -= len(data)
        if self._missing == 0:
            self._answered()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed a connection that waited for an answer"))

    def close(self) -> None:
        """Close it, whatever is under way."""
        self._transport.close()

    def _answered(self) -> None:
        self.latencies_s.append(time.perf_counter() - self._sent_s)
        self._missing = -1
        if time.perf_counter() >= self._end_s:
            self.done.set_result(None)
        elif self._pause_s:
            asyncio.get_running_loop().call_later(self._pause_s, self._send)
        else:
            self._send()

    def _send(self) -> None:
        self._sent_s = time.perf_counter()
        self._transport.write(next(self._requests))


def _content_length(head: bytes) -> int:
    status, *lines = head.split(b"\r\n")
    if status.split()[1] != b"200":
        raise ConnectionError(f"the server answered {status.decode()}")
    for line in lines:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    raise ConnectionError("the server answered without Content-Length")


async def run(
    port: int, path: str, bodies: Sequence[str], connections: int, seconds: float, pause_s: float
) -> dict[str, Any]:
    """Keep `connections` busy; see the module."""
    loop = asyncio.get_running_loop()
    requests = itertools.cycle([request(path, body) for body in bodies])
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    made = [
        (await loop.create_connection(lambda: Connection(requests, start_s + seconds, pause_s), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    try:
        await asyncio.gather(*(connection.done for connection in made))
    finally:
        for connection in made:
            connection.close()
        await asyncio.sleep(0)  # what closes does so in the loop's next turn
    return {
        "seconds": time.perf_counter() - start_s,
        "latencies_s": [one for connection in made for one in connection.latencies_s],
        "cpu_s": time.process_time() - start_cpu_s,
    }


@dataclass(frozen=True, slots=True)
class Answered:
    """What a client saw.

    Args:
        seconds: From the first request to the last answer.
        latencies_s: Of each request, sorted.
        cpu_s: Processor time of the client itself.
    """

    seconds: float
    latencies_s: tuple[float, ...]
    cpu_s: float

    def quantile_ms(self, share: float) -> float:
        """Latency that this share of the requests did not exceed."""
        return quantile(self.latencies_s, share) * 1e3


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Client:
    """The process, working from the start; `answered` waits for its end."""

    def __init__(
        self, port: int, path: str, bodies: Sequence[bytes], connections: int, seconds: float, pause_s: float = 0.0
    ) -> None:
        command = [sys.executable, "-m", "bench.client"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        order = {
            "port": port,
            "path": path,
            "bodies": [body.decode() for body in bodies],
            "connections": connections,
            "seconds": seconds,
            "pause_s": pause_s,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answered(self) -> Answered:
        """Wait for the end.

        Raises:
            LoadFailed: A request was not answered with 200.
        """
        out, _ = self._process.communicate()
        if self._process.returncode:
            raise LoadFailed(f"the client ended with {self._process.returncode}; its own message stands above")
        found = json.loads(out)
        return Answered(found["seconds"], tuple(sorted(found["latencies_s"])), found["cpu_s"])


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(**json.loads(sys.stdin.readline())))), flush=True)
