"""`cenote bench` against the real server: what it counts is what the server counts."""

from __future__ import annotations

from pathlib import Path

import httpx
import orjson
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from cenote.cli.app import app

from .conftest import KEY, NAME, Kind
from .running import Server


def bench(tmp_path: Path, *flags: str) -> dict[str, object]:
    """The figures of the only run."""
    path = tmp_path / "run.json"
    always = ("--warmup", "0", "--words", "2-6", "--json", str(path))
    result = CliRunner().invoke(app, ["bench", *flags, *always], prog_name="cenote")
    assert result.exit_code == 0, result.output
    found = orjson.loads(path.read_bytes())
    (run,) = found.pop("runs")
    return {**found, **run}


def counted(url: str, name: str) -> float:
    """A counter of the server."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


@pytest.mark.parametrize("dialect", ["openai", "tei"])
def test_counts_are_the_server_s(server: Server, tmp_path: Path, dialect: str) -> None:
    names = ("cenote_requests_total", "cenote_inputs_total")
    before = [counted(server.url, name) for name in names]
    flags = ("--requests", "40", "--concurrency", "5", "--texts-per-request", "3", "--dialect", dialect)
    run = bench(tmp_path, server.url, *flags)
    grown = [counted(server.url, name) - earlier for name, earlier in zip(names, before, strict=True)]
    assert grown == [41, 41 * 3]  # and the first request, which checks the dialect
    assert (run["answered"], run["failed"], run["texts"]) == (40, 0, 120)
    assert isinstance(run["tokens"], int)
    assert run["tokens"] > 120
    assert set(run["server_ms"]) == {"total", "queue", "tokenization", "inference"}  # type: ignore[call-overload]
    if dialect == "openai":
        assert run["model"] == NAME


def test_the_dialect_of_a_cross_encoder_is_found(cross_encoder: Kind, tmp_path: Path) -> None:
    run = bench(tmp_path, cross_encoder.server.url, "--requests", "5", "--concurrency", "2")
    assert (run["dialect"], run["answered"], run["texts"]) == ("rerank", 5, 80)
    ranked = bench(tmp_path, cross_encoder.server.url, "--requests", "5", "--dialect", "tei-rerank")
    assert (ranked["dialect"], ranked["answered"]) == ("tei-rerank", 5)


def test_a_key_is_needed_where_the_server_wants_one(guarded: Server, tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["bench", guarded.url], prog_name="cenote")
    assert refused.exit_code == 1
    assert "HTTP 401" in refused.output
    run = bench(tmp_path, guarded.url, "--requests", "3", "--api-key", KEY)
    assert run["answered"] == 3
