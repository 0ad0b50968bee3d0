"""`cenote entities` and `cenote zero-shot` against the offline API: lines, tables, failed inputs, refusals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cenote import LLM, Entity, ZeroShot
from support.texts import paragraphs

from .conftest import Cenote

if TYPE_CHECKING:
    from support.fixtures import Tiny

TEXTS = ["The class of an object.", "naïve statement", ""]
TAGS = ("O", "B-PER", "I-PER")
NLI = ("contradiction", "neutral", "entailment")
TOPICS = ["sport", "health", "politics", "art"]
QUIET: dict[str, Any] = {"use_tqdm": False}


@pytest.fixture(scope="module")
def labeller(tiny: Tiny) -> Iterator[LLM]:
    """A model that labels tokens."""
    with LLM(str(tiny("bert", head="token_classification", id2label=dict(enumerate(TAGS))))) as opened:
        yield opened


@pytest.fixture(scope="module")
def judge(tiny: Tiny) -> Iterator[LLM]:
    """A model of natural language inference."""
    with LLM(str(tiny("bert", head="sequence_classification", id2label=dict(enumerate(NLI))))) as opened:
        yield opened


def assert_finds(lines: str, expected: Sequence[Sequence[Entity]]) -> None:
    """Each line holds the entities of its text."""
    found = [json.loads(line)["entities"] for line in lines.splitlines()]
    near = [
        [{**one.as_dict(), "score": pytest.approx(one.score, abs=2e-6)} for one in entities] for entities in expected
    ]
    assert found == near


def test_arguments_become_entities(cenote: Cenote, labeller: LLM) -> None:
    command = ("entities", "--model", labeller.settings.model)
    result = cenote(*command, *TEXTS)
    assert_finds(result.stdout, labeller.entities(TEXTS, **QUIET))
    first = json.loads(result.stdout.splitlines()[0])
    assert list(first) == ["index", "entities", "tokens", "truncated"]
    assert first["tokens"] == labeller.engine.tokenizer.count(TEXTS[0])
    # Which labels a random model gives is not known before; all but its rarest are wanted.
    every = labeller.entities(TEXTS, aggregation="none", ignore_labels=[], **QUIET)
    rarest = Counter(one.label for found in every for one in found).most_common()[-1][0]
    expected = [[one for one in found if one.label != rarest] for found in every]
    wanted = ("--aggregation", "none", "--ignore-label", rarest)
    assert_finds(cenote(*command, *wanted, *TEXTS).stdout, expected)
    assert sum(map(len, every)) > 9


def test_long_texts_are_cut_or_read_in_windows(cenote: Cenote, labeller: LLM) -> None:
    command, texts = ("entities", "--model", labeller.settings.model), [paragraphs(1)[0], "a class"]
    windows = cenote(*command, "--stride", "8", *texts)
    assert_finds(windows.stdout, labeller.entities(texts, stride=8, **QUIET))
    cut = cenote(*command, *texts)
    assert_finds(cut.stdout, labeller.entities(texts, on_long="cut", **QUIET))
    lines = [[json.loads(line) for line in result.stdout.splitlines()] for result in (windows, cut)]
    told = [[(line["tokens"] > 70, line["truncated"]) for line in of_one] for of_one in lines]
    assert told == [[(True, False), (False, False)], [(False, True), (False, False)]]
    alone = cenote(*command, "--on-long", "refuse", "--errors", "skip", *texts)
    assert [json.loads(line)["index"] for line in alone.stdout.splitlines()] == [1]
    assert "1 failed" in alone.stderr


def test_the_text_is_shown_with_its_entities(cenote: Cenote, labeller: LLM) -> None:
    text = "[b]The class[/b]\nof an object"
    others = ("--ignore-label", "PER")
    result = cenote("entities", "--model", labeller.settings.model, "--format", "table", *others, text, COLUMNS="400")
    expected, done = "0  ", 0
    for one in labeller.entities(text, ignore_labels=["PER"], **QUIET):
        expected += f"{text[done : one.end]}[{one.label} {one.score:.2f}]"
        done = one.end
    assert result.stdout == (expected + text[done:]).replace("\n", " ") + "\n"
    assert done > 0


def assert_ranks(lines: str, expected: Sequence[ZeroShot]) -> None:
    """Each line holds the labels of its text, the likeliest first."""
    found = [json.loads(line) for line in lines.splitlines()]
    assert [list(line["probs"]) for line in found] == [one.labels for one in expected]
    assert [line["label"] for line in found] == [one.labels[0] for one in expected]
    for line, one in zip(found, expected, strict=True):
        np.testing.assert_allclose(list(line["probs"].values()), one.scores, atol=2e-6)


def test_any_labels_are_ranked(cenote: Cenote, judge: LLM, tmp_path: Path) -> None:
    command = ("zero-shot", "--model", judge.settings.model, "--labels", "sport, health", "--labels", "politics,art")
    assert_ranks(cenote(*command, *TEXTS).stdout, judge.zero_shot(TEXTS, TOPICS, **QUIET))
    several = cenote(*command, "--multi-label", "--hypothesis-template", "{}!", *TEXTS)
    expected = judge.zero_shot(TEXTS, TOPICS, multi_label=True, hypothesis_template="{}!", **QUIET)
    assert_ranks(several.stdout, expected)
    (tmp_path / "lines.txt").write_text(f"{TEXTS[0]}\n{paragraphs(1)[0]}\n", encoding="utf-8")
    refusing = ("--input", "lines.txt", "--on-long", "refuse", "--errors", "skip", "--output", "rows.npy")
    assert "1 failed" in cenote(*command, *refusing).stderr
    rows_NL = np.load(tmp_path / "rows.npy")
    first = judge.zero_shot(TEXTS[0], TOPICS, **QUIET)
    np.testing.assert_allclose(rows_NL[0], [first.scores[first.labels.index(topic)] for topic in TOPICS], atol=2e-6)
    assert np.isnan(rows_NL[1]).all()


def test_likely_labels_have_bars(cenote: Cenote, judge: LLM) -> None:
    command = ("zero-shot", "--model", judge.settings.model, "--labels", ",".join(TOPICS), "--format", "table")
    result = cenote(*command, "--top-k", "1", TEXTS[0], COLUMNS="120")
    best = judge.zero_shot(TEXTS[0], TOPICS, **QUIET)
    assert best.labels[0] in result.stdout
    assert f"{best.scores[0]:.4f}" in result.stdout
    assert result.stdout.count("█") == int(24 * best.scores[0])


def test_other_models_are_refused(cenote: Cenote, classifier: str, cross_encoder: str, tmp_path: Path) -> None:
    refused = cenote("entities", "--model", classifier, "a", "--output", "found.jsonl", expect=2)
    assert "finds no entities" in refused.stderr
    refused = cenote("zero-shot", "--model", cross_encoder, "--labels", "a", "a", "--output", "rows.npy", expect=2)
    assert "has one label" in refused.stderr
    assert list(tmp_path.iterdir()) == []
