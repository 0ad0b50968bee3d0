"""Labels of any kind, against transformers' zero-shot-classification pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import pipeline

from cenote import LLM, AsyncLLM, ZeroShot
from cenote.errors import BadInput, TooLong, UnsupportedTask
from support.fixtures import Tiny
from support.references import EXACT
from support.texts import paragraphs, short_texts

NLI = {0: "contradiction", 1: "neutral", 2: "ENTAILMENT"}
# Where entailment stands first, contradiction is the last label; a model of two labels has no neutral one.
TWO = {0: "entailment", 1: "not_entailment"}
TOPICS = ["politics", "public health", "économie", "{}"]
QUIET: dict[str, Any] = {"use_tqdm": False}


def classifier(tiny: Tiny, family: str, labels: dict[int, str]) -> Path:
    """A classifier of pairs whose labels have these names."""
    named = {"id2label": labels, "label2id": {label: number for number, label in labels.items()}}
    return tiny(family, head="sequence_classification", num_labels=len(labels), **named)


def reference(folder: Path) -> Callable[..., Any]:
    """transformers' pipeline, in float32."""
    found: Callable[..., Any] = pipeline(
        "zero-shot-classification", model=str(folder), device="cpu", model_kwargs=dict(EXACT)
    )
    return found


def assert_same(ours: list[ZeroShot], theirs: Any) -> None:
    """Check that labels are equal, in the same order, and their scores near."""
    assert [(one.sequence, one.labels) for one in ours] == [(one["sequence"], one["labels"]) for one in theirs]
    for one, expected in zip(ours, theirs, strict=True):
        assert one.scores == pytest.approx(expected["scores"], abs=1e-5)
        assert max(one.scores) - min(one.scores) > 1e-3


@pytest.fixture(scope="module")
def folder(tiny: Tiny) -> Path:
    """A model of natural language inference."""
    return classifier(tiny, "bert", NLI)


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    """It, opened."""
    with LLM(str(folder)) as opened:
        yield opened


@pytest.mark.parametrize(("family", "labels"), [("bert", NLI), ("roberta", TWO), ("deberta-v2", NLI)])
def test_labels_equal_the_reference(tiny: Tiny, family: str, labels: dict[int, str]) -> None:
    folder = classifier(tiny, family, labels)
    theirs, texts = reference(folder), short_texts(4)
    with LLM(str(folder)) as llm:
        for multi_label in (False, True):
            ours = llm.zero_shot(texts, TOPICS, multi_label=multi_label, **QUIET)
            assert_same(ours, theirs(texts, TOPICS, multi_label=multi_label))
        told = "What follows is about {}!"
        found = llm.zero_shot(texts[0], TOPICS, hypothesis_template=told, **QUIET)
        assert_same([found], [theirs(texts[0], TOPICS, hypothesis_template=told)])
        alone = llm.zero_shot(texts[1], "politics", **QUIET)
        assert alone.scores == pytest.approx(theirs(texts[1], "politics")["scores"], abs=1e-5)
        assert llm.zero_shot(texts[0], "a, b,", **QUIET) == llm.zero_shot(texts[0], ["a", "b"], **QUIET)


def test_a_long_text_gives_and_the_hypothesis_stays_whole(folder: Path, llm: LLM) -> None:
    texts = paragraphs(2)
    topics = [" ".join(["economy"] * 4), "sports"]
    with pytest.raises(TooLong):
        llm.zero_shot(texts, topics, **QUIET)
    assert_same(llm.zero_shot(texts, topics, on_long="cut", **QUIET), reference(folder)(texts, topics))
    # The reference gives up cutting there, and the model fails.
    with pytest.raises(TooLong, match=r"Text 0 with the label .economy .* cannot be cut to 70 tokens") as refused:
        llm.zero_shot(["a", "b"], ["x", "economy " * 90], on_long="cut", **QUIET)
    assert refused.value.index == 0


def test_an_error_names_the_text_and_the_label(llm: LLM) -> None:
    with pytest.raises(
        TooLong, match=r"^2 of 6 pairs have too many tokens for .*: text 1 with the label 'x' has"
    ) as two:
        llm.zero_shot(["a", "b " * 90, "c"], ["x", "y"], **QUIET)
    assert (two.value.index, two.value.offenders) == (1, (1,))
    assert "text 1 with the label 'y' has" in str(two.value)
    with pytest.raises(TooLong, match=r"^Text 2 with the label 'x' has \d+ tokens") as one:
        llm.zero_shot(["a", "b", "c " * 90], ["x"], **QUIET)
    assert one.value.index == 2


async def test_awaited_they_are_the_same(folder: Path, llm: LLM) -> None:
    texts = short_texts(2)
    async with AsyncLLM(str(folder)) as other:
        assert await other.zero_shot(texts, TOPICS) == llm.zero_shot(texts, TOPICS, **QUIET)
        assert await other.zero_shot(texts[0], "a,b", multi_label=True) == llm.zero_shot(
            texts[0], ["a", "b"], multi_label=True, **QUIET
        )


def test_without_an_entailment_the_last_label_is_taken_for_it(tiny: Tiny, caplog: pytest.LogCaptureFixture) -> None:
    folder = classifier(tiny, "bert", {0: "no", 1: "perhaps", 2: "yes"})
    texts = short_texts(2)
    with LLM(str(folder)) as llm:
        for multi_label in (False, True):
            ours = llm.zero_shot(texts, TOPICS, multi_label=multi_label, **QUIET)
            assert_same(ours, reference(folder)(texts, TOPICS, multi_label=multi_label))
    assert caplog.text.count("none of which begins with 'entail'; the last is taken for it") == 1


def test_equally_likely_labels_keep_their_order(llm: LLM) -> None:
    found = llm.zero_shot("a", ["b", "b", "b"], hypothesis_template="{}", **QUIET)
    assert found.scores == pytest.approx([1 / 3] * 3)
    assert llm.zero_shot("a", ["B", "b", "sports"], **QUIET).labels in (["B", "b", "sports"], ["sports", "B", "b"])


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([], {}, r"The labels are \[\]"),
        (" , ", {}, "At least one label"),
        (["a", 3], {}, "each a text"),
        (5, {}, "The labels are 5"),
        (["a"], {"hypothesis_template": "It is."}, "has no place for a label"),
    ],
)
def test_what_cannot_be_asked_for(llm: LLM, labels: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        llm.zero_shot("a", labels, **options)
    with pytest.raises(BadInput, match="Input 1 is of type int"):
        llm.zero_shot(["a", 1], "b")  # type: ignore[list-item]


def test_models_that_infer_nothing_are_refused(tiny: Tiny) -> None:
    for arguments, message in (
        ({"head": "base"}, "has no classifier of texts"),
        ({"head": "token_classification"}, "has no classifier of texts"),
        ({"head": "sequence_classification", "num_labels": 1}, "has one label"),
    ):
        with LLM(str(tiny("bert", **arguments))) as llm, pytest.raises(UnsupportedTask, match=message):
            llm.zero_shot("a", "b")
