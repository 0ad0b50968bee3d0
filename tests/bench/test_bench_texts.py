"""The benchmark's texts: the same every time, of the lengths they promise."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from bench.texts import (
    DOCUMENT_TOKENS,
    PARAGRAPH_TOKENS,
    QUERY,
    SHORT_TOKENS,
    Workload,
    build,
    exact,
    random_words,
)


def count_words(texts: Sequence[str | tuple[str, str]]) -> list[int]:
    return [len((text if isinstance(text, str) else " ".join(text)).split()) for text in texts]


def count_with_special(texts: Sequence[str | tuple[str, str]]) -> list[int]:
    """Two special tokens around a text, three around a pair; a comma is a token of its own."""
    commas = [text.count(",") if isinstance(text, str) else "".join(text).count(",") for text in texts]
    special = [2 if isinstance(text, str) else 3 for text in texts]
    return [n + c + s for n, c, s in zip(count_words(texts), commas, special, strict=True)]


def test_same_texts_every_time() -> None:
    first, second = (build("short", 200, count_words) for _ in range(2))
    assert first == second
    assert first.digest == second.digest


def test_lengths_are_within_the_bounds() -> None:
    short = build("short", 200, count_words)
    paragraphs = build("paragraphs", 40, count_words)
    assert SHORT_TOKENS[0] <= min(short.num_tokens) < max(short.num_tokens) <= SHORT_TOKENS[1]
    assert PARAGRAPH_TOKENS[0] <= min(paragraphs.num_tokens) < max(paragraphs.num_tokens) <= PARAGRAPH_TOKENS[1]
    assert short.num_tokens == tuple(count_words(short.texts))


def test_no_text_comes_twice() -> None:
    for name in ("short", "paragraphs", "rerank"):
        texts = build(name, 40, count_words).texts
        assert len(set(texts)) == len(texts)


def test_sentences_are_split_and_headings_dropped() -> None:
    prose = "One two three four five six. Seven eight nine ten eleven twelve!"
    source = {"t": f"The heading\n***********\n\n{prose}\n\nToo short."}
    assert build("short", 2, count_words, source).texts == (
        "One two three four five six.",
        "Seven eight nine ten eleven twelve!",
    )


def test_paragraphs_join_blocks_of_one_topic_only() -> None:
    source = {"a": "\n\n".join(["word " * 70] * 2), "b": "word " * 100}
    (paragraph,) = build("paragraphs", 1, count_words, source).texts
    assert count_words([paragraph]) == [140]


def test_asking_for_too_many_says_how_many_there_are() -> None:
    with pytest.raises(ValueError, match=r"3 texts were asked for and 0 qualify"):
        build("short", 3, count_words, {"t": "Hello."})


def test_unknown_workload_is_refused() -> None:
    with pytest.raises(ValueError, match="there are short, paragraphs, rerank"):
        build("long", 1, count_words)


def test_documents_have_their_length_whatever_the_special_tokens() -> None:
    workload = build("rerank", 100, count_with_special)
    assert {n - 2 for n in count_with_special(workload.texts)} == {DOCUMENT_TOKENS}
    assert (workload.query, workload.task) == (QUERY, "rerank")
    assert workload.num_tokens == tuple(count_with_special([(QUERY, text) for text in workload.texts]))


def test_a_document_in_which_no_word_ends_in_time_is_left_out() -> None:
    exact, over = "b " * DOCUMENT_TOKENS, "a " * (DOCUMENT_TOKENS - 1) + "two, "
    source = {"t": over + exact + "rest"}
    assert build("rerank", 1, count_with_special, source).texts == (exact.strip(),)
    with pytest.raises(ValueError, match=r"2 texts were asked for and 1 qualify"):
        build("rerank", 2, count_with_special, source)


def test_the_query_is_part_of_the_digest_and_the_description() -> None:
    ranked = Workload("rerank", ("a b", "c"), (5, 4), "q")
    assert ranked.digest != Workload("rerank", ("a b", "c"), (5, 4), "r").digest
    assert ranked.describe().startswith("rerank: 1 query x 2 documents, 4.5 tokens per pair on average (4-5)")


def test_description_names_lengths() -> None:
    assert Workload("short", ("a b", "c"), (2, 1)).describe().startswith("short: 2 texts, 1.5 tokens on average (1-2)")


def test_texts_of_an_exact_length_are_distinct() -> None:
    texts = exact(64, 30, count_with_special)
    assert {count_with_special([text])[0] for text in texts} == {64}
    assert len(set(texts)) == 30


def test_random_words_have_their_number_and_the_seed_decides_them() -> None:
    words = [f"w{number}" for number in range(50)]
    texts = random_words(words, [3, 40, 1], seed=5)
    assert count_words(texts) == [3, 40, 1]
    assert texts == random_words(words, [3, 40, 1], seed=5)
    assert texts != random_words(words, [3, 40, 1], seed=6)
