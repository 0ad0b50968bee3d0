"""Short requests beside large ones: how long they wait, and what they cost the large ones."""

from __future__ import annotations

import time
from pathlib import Path

from .client import Answered, Client
from .parts import Aim, Part, Table
from .servers import CENOTE, Kind, Server, served
from .texts import Workload

TEXT = "Packed batches waste nothing on padding."
BULK_TEXTS = 2048
COLUMNS = ("one short text", "p50", "p99", "most", "requests")

_BATCH_TOKENS = 1024
_PAUSE_S = 0.1
_MOST_LOSS = 0.15
_BESIDE_ONE = 3.0
_CACHE_BYTES = 256 * 2**20


def mixed(workload: Workload, seconds: float, threads: int, output: Path) -> Part:
    """A client of large requests and one of single texts on one server.

    Args:
        workload: What the large requests are made of.
        seconds: How long each measurement lasts, at least.
        threads: Workers of the server.

    Raises:
        LoadFailed: The server could not be started, or did not answer.
    """
    repeats = -(-BULK_TEXTS // len(workload.texts))
    # Numbered, as equal texts of one request run once.
    texts = [f"{number}. {text}" for number in range(repeats) for text in workload.texts][:BULK_TEXTS]
    num_tokens = (sum(workload.num_tokens) / len(workload.texts) + 2) * BULK_TEXTS
    with served(output / "serve-mixed.log") as server:
        server.embed(texts[:256])
        idle = _short(server, seconds)
        alone = _bulk(server, texts, 3 * seconds).answered()
        bulk = _bulk(server, texts, 4 * seconds)
        time.sleep(seconds / 2)
        beside = _short(server, 3 * seconds)
        slowed = bulk.answered()
    alone_s, slowed_s = (answered.seconds / len(answered.latencies_s) for answered in (alone, slowed))
    batch_ms = _BATCH_TOKENS / (num_tokens / alone_s / threads) * 1e3
    large_idle, large_beside = _beside_one_answer(texts, seconds, output)
    rows = (
        _row("on an idle server", idle),
        _row(f"beside requests of {BULK_TEXTS:,} texts", beside),
        _row("on an idle server with a cache", large_idle),
        _row("beside one large answer after the other, from the cache", large_beside),
    )
    aims = [
        Aim(
            f"p99 beside requests of {BULK_TEXTS:,} texts (one batch takes {batch_ms:.0f} ms)",
            beside.quantile_ms(0.99),
            batch_ms + 2 * idle.quantile_ms(0.5),
            unit=" ms",
        ),
        Aim("what the large requests lose by it", 1 - alone_s / slowed_s, _MOST_LOSS, unit=""),
        Aim(
            "p50 beside a large answer / idle", large_beside.quantile_ms(0.5) / large_idle.quantile_ms(0.5), _BESIDE_ONE
        ),
        Aim(
            "p99 beside a large answer / idle",
            large_beside.quantile_ms(0.99) / large_idle.quantile_ms(0.5),
            _BESIDE_ONE,
        ),
    ]
    raw = {"batch_ms": batch_ms, "bulk_alone_s": alone.latencies_s, "bulk_beside_s": slowed.latencies_s}
    return Part("mixed", [Table("Short requests beside large ones", COLUMNS, rows)], aims, [], raw)


def _beside_one_answer(texts: list[str], seconds: float, output: Path) -> tuple[Answered, Answered]:
    """Single texts while a large answer is written again and again that the model need not compute."""
    kind = Kind(CENOTE.title, (*CENOTE.command, "--cache-bytes", str(_CACHE_BYTES)))
    with served(output / "serve-cached.log", kind) as server:
        server.embed(texts)
        idle = _short(server, seconds)
        body = server.body(texts).replace(b"base64", b"float")
        client = Client(server.port, server.kind.path, [body], 1, 2 * seconds)
        time.sleep(seconds / 4)
        beside = _short(server, seconds)
        client.answered()
    return idle, beside


def _bulk(server: Server, texts: list[str], seconds: float) -> Client:
    return Client(server.port, server.kind.path, [server.body(texts)], 1, seconds)


def _short(server: Server, seconds: float) -> Answered:
    bodies = [server.body([f"{TEXT} {number}"]) for number in range(1000)]
    return Client(server.port, server.kind.path, bodies, 1, seconds, _PAUSE_S).answered()


def _row(title: str, answered: Answered) -> tuple[str, ...]:
    p50, p99, most = (f"{answered.quantile_ms(share):.1f} ms" for share in (0.5, 0.99, 1.0))
    return title, p50, p99, most, str(len(answered.latencies_s))
