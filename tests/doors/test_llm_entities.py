"""Entities against transformers' token-classification pipeline, and where they stand in texts of any script."""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import pipeline

from cenote import LLM, AsyncLLM, Entity
from cenote.errors import BadInput, NotFinite, TooLong, UnsupportedTask
from cenote.uses.entities import Aggregation
from support.fixtures import Tiny
from support.references import EXACT
from support.texts import edge_texts, paragraphs, short_texts

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
FAMILIES = ("bert", "roberta", "xlm-roberta")
QUIET: dict[str, Any] = {"use_tqdm": False}
ACUTE = "\N{COMBINING ACUTE ACCENT}"
WORDS = ("Jean", "class", f"cla{ACUTE}ss", f"cafe{ACUTE}", "İstanbul", "🙂🙂", "мир", "Zo\N{COMBINING DIAERESIS}e", "x")
pytestmark = pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")


def labeller(tiny: Tiny, family: str) -> Path:
    """A tiny model that labels tokens with `LABELS`."""
    return tiny(family, head="token_classification", num_labels=len(LABELS), id2label=dict(enumerate(LABELS)))


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """One with words that are marked, one of bytes, one of pieces."""
    return str(request.param)


@pytest.fixture(scope="module")
def folder(tiny: Tiny, family: str) -> Path:
    """A labeller of that family."""
    return labeller(tiny, family)


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    """It, opened."""
    with LLM(str(folder)) as opened:
        yield opened


@pytest.fixture(scope="module")
def reference(folder: Path) -> Callable[..., Any]:
    """transformers' pipeline, in float32."""
    found: Callable[..., Any] = pipeline(
        "token-classification", model=str(folder), device="cpu", model_kwargs=dict(EXACT)
    )
    return found


def assert_same(ours: list[list[Entity]], theirs: Any, *, words: bool = True) -> None:
    """Check that entities are equal; `words` in every space, else but for spaces."""

    def plain(said: dict[str, Any]) -> dict[str, Any]:
        word = said["word"] if words else said["word"].replace(" ", "")
        return {**said, "word": word, "score": pytest.approx(float(said["score"]), abs=1e-5)}

    found = [[{**plain(one.as_dict()), "score": one.score} for one in entities] for entities in ours]
    assert found == [[plain(one) for one in entities] for entities in theirs]


@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_entities_equal_the_reference(
    llm: LLM, reference: Callable[..., Any], family: str, aggregation: Aggregation
) -> None:
    texts = [*short_texts(12), "a", "[MASK] <mask> U.S.A., don't  stop"]
    ours = llm.entities(texts, aggregation=aggregation, **QUIET)
    # Where words come first, the reference decodes them one by one, which loses spaces.
    words = family == "bert" or aggregation in ("none", "simple")
    assert_same(ours, reference(texts, aggregation_strategy=aggregation), words=words)
    assert sum(map(len, ours)) > 5
    kept = llm.entities(texts[0], aggregation=aggregation, ignore_labels=["PER", "I-LOC"], **QUIET)
    expected = reference(texts[0], aggregation_strategy=aggregation, ignore_labels=["PER", "I-LOC"])
    assert_same([kept], [expected], words=words)


def test_texts_that_break_tokenizers_equal_the_reference(llm: LLM, reference: Callable[..., Any]) -> None:
    texts = [text for text in edge_texts()[1:-1] if ACUTE not in text]
    assert_same(llm.entities(texts, on_long="cut", **QUIET), reference(texts, aggregation_strategy="simple"))
    assert llm.entities(["", "a"], **QUIET)[0] == []


@pytest.mark.parametrize("aggregation", ["simple", "average"])
def test_long_texts_are_read_in_windows_as_the_reference_does(
    llm: LLM, reference: Callable[..., Any], family: str, aggregation: Aggregation
) -> None:
    texts = [*paragraphs(2), "short"]
    for stride in (0, 11):
        ours = llm.entities(texts, aggregation=aggregation, stride=stride, **QUIET)
        theirs = [reference(text, aggregation_strategy=aggregation, stride=stride) for text in texts]
        assert_same(ours, theirs, words=family == "bert" or aggregation == "simple")
    assert llm.entities(texts, on_long="chunk", **QUIET) == llm.entities(texts, stride=0, **QUIET)


async def test_awaited_they_are_the_same(folder: Path, llm: LLM) -> None:
    texts = short_texts(3)
    async with AsyncLLM(str(folder)) as other:
        assert await other.entities(texts, aggregation="max") == llm.entities(texts, aggregation="max", **QUIET)
        assert await other.entities(texts[0]) == llm.entities(texts[0], **QUIET)


def test_long_texts_are_refused_or_cut(llm: LLM) -> None:
    long = paragraphs(1)[0]
    with pytest.raises(TooLong) as refused:
        llm.entities(["a", long], **QUIET)
    assert refused.value.offenders == (1,)
    whole = llm.entities(long, aggregation="none", ignore_labels=[], on_long="cut", **QUIET)
    short = {"truncate_prompt_tokens": 30, "truncation_side": "right"}
    cut = llm.entities(long, aggregation="none", ignore_labels=[], tokenization_kwargs=short, **QUIET)
    num_special = 70 - len(whole)
    assert [one.word for one in cut] == [one.word for one in whole][: 30 - num_special]
    left = {"truncate_prompt_tokens": 30, "truncation_side": "left"}
    last = llm.entities(long, aggregation="none", ignore_labels=[], tokenization_kwargs=left, **QUIET)
    assert (len(last), last[-1].end) == (len(cut), len(long))


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ("a", {"aggregation": "last"}, "aggregation='last'"),
        ("a", {"ignore_labels": "O"}, "ignore_labels is a text"),
        ("a", {"stride": 3, "aggregation": "none"}, "aggregation='none' gives out every token"),
        ("a " * 90, {"stride": 68}, "chunk_overlap=68"),
        ("a", {"stride": 3, "on_long": "cut"}, "stride=3 is for windows"),
        ("a", {"stride": 3, "tokenization_kwargs": {"truncate_prompt_tokens": 9}}, "stride=3 is for windows"),
        (["a", 3], {}, "Input 1 is of type int"),
        (["a", "\ud800"], {}, "Input 1 has the lone surrogate"),
    ],
)
def test_what_cannot_be_asked_for(llm: LLM, texts: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        llm.entities(texts, **options)


@pytest.mark.parametrize("head", ["base", "sequence_classification"])
def test_models_that_label_no_tokens_are_refused(tiny: Tiny, head: str) -> None:
    with LLM(str(tiny("bert", head=head))) as llm, pytest.raises(UnsupportedTask, match="finds no entities"):
        llm.entities("a")


@pytest.fixture(scope="module", params=[*FAMILIES, "deberta-v2", "modernbert"])
def words(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[LLM]:
    """A model to which every token begins an entity, so that entities are words."""
    folder = tmp_path_factory.mktemp("words") / "model"
    shutil.copytree(labeller(tiny, request.param), folder)
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"].zero_()
    bias = weights.setdefault("classifier.bias", torch.zeros(len(LABELS)))
    bias[:] = torch.tensor([0.0, 5.0, 0.0, 0.0, 0.0])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with LLM(str(folder)) as opened:
        yield opened


def stretches(llm: LLM, text: str) -> list[tuple[int, int]]:
    """Where its words stand, without spaces around them."""
    found = []
    for one in llm.entities(text, aggregation="first", on_long="cut", **QUIET):
        inside = text[one.start : one.end]
        # A space that is a token of its own is none.
        if one.word.strip():
            found.append((one.start + len(inside) - len(inside.lstrip()), one.end))
    return found


@pytest.mark.parametrize("gap", [" ", "  ", "\n", "\N{NO-BREAK SPACE}"])
def test_words_stand_where_they_are_in_any_script(words: LLM, gap: str) -> None:
    tokenizer = words.engine.tokenizer
    located = tokenizer.locate(WORDS, False, "")
    # A piece that is not known is a word of its own, as the reference has it.
    known = [
        word
        for word, item in zip(WORDS, located, strict=True)
        if len(item.ids) == 1 or tokenizer.unknown_id not in item.ids
    ]
    assert len(known) >= 3
    text = gap.join(known)
    assert stretches(words, text) == [found.span() for found in re.finditer(r"\S+", text)]


def test_marks_are_part_of_the_character_that_they_stand_on(words: LLM) -> None:
    text = f"e{ACUTE}te{ACUTE} ❤\N{VARIATION SELECTOR-16} o\N{COMBINING DIAERESIS}\N{COMBINING CEDILLA}x"
    tokens = words.entities(text, aggregation="none", **QUIET)
    covered = {at for one in tokens for at in range(one.start, one.end)}
    marks = {at for at, char in enumerate(text) if unicodedata.category(char).startswith("M")}
    assert marks <= covered


def test_words_are_written_out_once(words: LLM) -> None:
    found = words.entities("café x", aggregation="average", **QUIET)
    assert "".join(one.word for one in found).replace(" ", "") in ("caféx", "cafex")


def test_an_error_of_a_window_names_its_text(tiny: Tiny, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(labeller(tiny, "bert"), tmp_path / "damaged"))
    text = paragraphs(1)[0]
    with LLM(str(folder)) as llm:
        windows = llm.engine.tokenizer.ids_of(text, False)
        damaged = llm.engine.tokenizer.ids_of("naïve", False)[0]
        assert len(windows) > 2 * llm.recipe.max_len
    weights = load_file(folder / "model.safetensors")
    weights["bert.embeddings.word_embeddings.weight"][damaged] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with LLM(str(folder)) as llm:
        assert len(llm.entities([text], stride=2, **QUIET)) == 1
        with pytest.raises(NotFinite, match=r"infinity for input 1 of") as caught:
            llm.entities([text, "naïve"], stride=2, **QUIET)
    assert caught.value.index == 1
