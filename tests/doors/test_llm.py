"""The offline API on real and tiny models, against sentence-transformers."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cenote import LLM, AsyncLLM, Pair, PoolingParams, started
from cenote.checkpoint import embedded_default
from cenote.errors import BadInput, TooLong
from cenote.types import FloatArray
from support.fixtures import TinySentence
from support.references import reference_vectors, worst_error
from support.rows import BATCH_LIMIT, assert_equal
from support.sentence_folders import POOLING_MODES
from support.texts import edge_texts, paragraphs, short_texts

CUT = {"truncate_prompt_tokens": -1}


def test_500_real_texts_equal_the_reference(llm: LLM) -> None:
    texts = [*short_texts(250), *paragraphs(230), *edge_texts()]
    ours = llm.embed(texts, output="numpy", use_tqdm=False, tokenization_kwargs=CUT)
    assert ours.dtype == np.float32
    assert_equal(ours, reference_vectors(embedded_default().folder, texts))


def test_a_batch_changes_nothing(llm: LLM) -> None:
    texts = [*short_texts(40), *paragraphs(8)]

    def run(given: list[str]) -> FloatArray:
        return llm.embed(given, output="numpy", use_tqdm=False, tokenization_kwargs=CUT)

    alone = np.concatenate([run([text]) for text in texts])
    together, reversed_ = run(texts), run(texts[::-1])[::-1]
    assert_equal(together, alone, BATCH_LIMIT)
    assert_equal(reversed_, alone, BATCH_LIMIT)


def test_identical_inputs_of_one_call_are_bitwise_equal(llm: LLM) -> None:
    texts = short_texts(50)
    rows = llm.embed([*texts, *texts], output="numpy", use_tqdm=False)
    assert np.array_equal(rows[:50], rows[50:])


def test_objects_have_the_reference_s_form(llm: LLM) -> None:
    (out,) = llm.embed("Hello, my name is", use_tqdm=False)
    ids = [101, 7592, 1010, 2026, 2171, 2003, 102]
    assert out.outputs.hidden_size == len(out.outputs.embedding) == 384
    assert isinstance(out.outputs.embedding[0], float)
    assert out.prompt_token_ids == ids
    assert repr(out) == (
        f"EmbeddingRequestOutput(request_id='{out.request_id}', outputs=EmbeddingOutput(hidden_size=384), "
        f"prompt_token_ids={ids}, num_cached_tokens=0, finished=True)"
    )
    (pooled,) = llm.encode("Hello, my name is", pooling_task="embed", use_tqdm=False)
    assert pooled.outputs.data.shape == (384,)
    assert pooled.outputs.data.dtype == torch.float32
    assert pooled.outputs.data.tolist() == out.outputs.embedding
    assert int(pooled.request_id) == int(out.request_id) + 1


def test_every_prompt_form_gives_the_same_vector(llm: LLM) -> None:
    text, ids = "Hello, my name is", [101, 7592, 1010, 2026, 2171, 2003, 102]
    forms: list[Any] = [
        text,
        [text],
        (text,),
        {"prompt": text},
        ids,
        np.array(ids),
        [ids],
        {"prompt_token_ids": ids},
        [{"prompt": text, "prompt_token_ids": ids}],
    ]
    rows = np.concatenate([llm.embed(form, output="numpy", use_tqdm=False) for form in forms])
    assert_equal(rows[1:], [rows[0]] * (len(forms) - 1), BATCH_LIMIT)
    pair, as_dict = Pair("a query", "a document"), {"text": "a query", "text_pair": "a document"}
    assert np.array_equal(*llm.embed([pair, as_dict], output="numpy", use_tqdm=False))


def test_too_long_is_refused_with_every_offender_or_cut(llm: LLM) -> None:
    long = "word " * 300
    with pytest.raises(TooLong, match="maximum context length is 256 tokens") as caught:
        llm.embed(["short", long, "short", long], use_tqdm=False)
    assert caught.value.offenders == (1, 3)
    (out,) = llm.embed(long, use_tqdm=False, tokenization_kwargs=CUT)
    assert (len(out.prompt_token_ids), out.truncated, out.num_cut_tokens) == (256, True, 302 - 256)
    (ten,) = llm.embed(long, use_tqdm=False, tokenization_kwargs={"truncate_prompt_tokens": 10})
    assert len(ten.prompt_token_ids) == 10
    with pytest.raises(BadInput, match="truncate_prompt_tokens=257 cannot be greater than max_model_len = 256"):
        llm.embed("a", use_tqdm=False, tokenization_kwargs={"truncate_prompt_tokens": 257})
    for name in ("truncate_prompt_tokens", "max_length"):
        with pytest.raises(BadInput, match=f"{name}='5'. It is a whole number"):
            llm.embed("a", use_tqdm=False, tokenization_kwargs={name: "5", "truncation": True})
    with pytest.raises(BadInput, match="truncate_prompt_tokens=0"):
        llm.embed("a", use_tqdm=False, tokenization_kwargs={"max_length": 0, "truncation": True})


def test_on_long_cut_is_a_setting() -> None:
    with LLM(on_long="cut", max_model_len=12) as llm:
        (out,) = llm.embed("word " * 300, use_tqdm=False)
    assert len(out.prompt_token_ids) == 12


def test_options_of_pooling(llm: LLM) -> None:
    texts = short_texts(3)
    plain = llm.embed(texts, output="numpy", use_tqdm=False)
    raw = llm.embed(texts, output="numpy", use_tqdm=False, normalize=False)
    assert np.allclose(np.linalg.norm(plain, axis=1), 1, atol=1e-6)
    assert np.abs(np.linalg.norm(raw, axis=1) - 1).min() > 0.1
    each = [PoolingParams(use_activation=False), PoolingParams(), PoolingParams(use_activation=False)]
    mixed = llm.embed(texts, output="numpy", use_tqdm=False, pooling_params=each)
    assert_equal(mixed, [raw[0], plain[1], raw[2]], BATCH_LIMIT)
    assert each[1] == PoolingParams()


def test_dimensions_are_cut_before_normalising(tiny_sentence: TinySentence, tmp_path: Path) -> None:
    import json
    import shutil

    folder = Path(shutil.copytree(tiny_sentence(normalize=True), tmp_path / "matryoshka"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "matryoshka_dimensions": [7, 21]}))
    texts = short_texts(4)
    with LLM(str(folder)) as llm:
        ours = llm.embed(texts, output="numpy", use_tqdm=False, dimensions=7)
        theirs = reference_vectors(folder, texts, truncate_dim=7, normalize_embeddings=True)
        assert_equal(ours, theirs)
        with pytest.raises(BadInput, match=r"only supports Matryoshka dimensions \[7, 21\], got 8"):
            llm.embed(texts, use_tqdm=False, dimensions=8)
        with pytest.raises(BadInput, match=r"in range \[1, 60\], got 61"):
            llm.embed(texts, use_tqdm=False, dimensions=61)
        two = llm.embed(texts, use_tqdm=False, pooling_params=[PoolingParams(dimensions=n) for n in (7, 21, 7, 21)])
        assert [out.outputs.hidden_size for out in two] == [7, 21, 7, 21]


def test_dimensions_of_a_model_without_matryoshka_are_refused(llm: LLM) -> None:
    with pytest.raises(BadInput, match="does not support Matryoshka embeddings"):
        llm.embed("a", use_tqdm=False, dimensions=128)


@pytest.mark.parametrize("generation", ["old", "new"])
@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls", "weightedmean"])
def test_prompts_equal_the_reference(
    tiny_sentence: TinySentence, generation: str, include_prompt: bool, pooling: str
) -> None:
    prompts = {"query": "represent this query: ", "document": "passage: "}
    folder = tiny_sentence(
        generation=generation, pooling=pooling, include_prompt=include_prompt, prompts=prompts, normalize=True
    )
    texts = [*short_texts(6), "", "a"]
    with LLM(str(folder)) as llm:
        for name in prompts:
            ours = llm.embed(texts, output="numpy", use_tqdm=False, prompt_name=name, tokenization_kwargs=CUT)
            assert_equal(ours, reference_vectors(folder, texts, prompt_name=name))
        ours = llm.embed(texts, output="numpy", use_tqdm=False, prompt="own: ", tokenization_kwargs=CUT)
        assert_equal(ours, reference_vectors(folder, texts, prompt="own: "))
        with pytest.raises(BadInput, match="no prompt named 'passage'"):
            llm.embed("a", use_tqdm=False, prompt_name="passage")


@pytest.mark.parametrize("pooling", POOLING_MODES)
def test_a_prompt_that_alone_is_too_long_equals_the_reference(tiny_sentence: TinySentence, pooling: str) -> None:
    prompts = {"query": "represent this query of mine, which is long enough: "}
    folder = tiny_sentence(pooling=pooling, include_prompt=False, prompts=prompts, max_seq_length=8)
    texts = ["a b c", "", "hello"]
    with LLM(str(folder)) as llm:
        ours = llm.embed(texts, output="numpy", use_tqdm=False, prompt_name="query", tokenization_kwargs=CUT)
    assert_equal(ours, reference_vectors(folder, texts, prompt_name="query"))


@pytest.mark.parametrize("generation", ["old", "new"])
def test_length_and_case_of_the_checkpoint_count(tiny_sentence: TinySentence, generation: str) -> None:
    folder = tiny_sentence(generation=generation, max_seq_length=11, do_lower_case=True, default_prompt_name="x",
                           prompts={"x": "Say: "})  # fmt: skip
    texts = [*short_texts(6), "UPPER lower", *paragraphs(2)]
    with LLM(str(folder)) as llm:
        assert llm.recipe.max_len == 11
        ours = llm.embed(texts, output="numpy", use_tqdm=False, tokenization_kwargs=CUT)
    assert_equal(ours, reference_vectors(folder, texts))


def test_a_stream_comes_in_order_and_reads_only_a_little_ahead(llm: LLM) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        for number in itertools.count():
            read += 1
            yield f"text number {number % 50}"

    expected = llm.embed([f"text number {n}" for n in range(50)], output="numpy", use_tqdm=False)
    stream = llm.embed_iter(endless(), output="numpy")
    for number in range(120):
        assert worst_error(next(stream), expected[number % 50]) <= BATCH_LIMIT
    assert read < 20_000
    stream.close()  # type: ignore[attr-defined]  # it is a generator


def test_an_awaited_stream_comes_in_order(llm: LLM) -> None:
    texts = [f"text number {number % 50}" for number in range(2500)]
    expected = llm.embed(texts[:50], output="numpy", use_tqdm=False)

    async def run() -> list[FloatArray]:
        async with AsyncLLM() as awaited:
            found = [row async for row in awaited.embed_iter(texts, output="numpy")]
            stopped = awaited.embed_iter(iter(texts))
            first = await anext(stopped)
            assert first.outputs.hidden_size == 384
            await stopped.aclose()  # type: ignore[attr-defined]  # it is a generator
            with pytest.raises(BadInput, match="output='torch'"):
                await anext(awaited.embed_iter(texts, output="torch"))  # type: ignore[arg-type]
            return found

    found = asyncio.run(run())
    assert len(found) == len(texts)
    assert_equal(found[:50] + found[-50:], [*expected, *expected], BATCH_LIMIT)


def test_threads_share_one_llm(llm: LLM) -> None:
    texts = short_texts(60)
    expected = llm.embed(texts, output="numpy", use_tqdm=False)
    found: dict[int, np.ndarray[Any, Any]] = {}

    def run(start: int) -> None:
        found[start] = llm.embed(texts[start : start + 10], output="numpy", use_tqdm=False)

    threads = [threading.Thread(target=run, args=(start,)) for start in range(0, 60, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_equal(np.concatenate([found[start] for start in sorted(found)]), expected, BATCH_LIMIT)


def test_a_bar_of_ours_is_shown_only_where_a_call_takes_long(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(started, "BAR_AFTER_S", 600.0)
    texts = short_texts(400)
    expected = llm.embed(texts[:20], output="numpy")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(started, "BAR_AFTER_S", 0.0)
    found = llm.embed(texts, output="numpy")
    told = capsys.readouterr().err
    assert "Processed prompts" in told
    assert "400/400" in told
    assert "tokens/s" in told
    assert_equal(found[:20], expected, BATCH_LIMIT)


def test_a_bar_of_the_caller_is_fed_to_the_end(llm: LLM) -> None:
    class Bar:
        n = 0

        def __init__(self, **options: Any) -> None:
            self.options = options
            made.append(self)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None: ...
        def update(self, more: int) -> None:
            self.n += more

        def set_postfix_str(self, text: str, **_: Any) -> None:
            self.postfix = text

    made: list[Bar] = []
    llm.embed(short_texts(20), use_tqdm=Bar)
    assert [(bar.n, bar.options["total"]) for bar in made] == [(20, 20)]
    assert made[0].postfix.endswith("tokens/s")
