"""`cenote bench` against a server that is none of ours and that keeps count itself."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest

from support.answering import Answering

if TYPE_CHECKING:
    from .conftest import Cenote

SHORT = ("--warmup", "0", "--words", "3-9", "--json", "run.json")


def figures(path: Path = Path("run.json")) -> dict[str, Any]:
    """What the command wrote."""
    found: dict[str, Any] = orjson.loads(path.read_bytes())
    return found


def test_every_request_is_answered_or_failed_exactly_once(cenote: Cenote) -> None:
    # By its number: every fifth is refused, every seventh lacks a result, every eleventh is cut off.
    def plan(number: int) -> tuple[int, float, int]:
        if number and number % 11 == 0:
            return 0, 0.0, 0
        return (429, 0.0, 0) if number and number % 5 == 0 else (200, 0.0, int(number % 7 == 6))

    with Answering(plan) as server:
        cenote("bench", server.url, "--requests", "200", "--concurrency", "7", "--texts-per-request", "3", *SHORT)
    (run,) = figures()["runs"]
    planned = Counter({0: 0}) + Counter(plan(number)[0] for number in range(1, 201))
    lacking = sum(plan(number) == (200, 0.0, 1) for number in range(1, 201))
    assert server.statuses == planned + Counter([200])  # and the first request, which found out the dialect
    counts = {kind: failures["count"] for kind, failures in run["failures"].items()}
    assert counts == {"HTTP 429": planned[429], "wrong answer": lacking, "connection lost": planned[0]}
    assert run["failures"]["HTTP 429"]["first"] == '{"error":"told to"}'
    assert run["failures"]["wrong answer"]["first"] == "2 results for 3 texts."
    assert (run["requests"], run["failed"]) == (200, sum(counts.values()))
    assert run["answered"] == 200 - run["failed"]
    assert run["texts"] == 3 * run["answered"]
    assert run["requests_per_s"] == pytest.approx(run["answered"] / run["seconds"])
    answered = [body for number, body in enumerate(server.bodies) if number and plan(number) == (200, 0.0, 0)]
    assert run["tokens"] == sum(len(text.split()) for body in answered for text in body["input"])


def test_latency_is_that_of_the_answers_and_the_server_s_times_are_shown(cenote: Cenote) -> None:
    with Answering(lambda number: (200, 0.2 if number % 10 == 0 else 0.0, 0)) as server:
        result = cenote("bench", f"{server.url}/embed", "--requests", "100", "--concurrency", "1", *SHORT)
    (run,) = figures()["runs"]
    # One request in ten takes 200 ms, those after it none of that.
    assert run["latency_ms"]["p95"] >= 200
    assert run["latency_ms"]["p99"] <= run["latency_ms"]["max"]
    assert run["latency_ms"]["mean"] >= 20
    assert run["server_ms"]["queue"] == {"p50": 3.0, "p90": 3.0, "p95": 3.0, "p99": 3.0, "max": 3.0}
    assert run["server_ms"]["inference"]["p99"] == 7.5
    assert run["tokens"] == sum(len(text.split()) for body in server.bodies[1:] for text in body["inputs"])
    assert "inference" in result.stdout
    assert "(tei)" in result.stdout


def test_a_stall_is_not_hidden_from_requests_that_were_due_in_it(cenote: Cenote) -> None:
    # One connection, and one request that takes a second: 50 more are due in that second.
    with Answering(lambda number: (200, 1.0 if number == 10 else 0.0, 0)) as server:
        flags = ("--rate", "50", "--arrivals", "constant", "--max-in-flight", "1", "--requests", "100")
        cenote("bench", server.url, *flags, *SHORT)
        open_loop = figures()["runs"][0]
    assert open_loop["answered"] == 100
    assert open_loop["latency_ms"]["max"] >= 1000
    # Of the 100, about 25 had to wait half a second or longer; a closed loop would show one.
    assert open_loop["latency_ms"]["p90"] >= 500
    # They were sent late, for want of a connection, and that is told.
    assert open_loop["late_ms"]["max"] >= 900


def test_poisson_arrivals_are_those_of_their_rate_and_seed() -> None:
    from cenote.loadgen.loads import Open

    def gaps(load: Open, seed: int) -> Any:
        times = load.due_s(seed)
        return np.diff([next(times) for _ in range(5000)])

    random = Open(20.0, "poisson", 8)
    assert gaps(random, 1).mean() == pytest.approx(0.05, rel=0.1)
    assert gaps(random, 1).std() == pytest.approx(0.05, rel=0.1)
    assert (gaps(random, 1) == gaps(random, 1)).all()
    assert (gaps(random, 1) != gaps(random, 2)).any()
    np.testing.assert_allclose(gaps(Open(20.0, "constant", 8), 1), 0.05)


def test_several_loads_become_a_table_and_a_picture(cenote: Cenote) -> None:
    with Answering() as server:
        loads = ("--concurrency", "1,4", "--requests", "20", "--plot", "curve.png")
        result = cenote("bench", server.url, *loads, *SHORT)
        cenote("bench", server.url, "--rate", "200", "--requests", "20", "--plot", "time.png", *SHORT)
    assert "1 at once" in result.stdout
    assert "4 at once" in result.stdout
    for name in ("curve.png", "time.png"):
        assert Path(name).read_bytes().startswith(b"\x89PNG")
    assert figures()["runs"][0]["load"] == "200/s poisson"


def test_the_warm_up_counts_by_itself(cenote: Cenote) -> None:
    with Answering(lambda number: (200, 0.01, 0)) as server:
        cenote("bench", server.url, "--requests", "5", "--warmup", "0.2", "--json", "run.json")
    (run,) = figures()["runs"]
    assert run["requests"] == 5
    assert run["warmup_requests"] == len(server.bodies) - 1 - 5 > 0


def test_equal_seeds_ask_for_equal_texts_of_the_wanted_length(cenote: Cenote) -> None:
    asked = []
    for seed in ("1", "1", "2"):
        with Answering() as server:
            cenote("bench", server.url, "--requests", "30", "--concurrency", "1", "--seed", seed, *SHORT)
        asked.append([body["input"] for body in server.bodies])
    assert asked[0] == asked[1] != asked[2]
    lengths = {len(text.split()) for texts in asked[0] for text in texts}
    assert lengths <= set(range(3, 10))
    assert len(lengths) > 3


def test_texts_of_a_file_a_query_and_further_fields_are_sent(cenote: Cenote) -> None:
    texts = ['He said "no".', "ein Käse\\", "three"]
    Path("texts.jsonl").write_text("".join(f"{orjson.dumps({'body': text}).decode()}\n" for text in texts))
    with Answering(routes={"/v1/rerank": "rerank"}) as server:
        cenote(
            *("bench", server.url, "--input", "texts.jsonl", "--field", "body", "--query", 'a "question"'),
            *("--texts-per-request", "3", "--body", '{"top_n": 2}', "--model", "mine", "--api-key", "k"),
            *("--header", "Cache-Control: no-cache", "--header", "x-secret:s3cret"),
            *("--requests", "4", "--warmup", "0", "--json", "run.json"),
        )
    for body in server.bodies:
        assert sorted(body.pop("documents")) == sorted(texts)
        assert body == {"model": "mine", "top_n": 2, "query": 'a "question"'}
    assert figures()["dialect"] == "rerank"
    for headers in server.headers:
        assert headers[b"authorization"] == b"Bearer k"
        assert (headers[b"cache-control"], headers[b"x-secret"]) == (b"no-cache", b"s3cret")
    written = Path("run.json").read_text()
    assert '"k"' not in written
    assert "s3cret" not in written


def test_nothing_is_claimed_of_a_server_that_answers_no_dialect(cenote: Cenote) -> None:
    with Answering(lambda number: (500, 0.0, 0)) as server:
        result = cenote("bench", server.url, expect=1)
    for told in ("openai at /v1/embeddings: HTTP 500", "tei at /embed: HTTP 500", "tei-rerank at /rerank: HTTP 500"):
        assert told in result.stderr
    gone = cenote("bench", server.url, expect=1)
    assert gone.stderr.count("no connection") == 1


def test_a_run_without_an_answer_fails(cenote: Cenote) -> None:
    with Answering(lambda number: (200 if number == 0 else 503, 0.0, 0)) as server:
        result = cenote("bench", server.url, "--requests", "6", *SHORT, expect=1)
    assert "None of 6 requests was answered" in result.stderr
    assert figures()["runs"][0]["failures"]["HTTP 503"]["count"] == 6


def test_a_request_over_its_time_has_failed(cenote: Cenote) -> None:
    with Answering(lambda number: (200, 1.0 if number == 3 else 0.0, 0)) as server:
        flags = ("--requests", "6", "--concurrency", "1", "--timeout", "0.4")
        cenote("bench", server.url, *flags, *SHORT)
    (run,) = figures()["runs"]
    assert {kind: failures["count"] for kind, failures in run["failures"].items()} == {"timeout": 1}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--concurrency", "4", "--rate", "5"), "--concurrency and --rate exclude each other. Give one of them."),
        (("--duration", "4", "--requests", "5"), "--duration and --requests exclude each other."),
        (("--words", "4", "--input", "x"), "--words and --input exclude each other."),
        (("--field", "text"), "--field names a field of --input"),
        (("--words", "9-3"), "Texts of 9 to 3 words. The prose gives texts of 1 to"),
        (("--words", "many"), "'many' is no number of words. Write 50, or 8-64"),
        (("--concurrency", "1,0"), "'1,0' is no list of positive numbers."),
        (("--rate", "inf"), "'inf' is no list of positive numbers."),
        (("--body", "[]"), "It is a JSON object."),
        (("--header", "x"), "'x' is no header. Write it as 'NAME: VALUE'."),
        (("--input", "nowhere.txt"), "nowhere.txt"),
        (("--json", "nowhere/run.json"), "There is no folder nowhere."),
        (("--json", "run.json", "--plot", "./run.json"), "--json and --plot both name run.json."),
        (("--json", "texts.txt", "--input", "texts.txt"), "texts.txt is an input and would be overwritten."),
        (("--duration", "nan"), "nan is no number of seconds."),
        (("--warmup", "inf"), "inf is no number of seconds."),
        (("--timeout", "nan"), "nan is no number of seconds."),
        (("--api-key", "a\nb"), "--api-key has a control character."),
    ],
)
def test_wrong_flags_are_told_before_anything_is_asked(cenote: Cenote, flags: tuple[str, ...], said: str) -> None:
    with Answering() as server:
        result = cenote("bench", server.url, *flags, expect=2)
    assert said in result.stderr
    assert not server.bodies


@pytest.mark.parametrize("url", ["ftp://host", "host:8000", "http://", "http://[::1", "http://host:99999"])
def test_a_url_of_another_kind_is_refused(cenote: Cenote, url: str) -> None:
    assert f"{url} is no URL of a server." in cenote("bench", url, expect=2).stderr


def test_a_password_in_a_url_is_refused_and_not_repeated(cenote: Cenote) -> None:
    stderr = cenote("bench", "http://me:secret@127.0.0.1:1", expect=2).stderr
    assert "The URL holds a name or a password." in stderr
    assert "secret" not in stderr


def test_the_query_of_a_url_stays_behind_the_path(cenote: Cenote) -> None:
    with Answering(routes={"/v1/embeddings": "openai"}) as server:
        for url in (f"{server.url}/?api-version=2#top", f"{server.url}/v1/embeddings?api-version=2"):
            cenote("bench", url, "--requests", "2", *SHORT)
            assert figures()["url"] == f"{server.url}/v1/embeddings?api-version=2"
    assert len(server.bodies) == 6


@pytest.mark.parametrize(("module", "extra"), [("aiohttp", "cli"), ("matplotlib", "plot")])
def test_a_missing_extra_is_named(cenote: Cenote, monkeypatch: pytest.MonkeyPatch, module: str, extra: str) -> None:
    for name in [name for name in sys.modules if name.startswith("cenote.loadgen")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    result = cenote("bench", "http://127.0.0.1:1", "--plot", "a.png", expect=2)
    assert f"pip install 'cenote[{extra}]'" in result.stderr
