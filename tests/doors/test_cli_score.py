"""`cenote score` and `cenote rerank` against the offline API: every way of scoring, failures, rankings, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cenote import LLM
from cenote.cli.bars import scale, share
from cenote.cli.scores import Ranking
from cenote.cli.sinks import Result
from cenote.cli.sources import Record

from .conftest import Cenote

if TYPE_CHECKING:
    from support.fixtures import TinySentence

QUERY = "who eats mice"
TEXTS = ["cars do not", "cats do", "", "the mat of the cat is warm"]
LONG = "word " * 100


@pytest.fixture(scope="session")
def bi_encoder(tiny_sentence: TinySentence) -> str:
    return str(tiny_sentence(normalize=True))


@pytest.fixture(params=["cross-encoder", "bi-encoder", "late-interaction"])
def scorer(request: pytest.FixtureRequest, cross_encoder: str, bi_encoder: str) -> tuple[str, str]:
    """A model and the way it scores."""
    return (cross_encoder if request.param == "cross-encoder" else bi_encoder), request.param


def scores(model: str, query: Any, texts: list[str], **options: Any) -> list[float]:
    with LLM(model, on_long="cut") as llm:
        return [output.outputs.score for output in llm.score(query, texts, use_tqdm=False, **options)]


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_texts_are_scored_against_a_query(cenote: Cenote, scorer: tuple[str, str]) -> None:
    model, kind = scorer
    lines = lines_of(cenote("score", "--model", model, "--score-type", kind, "--query", QUERY, *TEXTS, LONG).stdout)
    assert list(lines[0]) == ["index", "score", "tokens", "truncated"]
    assert [line["index"] for line in lines] == [0, 1, 2, 3, 4]
    assert [line["truncated"] for line in lines] == [False] * 4 + [True]
    expected = scores(model, QUERY, [*TEXTS, LONG], score_type=kind)
    np.testing.assert_allclose([line["score"] for line in lines], expected, rtol=2e-6, atol=2e-6)


def test_a_text_that_fails_fails_alone(cenote: Cenote, scorer: tuple[str, str]) -> None:
    model, kind = scorer
    command = ("score", "--model", model, "--score-type", kind, "--query", QUERY, "--on-long", "refuse")
    stopped = cenote(*command, TEXTS[0], LONG, TEXTS[1], expect=2)
    assert stopped.stderr.startswith("error: Input 1 has ")
    result = cenote(*command, TEXTS[0], LONG, TEXTS[1], "--errors", "skip")
    lines = lines_of(result.stdout)
    assert [line["index"] for line in lines] == [0, 2]
    expected = scores(model, QUERY, TEXTS[:2], score_type=kind)
    np.testing.assert_allclose([line["score"] for line in lines], expected, rtol=2e-6, atol=2e-6)
    assert "failed: input 1: Input 1 has " in result.stderr
    assert "2 failed" in cenote(*command, LONG, LONG, "--errors", "skip").stderr


def test_lines_with_two_fields_are_scored_pair_by_pair(
    cenote: Cenote, cross_encoder: str, bi_encoder: str, tmp_path: Path
) -> None:
    queries = ["cats", "mats", "cats", "warm"]
    records = [{"id": n, "query": q, "body": t} for n, (q, t) in enumerate(zip(queries, TEXTS, strict=True), 7)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for model in (cross_encoder, bi_encoder):
        command = ("score", "--model", model, "--input", "pairs.jsonl", "--field", "body")
        lines = lines_of(cenote(*command).stdout)
        assert [line["id"] for line in lines] == [7, 8, 9, 10]
        expected = scores(model, queries, TEXTS)
        np.testing.assert_allclose([line["score"] for line in lines], expected, rtol=2e-6, atol=2e-6)
    swapped = cenote(*command, "--query-field", "body", "--field", "query")
    np.testing.assert_allclose([line["score"] for line in lines_of(swapped.stdout)], expected, atol=2e-6)


def test_options_reach_the_scoring(cenote: Cenote, cross_encoder: str, tmp_path: Path) -> None:
    command = ("score", "--model", cross_encoder, "--query", QUERY, *TEXTS)
    raw = [line["score"] for line in lines_of(cenote(*command, "--raw").stdout)]
    np.testing.assert_allclose(raw, scores(cross_encoder, QUERY, TEXTS, use_activation=False), rtol=2e-6, atol=2e-6)
    limits = {"max_tokens_per_query": 1, "max_tokens_per_doc": 2}
    flags = [part for name, most in limits.items() for part in ("--" + name.replace("_", "-"), str(most))]
    cenote(*command, *flags, "--output", "scores.npy")
    cut = np.load(tmp_path / "scores.npy")
    assert cut.shape == (4, 1)
    np.testing.assert_allclose(cut[:, 0], scores(cross_encoder, QUERY, TEXTS, **limits), rtol=2e-6, atol=2e-6)
    assert np.abs(cut[:, 0] - scores(cross_encoder, QUERY, TEXTS)).max() > 1e-4


def test_the_table_of_scores_has_bars(cenote: Cenote, cross_encoder: str) -> None:
    command = ("score", "--model", cross_encoder, "--format", "table", "--query", QUERY, *TEXTS)
    result = cenote(*command, COLUMNS="120")
    for part in (QUERY, *TEXTS, "0 to 1", *(f"{score:.4f}" for score in scores(cross_encoder, QUERY, TEXTS))):
        assert part in result.stdout
    assert "█" in result.stdout


def test_a_ranking_is_that_of_the_offline_api(cenote: Cenote, scorer: tuple[str, str], tmp_path: Path) -> None:
    model, kind = scorer
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps({"text": text, "id": text}) + "\n" for text in TEXTS))
    command = ("rerank", "--model", model, "--score-type", kind, QUERY, "--input", "docs.jsonl")
    lines = lines_of(cenote(*command).stdout)
    with LLM(model) as llm:
        expected = llm.rerank(QUERY, TEXTS, score_type=kind, use_tqdm=False)
    assert list(lines[0]) == ["index", "id", "rank", "score", "text", "tokens", "truncated"]
    assert [line["rank"] for line in lines] == [1, 2, 3, 4]
    assert [(line["index"], line["text"], line["id"]) for line in lines] == [
        (result.index, result.document, result.document) for result in expected
    ]
    np.testing.assert_allclose([line["score"] for line in lines], [e.score for e in expected], rtol=2e-6, atol=2e-6)
    best = lines_of(cenote(*command, "--top-n", "2", "--output", "best.jsonl").stdout)
    assert best == []
    assert lines_of((tmp_path / "best.jsonl").read_text()) == lines[:2]
    above = cenote(*command, "--min-score", str(lines[2]["score"] + 1e-4))
    assert [line["rank"] for line in lines_of(above.stdout)] == [1, 2]


def test_a_ranking_does_without_texts_that_fail(cenote: Cenote, bi_encoder: str) -> None:
    command = ("rerank", "--model", bi_encoder, "cats", "--on-long", "refuse")
    assert "Input 0 has" in cenote(*command, stdin=f"{LONG}\nmats\ncats\n", expect=2).stderr
    result = cenote(*command, "--errors", "skip", stdin=f"{LONG}\nmats\ncats\n")
    assert [(line["index"], line["text"]) for line in lines_of(result.stdout)] == [(2, "cats"), (1, "mats")]
    assert "1 failed" in result.stderr
    assert cenote(*command, "--errors", "skip", LONG).stdout == ""


def test_the_table_of_a_ranking_starts_with_the_best(cenote: Cenote, bi_encoder: str) -> None:
    result = cenote("rerank", "--model", bi_encoder, "--format", "table", "cats", "[b]mats[/b]", "cats", COLUMNS="120")
    assert result.stdout.index("1.0000") < result.stdout.index("[b]mats[/b]")
    assert "█" * 23 in result.stdout  # the cosine of equal texts may be 1 less a rounding
    command = ("rerank", "--model", bi_encoder, "--format", "table", "cats", *(f"text {n}" for n in range(25)))
    assert "and 5 more" in cenote(*command).stdout
    assert "more" not in cenote(*command, "--top-n", "24").stdout


def test_a_finished_ranking_is_overwritten_by_force_alone(cenote: Cenote, bi_encoder: str, tmp_path: Path) -> None:
    command = ("rerank", "--model", bi_encoder, "cats", "mats", "--output", "best.jsonl")
    cenote(*command)
    assert "--force" in cenote(*command, "cats", expect=2).stderr
    cenote(*command, "cats", "--force")
    assert [line["text"] for line in lines_of((tmp_path / "best.jsonl").read_text())] == ["cats", "mats"]


def test_what_an_activation_rounds_together_is_ranked_by_its_logits() -> None:
    ranking = Ranking()
    results = [Result(Record(at, text, 0)) for at, text in enumerate("abc")]
    ranking.write(results, np.array([[1, 19], [1, 21], [0.5, 0]], np.float32))
    assert [document.document for document in ranking.best(2, None)] == ["b", "a"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["score", "a", "b"], "Give it with --query"),
        (["score", "--query", "a", "--query-field", "b", "c"], "both given"),
        (["score", "--query", "a"], "There is no text"),
        (["score", "--query", "a", "b", "--score-type", "none"], "'bi-encoder', 'cross-encoder'"),
        (["score", "--query", "a", "b", "--max-tokens-per-doc", "70"], "must be less than max_model_len (70)"),
        (["score", "--query", "a", "b", "--score-type", "cross-encoder"], "is no cross-encoder"),
        (["rerank", "a", "b", "--top-n", "-1"], "--top-n"),
        (["rerank", "a", "b", "--min-score", "nan"], "min_score=nan. It is a number."),
        (["rerank", "a", "b", "--output", "best.npy"], "Known are .jsonl, .ndjson"),
        (["rerank"], "QUERY"),
    ],
)
def test_bad_requests_write_nothing(
    cenote: Cenote, bi_encoder: str, tmp_path: Path, arguments: list[str], said: str
) -> None:
    output = [] if "--output" in arguments else ["--output", "scores.jsonl"]
    refused = cenote(*arguments, "--model", bi_encoder, *output, expect=2)
    assert said in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_classifier_of_several_labels_does_not_score(cenote: Cenote, classifier: str) -> None:
    refused = cenote("rerank", "--model", classifier, "a", "b", expect=2)
    assert "num_labels == 1" in refused.stderr


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([0.2, 0.9], (0.0, 1.0)),
        ([-0.3, 1.0000001], (0.0, 1.0)),
        ([-2.0, 3.0], (-2.0, 3.0)),
        ([-3.0, -2.0], (-3.0, -2.0)),
        ([7.0], (6.0, 7.0)),
        ([], (0.0, 1.0)),
    ],
)
def test_bars_fit_the_values(values: list[float], ends: tuple[float, float]) -> None:
    assert scale(values) == ends
    assert [share(value, ends) for value in (ends[0] - 1, ends[0], sum(ends) / 2, ends[1], ends[1] + 1)] == [
        0.0, 0.0, 0.5, 1.0, 1.0,
    ]  # fmt: skip
