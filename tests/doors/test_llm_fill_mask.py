"""Words in the place of masks, and probabilities of all words, against transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

from cenote import LLM, AsyncLLM
from cenote.errors import BadInput, UnsupportedTask
from cenote.tasks import token_classify
from support.checkpoints import MODEL_TYPES
from support.fixtures import Tiny
from support.references import EXACT, Float32
from support.rows import BATCH_LIMIT, assert_equal
from support.texts import short_texts

QUIET: dict[str, Any] = {"use_tqdm": False}


@pytest.fixture(scope="module")
def folder(tiny: Tiny) -> Path:
    """A masked language model of BERT's."""
    return tiny("bert", head="masked_lm")


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    """It, opened."""
    with LLM(str(folder)) as opened:
        yield opened


def reference(folder: Path) -> Any:
    """transformers' pipeline, in float32."""
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForMaskedLM.from_pretrained(folder, **EXACT)
    return pipeline("fill-mask", model=model, tokenizer=tokenizer, device="cpu")


def assert_same(ours: Any, theirs: Any) -> None:
    """Check that both hold the same words, in the same order and depth."""
    if isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for one, expected in zip(ours, theirs, strict=True):
            assert_same(one, expected)
        return
    assert (ours.token, ours.token_str, ours.sequence) == (theirs["token"], theirs["token_str"], theirs["sequence"])
    assert ours.score == pytest.approx(theirs["score"], rel=2e-5)


@pytest.mark.parametrize("model_type", [*MODEL_TYPES, "modernbert"])
def test_words_equal_the_reference(tiny: Tiny, model_type: str) -> None:
    folder = tiny(model_type, head="masked_lm")
    fill = reference(folder)
    mask = fill.tokenizer.mask_token
    texts = [f"The {mask} of the class.", f"{mask} is one and {mask} another, {mask}", f"a {mask}", "é" + mask]
    with LLM(str(folder)) as llm:
        assert_same(llm.fill_mask(texts, **QUIET), fill(texts))
        assert_same(llm.fill_mask(texts[0], top_k=3, **QUIET), fill(texts[0], top_k=3))
        assert_same(llm.fill_mask(texts[1], top_k=1, **QUIET), fill(texts[1], top_k=1))


async def test_targets_limit_the_words(llm: LLM, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill = reference(folder)
    texts = ["The [MASK] of the class.", "[MASK] and [MASK]"]
    for targets in (["the", "of", "a"], "class", ["objects", "zzzqqq"]):
        assert_same(llm.fill_mask(texts, targets=targets, **QUIET), fill(texts, targets=targets))
    assert "'zzzqqq' is no token of the model; its first one" in caplog.text
    async with AsyncLLM(str(folder)) as other:
        assert_same(await other.fill_mask(texts, targets=["the", "of"]), fill(texts, targets=["the", "of"]))


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ("no mask", {}, r"No mask_token \(\[MASK\]\) found on the input"),
        (["[MASK]", 3], {}, "input 1"),
        ("[MASK]", {"top_k": 0}, "top_k=0"),
        ("[MASK]", {"targets": []}, "There are no targets"),
        ("[MASK]", {"targets": [""]}, "There are no targets"),
        ("[MASK]", {"targets": [5]}, "A target is of type int"),
    ],
)
def test_what_cannot_be_asked_for(llm: LLM, texts: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        llm.fill_mask(texts, **options)


def test_an_embedder_fills_no_masks(tiny: Tiny) -> None:
    with LLM(str(tiny("bert"))) as llm, pytest.raises(UnsupportedTask, match="fills no masks"):
        llm.fill_mask("[MASK]")


def test_a_mask_that_was_cut_off_is_missed(llm: LLM) -> None:
    cut = {"truncate_prompt_tokens": 4}
    with pytest.raises(BadInput, match="Input 1 has no token"):
        llm.fill_mask(["[MASK]", "a b c d [MASK]"], tokenization_kwargs=cut, **QUIET)


def test_every_token_has_a_probability_for_every_word(llm: LLM, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = short_texts(4)
    expected = [_probabilities(folder, text) for text in texts]
    ours = [out.outputs.data.numpy() for out in llm.encode(texts, pooling_task="token_classify", **QUIET)]
    assert_equal(ours, expected)
    raw = llm.encode(texts[1], pooling_task="token_classify", use_activation=False, **QUIET)[0].outputs.data
    assert_equal([raw.softmax(-1).numpy()], expected[1:2])
    monkeypatch.setattr(token_classify, "MOST_VALUES", expected[0].size - 1)
    with pytest.raises(BadInput, match=r"Input 0 has \d+ tokens, with a value for each of \d+ words"):
        llm.encode(texts[0], pooling_task="token_classify", **QUIET)


def test_rows_of_one_token_are_those_among_all(llm: LLM) -> None:
    text = "[MASK] is of the [MASK] and of the class of it"
    ids = llm.engine.tokenizer.encode([text], limit=70)[0].ids
    whole = llm.encode(text, pooling_task="token_classify", **QUIET)[0].outputs.data.numpy()
    common = int(np.bincount(ids).argmax())
    rows = llm.encode(text, pooling_task="token_classify", token_id=common, **QUIET)[0].outputs.data.numpy()
    assert len(rows) >= 2
    assert_equal(rows, whole[ids == common], 2 * BATCH_LIMIT)


def _probabilities(folder: Path, text: str) -> Float32:
    encoded = AutoTokenizer.from_pretrained(folder, local_files_only=True)(text, return_tensors="pt")
    with torch.inference_mode():
        logits = AutoModelForMaskedLM.from_pretrained(folder, **EXACT).eval()(**encoded).logits[0]
    return np.asarray(logits.softmax(-1), np.float32)
