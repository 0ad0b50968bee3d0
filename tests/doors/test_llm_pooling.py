"""Options of single requests, mixed in one batch: pooling, normalising, sizes; against sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote import LLM, PoolingParams
from cenote.errors import BadInput
from cenote.layers.pooling import POOLS
from cenote.steps import POOLINGS
from cenote.tasks import embed
from cenote.types import FloatArray
from support.fixtures import TinySentence
from support.references import reference_vectors
from support.rows import BATCH_LIMIT, assert_equal
from support.sentence_folders import POOLING_MODES, Dense
from support.texts import short_texts

TEXTS = short_texts(7)
OURS = dict(zip(POOLING_MODES, POOLINGS, strict=True))


def rows(llm: LLM, texts: list[str], **more: Any) -> FloatArray:
    return llm.embed(texts, output="numpy", use_tqdm=False, **more)


def test_every_mode_can_be_asked_for() -> None:
    assert tuple(POOLS) == POOLINGS


@pytest.mark.parametrize("own", ["cls", "lasttoken", "mean"])
def test_each_request_is_pooled_in_its_way_in_one_batch(tiny_sentence: TinySentence, own: str) -> None:
    after: dict[str, Any] = {"dense": Dense(), "normalize": True}
    modes = list(POOLING_MODES)
    reference = [
        reference_vectors(tiny_sentence(pooling=mode, **after), [text])[0]
        for mode, text in zip([*modes, own], TEXTS, strict=True)
    ]
    with LLM(str(tiny_sentence(pooling=own, **after)), num_workers=1) as llm:
        each = [*(PoolingParams(pooling=OURS[mode]) for mode in modes), PoolingParams()]
        mixed = rows(llm, TEXTS, pooling_params=each)
        assert_equal(mixed, reference)
        alone = [rows(llm, [text], pooling_params=one)[0] for text, one in zip(TEXTS, each, strict=True)]
        assert_equal(mixed, alone, BATCH_LIMIT)


def test_the_last_layer_computes_what_a_request_s_own_pooling_reads(tiny_sentence: TinySentence) -> None:
    with LLM(str(tiny_sentence(pooling="cls"))) as llm:
        needed = {
            pooling: embed.rows_needed(llm.recipe, embed.read_key(llm.recipe, embed.Params(pooling=pooling)))
            for pooling in (None, "cls", "last", "mean", "MAX")
        }
    assert needed == {None: "first", "cls": "first", "last": "last", "mean": "all", "MAX": "all"}


def test_a_prompt_that_is_left_out_stays_out_whatever_the_pooling(tiny_sentence: TinySentence) -> None:
    more: dict[str, Any] = {"include_prompt": False, "prompts": {"query": "represent this: "}}
    with LLM(str(tiny_sentence(pooling="mean", **more))) as llm:
        for mode in POOLING_MODES:
            reference = reference_vectors(tiny_sentence(pooling=mode, **more), TEXTS, prompt_name="query")
            assert_equal(rows(llm, TEXTS, pooling=OURS[mode], prompt_name="query"), reference)


@pytest.mark.parametrize("task", ["embed", "token_embed"])
def test_sizes_and_normalising_are_each_request_s_own(tiny_sentence: TinySentence, task: str) -> None:
    folder = tiny_sentence(pooling="mean", normalize=True, matryoshka_dimensions=[8, 16])
    each = [
        PoolingParams(),
        PoolingParams(use_activation=False),
        PoolingParams(dimensions=16),
        PoolingParams(dimensions=8, use_activation=False),
    ]
    with LLM(str(folder)) as llm:
        mixed = llm.encode(TEXTS[:4], pooling_params=each, pooling_task=task, use_tqdm=False)
        found = [out.outputs.data.numpy() for out in mixed]
        raw = llm.encode(TEXTS[:4], pooling_task=task, use_activation=False, use_tqdm=False)
    for out, one, plain in zip(found, each, raw, strict=True):
        cut = plain.outputs.data.numpy()[..., : one.dimensions]
        expected = cut if one.use_activation is False else cut / np.linalg.norm(cut, axis=-1, keepdims=True)
        assert_equal(np.atleast_2d(out), np.atleast_2d(expected), BATCH_LIMIT)
    if task == "embed":
        theirs = reference_vectors(folder, TEXTS[2:3], truncate_dim=16, normalize_embeddings=True)
        assert_equal(found[2:3], theirs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "median"}, "Allowed are cls, max, mean, mean_sqrt_len, weightedmean, last"),
        ({"normalize": True, "use_activation": True}, "Both use_activation and normalize are given"),
        ({"dimensions": 17}, r"only supports Matryoshka dimensions \[8, 16\], got 17"),
        ({"dimensions": 61}, r"only supports dimensions in range \[1, 60\], got 61"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(
    tiny_sentence: TinySentence, options: dict[str, Any], message: str
) -> None:
    with LLM(str(tiny_sentence(matryoshka_dimensions=[8, 16]))) as llm:
        with pytest.raises(BadInput, match=message):
            llm.embed(TEXTS, **options)
        assert llm.engine.snapshot().requests == 0


def test_rows_of_tokens_and_joined_rows_have_no_other_pooling(tiny_sentence: TinySentence) -> None:
    with LLM(str(tiny_sentence(pooling="mean"))) as llm:
        with pytest.raises(BadInput, match="pooling='cls', but the task is token_embed"):
            llm.encode(TEXTS, pooling_task="token_embed", pooling="cls")
        with pytest.raises(BadInput, match=r"does not support \['pooling'\] parameters"):
            llm.encode(TEXTS, PoolingParams(pooling="cls"), pooling_task="token_embed")
    with (
        LLM(str(tiny_sentence(pooling=["cls", "mean"]))) as llm,
        pytest.raises(BadInput, match="puts cls and mean side by side"),
    ):
        llm.embed(TEXTS, pooling="cls")


def test_the_size_of_a_dense_is_the_most_that_may_be_asked_for(tiny_sentence: TinySentence, tmp_path: Path) -> None:
    folder = tiny_sentence(dense=Dense(28), normalize=True, is_matryoshka=True)
    with LLM(str(folder)) as llm:
        assert rows(llm, TEXTS, dimensions=28).shape == (len(TEXTS), 28)
        with pytest.raises(BadInput, match=r"range \[1, 28\], got 29"):
            llm.embed(TEXTS, dimensions=29)
