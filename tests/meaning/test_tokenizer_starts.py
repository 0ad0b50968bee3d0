"""Of a long text that is cut only the start is tokenised, and what is left is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.errors import BadInput, TooLong
from cenote.tokenizer_starts import CHARS_PER_TOKEN, LEAST_CHARS, start_of
from cenote.types import Encoded
from support.tokenizer_parity import Both, as_input, load, plain
from support.tokenizers import KINDS, change_json, paragraphs

Item = str | tuple[str, str]

PROSE = "\n\n".join(paragraphs())[:30_000]
# Words that few tokens cover, words without a space for long, whitespace runs, and characters that normalise away.
LONG: list[Item] = [
    PROSE,
    "naïve café Ünïcödé ßtraße 東京 に行く привет мир 🙂 \uff21. \n\n B " * 200,
    "x" * 3000 + " " + PROSE[:9000],
    "東京に行く" * 2000,
    "a \t\n  b " * 2000,
    "\u200b\u00ad " * 2000 + PROSE[:4000],
    " ".join(["[SEP]", "</s>", "<s>", "word"] * 1500),
    ("what is it", PROSE),
    (PROSE, "what is it"),
    (PROSE[:9000], PROSE[5000:16_000]),
]


@pytest.fixture(scope="module")
def both_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Both]:
    made: dict[str, Both] = {}

    def get(kind: str) -> Both:
        if kind not in made:
            made[kind] = Both(KINDS[kind](tmp_path_factory.mktemp(kind)))
        return made[kind]

    return get


def cut(both: Both, item: Item, limit: int) -> Encoded:
    (encoded,) = both.ours.encode([as_input(item)], limit=limit, on_long="cut")
    return encoded


# A slow tokenizer reads everything, so there is nothing to show.
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"bert_vocab_file", "byt5"}))
@pytest.mark.parametrize("limit", [12, 130])
def test_long_texts_are_cut_as_the_reference_cuts_them(both_of: Callable[[str], Both], kind: str, limit: int) -> None:
    both = both_of(kind)
    found = both.ours.encode([as_input(item) for item in LONG], limit=limit, on_long="cut")
    assert [plain(encoded) for encoded in found] == [both.expected(item, limit) for item in LONG]
    assert not found[0].counted
    assert found[0].num_cut < CHARS_PER_TOKEN * limit + LEAST_CHARS


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm_roberta", "qwen", "llama"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    words=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), min_size=40, max_size=80),
    limit=st.integers(5, 20),
)
def test_any_long_text_is_cut_as_the_reference_cuts_it(
    both_of: Callable[[str], Both], kind: str, words: list[str], limit: int
) -> None:
    both = both_of(kind)
    text = " ".join(words) * (1 + 4 * LEAST_CHARS // max(1, len(" ".join(words))))
    assert plain(cut(both, text, limit)) == both.expected(text, limit)


def test_a_text_that_is_read_whole_counts_all_that_was_cut(both_of: Callable[[str], Both]) -> None:
    both = both_of("bert")
    text = PROSE[: LEAST_CHARS - 10]
    encoded = cut(both, text, 12)
    assert encoded.counted
    assert len(encoded.ids) + encoded.num_cut == len(both.expected(text)[0])


def test_the_left_side_and_refusals_read_all(both_of: Callable[[str], Both]) -> None:
    both = both_of("bert")
    whole = len(both.expected(PROSE)[0])
    (left,) = both.ours.encode([PROSE], limit=12, on_long="cut", side="left")
    assert plain(left) == both.expected(PROSE, 12, "left")
    assert left.counted
    assert left.num_cut == whole - 12
    with pytest.raises(TooLong, match=f"Input 0 has {whole} tokens"):
        both.ours.encode([PROSE], limit=12)


def test_a_vocabulary_that_reaches_over_spaces_is_given_whole_texts(tmp_path: Path) -> None:
    KINDS["bert"](tmp_path)
    added = {
        "id": 700, "content": "of the", "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": False, "special": False,
    }  # fmt: skip
    change_json(tmp_path / "tokenizer.json", lambda state: state["added_tokens"].append(added))
    both = Both(tmp_path)
    text = "the end of the word " * 300
    encoded = cut(both, text, 12)
    assert plain(encoded) == both.expected(text, 12)
    assert 700 in encoded.ids
    assert encoded.counted


def test_a_bad_character_in_the_start_is_named_with_its_place(both_of: Callable[[str], Both]) -> None:
    short_words, endless = "a " * 40_000, "x" * 5000 + "\ud800 " + "a " * 4000
    with pytest.raises(BadInput, match="Input 1 has the lone surrogate"):
        both_of("bert").ours.encode([short_words, endless], limit=12, on_long="cut")


@pytest.mark.parametrize("most", [1, 7, 100])
def test_cut_text_of_a_long_text_is_that_of_its_start(tmp_path: Path, most: int) -> None:
    ours = load(KINDS["bert"](tmp_path))
    assert ours.cut_text(PROSE, most) == ours.cut_text(PROSE[:LEAST_CHARS], most)


@pytest.mark.parametrize(
    ("text", "num_chars", "start"),
    [
        ("ab cd ef", 3, "ab cd"),
        ("ab cd ef", 2, "ab"),
        ("ab  cd ef", 3, "ab  cd"),
        ("ab\n cd ef", 1, "ab\n cd"),
        ("abcdef", 2, "abcdef"),
        ("ab cd", 9, "ab cd"),
    ],
)
def test_a_start_ends_behind_a_word(text: str, num_chars: int, start: str) -> None:
    assert start_of(text, num_chars) == start
