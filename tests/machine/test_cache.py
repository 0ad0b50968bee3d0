"""Inputs that come again are answered by the cache, and never otherwise than the model would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cenote import LLM
from cenote.errors import ConfigError, NotFinite
from cenote.tasks import embed
from cenote.types import Outcome
from support.faulty import GIVES_NAN, Serve, tokens
from support.fixtures import Tiny, TinySentence
from support.texts import short_texts

ROOMY = 1 << 20


def rows_of(outcome: Outcome) -> list[bytes]:
    return [row.tobytes() for row in outcome.rows]


def num_run(served: Any) -> int:
    return sum(batch.num_seqs for batch in served.runner.batches)


@pytest.mark.parametrize("task", ["embed", "token_embed"])
def test_what_is_known_does_not_run_again(serve: Serve, task: str) -> None:
    served = serve(cache_bytes=ROOMY)
    fresh = served.engine.run_call(task, ["one", "two words"])
    again = served.engine.run_call(task, ["two words", "three", "one", "one"])
    assert num_run(served) == 3
    assert (fresh.cached, again.cached) == (frozenset(), frozenset({0, 2, 3}))
    one, two = rows_of(fresh)
    assert [rows_of(again)[at] for at in (0, 2, 3)] == [two, one, one]
    lengths = [len(item.ids) for item in again.encoded]
    assert [again.num_cached_tokens(at) for at in range(4)] == [lengths[0], 0, *lengths[2:]]
    assert again.num_tokens == sum(lengths)
    counted = served.engine.snapshot()
    assert (counted.cache_hits, counted.cache_misses) == (2, 3)
    assert 0 < counted.cache_bytes < ROOMY
    again.rows[0][:] = 0
    assert rows_of(served.engine.run_call(task, ["two words"])) == [two]


def test_without_a_cache_nothing_is_kept(serve: Serve) -> None:
    served = serve()
    for _ in range(2):
        assert served.engine.run_call("embed", ["one"]).cached == frozenset()
    assert num_run(served) == 2
    assert served.engine.snapshot().cache_bytes == 0


def test_a_call_may_pass_the_cache_by(serve: Serve) -> None:
    served = serve(cache_bytes=ROOMY)
    served.engine.run_call("embed", ["one"], use_cache=False)
    assert served.engine.snapshot().cache_bytes == 0
    served.engine.run_call("embed", ["one"])
    assert served.engine.run_call("embed", ["one"], use_cache=False).cached == frozenset()
    assert num_run(served) == 3


def test_the_least_recently_used_rows_go_first(serve: Serve) -> None:
    served = serve(cache_bytes=ROOMY)
    served.engine.run_call("embed", ["a"])
    one = served.engine.snapshot().cache_bytes
    small = serve(cache_bytes=2 * one + one // 2)
    for text in ("a", "b", "a", "c", "a", "b"):
        small.engine.run_call("embed", [text])
        assert small.engine.snapshot().cache_bytes <= 2 * one
    # "a" was used between, so "c" took the place of "b".
    assert (small.engine.snapshot().cache_hits, num_run(small)) == (2, 4)


def test_what_failed_is_not_kept(serve: Serve) -> None:
    engine = serve(cache_bytes=ROOMY).engine
    for _ in range(2):
        outcome = engine.run_call("embed", [tokens(2, GIVES_NAN, 3), "good"], keep_errors=True)
        assert isinstance(outcome.errors[0], NotFinite)
    assert outcome.cached == frozenset({1})


def test_options_of_a_finished_row_apply_to_a_known_one(serve: Serve) -> None:
    engine = serve(cache_bytes=ROOMY).engine
    plain, unit = (embed.Params(normalize=normalize) for normalize in (False, True))
    (raw,) = engine.run_call("embed", ["one"], plain).rows
    again = engine.run_call("embed", ["one"], unit)
    assert again.cached == frozenset({0})
    np.testing.assert_allclose(again.rows[0], raw / np.linalg.norm(raw), rtol=1e-6)


def test_prompts_and_segments_are_part_of_what_is_known(tiny_sentence: TinySentence, tiny: Tiny) -> None:
    texts = short_texts(3)
    with LLM(str(tiny_sentence(include_prompt=False, prompts={"q": "Find: "})), cache_bytes=ROOMY) as llm:
        bare = llm.embed(texts, output="numpy")
        asked = llm.embed(texts, prompt_name="q", output="numpy")
        assert np.abs(bare - asked).max() > 1e-3
        outs = llm.embed(texts, prompt_name="q")
        assert [out.num_cached_tokens for out in outs] == [len(out.prompt_token_ids) for out in outs]
        assert [out.num_cached_tokens for out in llm.embed(texts, use_cache=False)] == [0, 0, 0]
    with LLM(str(tiny("bert", head="sequence_classification", num_labels=1)), cache_bytes=ROOMY) as llm:
        first = llm.score("a b", texts)
        again = llm.score("a b", texts)
        assert [out.outputs.score for out in again] == [out.outputs.score for out in first]
        assert all(out.num_cached_tokens == len(out.prompt_token_ids) for out in again)


def test_a_cache_has_no_negative_size() -> None:
    with pytest.raises(ConfigError, match="cache_bytes=-1"):
        LLM(cache_bytes=-1)
