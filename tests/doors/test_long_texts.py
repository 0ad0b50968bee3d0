"""Texts longer than the model: embedded in pieces, and late chunking of documents that fit."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote import LLM, AsyncLLM, PoolerConfig
from cenote.errors import BadInput, ConfigError, TooLong
from support.fixtures import TinySentence
from support.parity import BATCH_LIMIT, REFERENCE_LIMIT
from support.references import Float32, reference_hidden, worst_error
from support.texts import paragraphs, short_texts
from support.word_models import save_words

LIMIT = 70
LONG = " ".join(paragraphs(2))
TEXTS = [LONG, *short_texts(4), LONG[100:], LONG]
PROMPT = "represent this: "


@pytest.fixture(scope="module")
def folder(tiny_sentence: TinySentence) -> Path:
    return tiny_sentence(pooling="mean", normalize=True, num_hidden_layers=1, prompts={"q": PROMPT})


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder)) as model:
        yield model


def embed(llm: LLM, texts: Any, **more: Any) -> Any:
    return llm.embed(texts, output="numpy", use_tqdm=False, **more)


def pieces(llm: LLM, text: str, overlap: int, before: int = 1) -> list[list[int]]:
    """Written out: what stands around the text is repeated, and each piece has as many tokens as there is room for."""
    ids = llm.engine.tokenizer.encode([text], limit=10**6)[0].ids.tolist()
    head, own, tail = ids[:before], ids[before:-1], ids[-1:]
    room = LIMIT - before - 1
    found = [head + own[start : start + room] + tail for start in range(0, len(own), room - overlap)]
    # The last piece is the first one that reaches the end.
    return found[: next(at for at in range(len(found)) if at * (room - overlap) + room >= len(own)) + 1]


def mean_of(llm: LLM, chunks: list[list[int]], before: int = 1, **more: Any) -> Float32:
    rows = embed(llm, [{"prompt_token_ids": ids} for ids in chunks], **more)
    mean = np.average(rows, axis=0, weights=[len(ids) - before - 1 for ids in chunks])
    return mean / np.linalg.norm(mean) if more.get("normalize", True) else mean


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("overlap", [0, 13, 67])
def test_a_long_text_is_the_mean_of_its_pieces(llm: LLM, overlap: int, normalize: bool) -> None:
    rows = embed(llm, TEXTS, on_long="chunk", chunk_overlap=overlap, normalize=normalize)
    for row, text in zip(rows, TEXTS, strict=True):
        chunks = pieces(llm, text, overlap)
        assert max(map(len, chunks)) <= LIMIT
        assert worst_error(row, mean_of(llm, chunks, normalize=normalize)) <= BATCH_LIMIT
    assert len(pieces(llm, LONG, overlap)) >= 4
    assert np.array_equal(rows[0], rows[-1])
    alone = embed(llm, TEXTS[5], on_long="chunk", chunk_overlap=overlap, normalize=normalize)
    assert worst_error(alone[0], rows[5]) <= BATCH_LIMIT


def test_the_mean_is_that_of_the_reference_s_vectors(llm: LLM, folder: Path) -> None:
    chunks = pieces(llm, LONG, 0)
    rows = np.stack([hidden.mean(0) for hidden in reference_hidden(folder, [(ids, [0] * len(ids)) for ids in chunks])])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    mean = np.average(rows, axis=0, weights=[len(ids) - 2 for ids in chunks])
    assert worst_error(embed(llm, LONG, on_long="chunk")[0], mean / np.linalg.norm(mean)) <= REFERENCE_LIMIT


def test_each_piece_has_the_prompt(llm: LLM) -> None:
    before = llm.engine.tokenizer.prompt_length(PROMPT)
    chunks = pieces(llm, PROMPT + LONG, 5, before)
    row = embed(llm, LONG, on_long="chunk", chunk_overlap=5, prompt_name="q")[0]
    assert worst_error(row, mean_of(llm, chunks, before)) <= BATCH_LIMIT


def test_dimensions_are_cut_piece_by_piece(tiny_sentence: TinySentence) -> None:
    folder = tiny_sentence(pooling="mean", normalize=True, num_hidden_layers=1, is_matryoshka=True)
    with LLM(str(folder)) as llm:
        row = embed(llm, LONG, on_long="chunk", dimensions=7)[0]
        assert worst_error(row, mean_of(llm, pieces(llm, LONG, 0), dimensions=7)) <= BATCH_LIMIT


def test_ids_are_split_too(llm: LLM) -> None:
    ids = llm.engine.tokenizer.encode([LONG], limit=10**6)[0].ids
    assert (
        worst_error(
            embed(llm, [{"prompt_token_ids": ids.tolist()}], on_long="chunk")[0], embed(llm, LONG, on_long="chunk")[0]
        )
        <= BATCH_LIMIT
    )
    bare = ids[1:-1].tolist()
    rows = embed(llm, [{"prompt_token_ids": bare[at : at + LIMIT]} for at in range(0, len(bare), LIMIT)])
    weights = [min(LIMIT, len(bare) - at) for at in range(0, len(bare), LIMIT)]
    mean = np.average(rows, axis=0, weights=weights)
    row = embed(llm, [{"prompt_token_ids": bare}], on_long="chunk")[0]
    assert worst_error(row, mean / np.linalg.norm(mean)) <= BATCH_LIMIT


def test_a_prompt_that_is_left_out_is_none_of_given_ids(tiny_sentence: TinySentence) -> None:
    folder = tiny_sentence(pooling="mean", num_hidden_layers=1, include_prompt=False, prompts={"q": PROMPT})
    with LLM(str(folder)) as llm:
        given = [{"prompt_token_ids": llm.engine.tokenizer.encode([LONG], limit=10**6)[0].ids.tolist()}]
        asked, plain = (embed(llm, given, on_long="chunk", **more) for more in ({"prompt_name": "q"}, {}))
        texts = [embed(llm, LONG, on_long="chunk", **more) for more in ({"prompt_name": "q"}, {})]
    assert worst_error(asked[0], plain[0]) <= BATCH_LIMIT
    assert worst_error(*(rows[0] for rows in texts)) > 0.01


def test_the_answer_says_what_was_read(llm: LLM) -> None:
    whole = llm.engine.tokenizer.encode([LONG], limit=10**6)[0].ids.tolist()
    (out,) = llm.embed(LONG, use_tqdm=False, on_long="chunk", chunk_overlap=13)
    assert (out.prompt_token_ids, out.truncated) == (whole, False)
    (cut,) = llm.embed(LONG, use_tqdm=False, on_long="cut")
    assert (len(cut.prompt_token_ids), cut.truncated) == (LIMIT, True)


def test_what_cannot_be_read_in_pieces(llm: LLM, tmp_path: Path) -> None:
    with pytest.raises(TooLong):
        embed(llm, LONG)
    with pytest.raises(TooLong, match=f"maximum context length is {LIMIT}"):
        llm.encode(["a", LONG], pooling_task="token_embed", use_tqdm=False, on_long="chunk")
    with pytest.raises(TooLong):
        embed(llm, [{"text": LONG, "text_pair": "a"}], on_long="chunk")
    with pytest.raises(BadInput, match="chunk_overlap=68, and a piece has room for 68"):
        embed(llm, LONG, on_long="chunk", chunk_overlap=68)
    with pytest.raises(BadInput, match="on_long='drop'"):
        embed(llm, LONG, on_long="drop")


def test_scores_of_long_texts(llm: LLM) -> None:
    with pytest.raises(TooLong):
        llm.score("a", LONG, use_tqdm=False)
    more: dict[str, Any]
    for more in ({"on_long": "chunk", "chunk_overlap": 13}, {"on_long": "cut"}):
        (scored,) = llm.score("a", LONG, use_tqdm=False, **more)
        first, second = embed(llm, ["a", LONG], **more)
        assert abs(scored.outputs.score - first @ second) < 1e-5
    assert [one.index for one in llm.rerank("a", [LONG, "a"], on_long="chunk")] == [1, 0]


def test_settings_and_the_reference_s_switch(folder: Path, llm: LLM) -> None:
    plain, overlapping = embed(llm, TEXTS, on_long="chunk"), embed(llm, TEXTS, on_long="chunk", chunk_overlap=9)
    with LLM(str(folder), on_long="chunk", chunk_overlap=9) as model:
        assert max(map(worst_error, embed(model, TEXTS), overlapping)) <= BATCH_LIMIT
    asked = PoolerConfig(enable_chunked_processing=True, max_embed_len=1000)
    with LLM(str(folder), pooler_config=asked) as model:
        assert max(map(worst_error, embed(model, TEXTS), plain)) <= BATCH_LIMIT
        assert model.recipe.max_embed_len == 1000
    with pytest.raises(ConfigError, match="chunk_overlap=70"):
        LLM(str(folder), chunk_overlap=70)


def test_a_text_that_the_model_reads_whole_is_not_split(tmp_path: Path) -> None:
    with LLM(str(save_words(tmp_path / "m", "static"))) as llm:
        assert np.array_equal(embed(llm, LONG, on_long="chunk"), embed(llm, LONG))


DOCUMENTS = [text[:25] for text in short_texts(3)]
DOCUMENT = " ".join(DOCUMENTS)


@pytest.mark.parametrize("prompt", ["", PROMPT])
def test_late_chunks_are_means_of_token_vectors(llm: LLM, prompt: str) -> None:
    (out,) = llm.encode(DOCUMENT, pooling_task="token_embed", use_tqdm=False, prompt=prompt, normalize=False)
    tokens = out.outputs.data.numpy()
    tokenizer = llm.engine.tokenizer
    places, before = tokenizer.places(prompt + DOCUMENT, tokenizer.encode([prompt + DOCUMENT], limit=99)[0])
    cuts = [0, 11, 30, len(DOCUMENT)]
    spans = [*itertools.pairwise(cuts), (5, 40)]
    rows = llm.embed_chunks(DOCUMENT, spans, prompt=prompt)
    for row, (start, end) in zip(rows, spans, strict=True):
        inside = [
            before + at
            for at, (first, last) in enumerate((places - len(prompt)).tolist())
            if first < end and last > start
        ]
        mean = tokens[inside].mean(0)
        assert worst_error(row, mean / np.linalg.norm(mean)) <= BATCH_LIMIT
    by_tokens = llm.embed_chunks(DOCUMENT, [(2, 5)], unit="tokens", prompt=prompt, normalize=False)
    assert worst_error(by_tokens[0], tokens[2:5].mean(0)) <= BATCH_LIMIT


def test_pieces_are_joined_to_one_document(llm: LLM) -> None:
    texts = DOCUMENTS
    cuts = np.cumsum([0, *(len(text) + 1 for text in texts)]).tolist()
    spans = [(start, start + len(text)) for start, text in zip(cuts, texts, strict=False)]
    rows = llm.embed_chunks(texts)
    assert np.array_equal(rows, llm.embed_chunks(" ".join(texts), spans))
    # Not those of the pieces alone.
    assert max(map(worst_error, rows, embed(llm, texts))) > 0.01


def test_late_chunks_can_be_awaited(llm: LLM, folder: Path) -> None:
    async def run() -> Float32:
        async with AsyncLLM(str(folder)) as awaited:
            return await awaited.embed_chunks(DOCUMENT, [(0, 11), (11, 30)])

    rows = asyncio.run(run())
    assert max(map(worst_error, rows, llm.embed_chunks(DOCUMENT, [(0, 11), (11, 30)]))) <= BATCH_LIMIT


@pytest.mark.parametrize(
    ("text", "spans", "unit", "message"),
    [
        ("some text", None, "chars", "needs spans"),
        (["a", "b"], [(0, 1)], "chars", "has none"),
        ("some text", [], "chars", "no spans"),
        ("some text", [(3, 3)], "chars", "Span 0 goes from 3 to 3"),
        ("some text", [(0, 4), (4, 99)], "chars", "Span 1 goes from 4 to 99"),
        ("some  text", [(4, 6)], "chars", "Span 0 has no tokens"),
        ("some text", [(0, 99)], "tokens", "Span 0 has no tokens, or ends after"),
        ("some text", [(0, 4)], "words", "unit='words'"),
        ("some text", [5], "chars", "Span 0 is 5"),
        ("some text", [(0, 4), ("0", "1")], "chars", r"Span 1 is \('0', '1'\)"),
        ("some text", [(0, 1, 2)], "chars", "Two whole numbers"),
        ("some text", 5, "chars", "spans are of type int"),
        (5, None, "chars", "document is of type int"),
        ([], None, "chars", "There are no pieces. One or more"),
        (["a", "b", ""], None, "chars", r"^Piece 2 is empty"),
        (["a", "  ", "b"], None, "chars", r"^Piece 1 has no tokens"),
    ],
)
def test_spans_that_cannot_be(llm: LLM, text: Any, spans: Any, unit: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        llm.embed_chunks(text, spans, unit=unit)
    with pytest.raises(BadInput, match=r"^separator=5"):
        llm.embed_chunks(["a", "b"], separator=5)  # type: ignore[arg-type]
    with pytest.raises(TooLong):
        llm.embed_chunks(LONG, [(0, 5)])
