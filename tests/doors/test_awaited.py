"""How awaited calls are handed in: a short one at once where nothing else is there, the others by a thread."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote import LLM, AsyncLLM
from cenote.started import Started
from cenote.types import FloatArray
from support.faulty import until
from support.fixtures import Tiny

TEXTS = [f"text number {number}" for number in range(24)]
MANY = [f"another text, number {number}, which is longer than most" for number in range(4000)]


@pytest.fixture(scope="module")
def folder(tiny: Tiny) -> Path:
    """A tiny BERT."""
    return tiny("bert", max_positions=300)


@pytest.fixture
def handed_in_by(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that handed prompts in."""
    threads: list[threading.Thread] = []
    start = LLM.start

    def noted(self: LLM, *args: Any, **more: Any) -> Started:
        threads.append(threading.current_thread())
        return start(self, *args, **more)

    monkeypatch.setattr(LLM, "start", noted)
    return threads


async def test_short_texts_are_handed_in_at_once_where_nothing_else_is_there(
    folder: Path, handed_in_by: list[threading.Thread]
) -> None:
    async with AsyncLLM(str(folder)) as llm:
        await llm.embed(TEXTS[0])
        await llm.embed(TEXTS[:3], output="numpy")
        await llm.encode(TEXTS[0], pooling_task="embed")
        assert handed_in_by == [threading.main_thread()] * 3
        # Anything that may take long to parse, or is long, is not for the loop.
        for prompts in (MANY[:100], "long " * 1000, {"prompt": TEXTS[0]}):
            handed_in_by.clear()
            await llm.embed(prompts, on_long="cut")
            assert threading.main_thread() not in handed_in_by
            assert len(handed_in_by) == 1


async def test_beside_another_call_they_are_handed_in_by_a_thread(
    folder: Path, handed_in_by: list[threading.Thread]
) -> None:
    async with AsyncLLM(str(folder), num_workers=1) as llm:
        other = asyncio.create_task(llm.embed(MANY, output="numpy"))
        await asyncio.to_thread(until, lambda: llm._llm.engine.snapshot().open_calls == 1)
        await llm.embed(TEXTS[0])
        assert threading.main_thread() not in handed_in_by
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other


@pytest.mark.parametrize("at_once", [False, True])
async def test_many_awaited_calls_give_what_blocking_ones_give(folder: Path, at_once: bool) -> None:
    with LLM(str(folder)) as blocking:
        expected = blocking.embed(TEXTS, output="numpy", use_tqdm=False)
    async with AsyncLLM(str(folder)) as llm:

        async def one(text: str) -> FloatArray:
            (row,) = await llm.embed(text, output="numpy")
            return np.asarray(row)

        found = await asyncio.gather(*map(one, TEXTS)) if at_once else [await one(text) for text in TEXTS]
        counted = llm._llm.engine.snapshot()
    for row, reference in zip(found, expected, strict=True):
        assert np.abs(row - reference).max() <= 2e-6 * np.abs(reference).max()
    assert (counted.calls_by_end, counted.open_calls) == ({"ok": len(TEXTS)}, 0)


async def test_scores_of_few_and_of_many_pairs_are_the_same(folder: Path) -> None:
    async with AsyncLLM(str(folder)) as llm:
        few = await llm.score(TEXTS[0], MANY[:2])
        many = await llm.score(TEXTS[0], MANY[:2000])
    for one, other in zip(few, many, strict=False):
        assert abs(one.outputs.score - other.outputs.score) <= 1e-5
    assert len(many) == 2000


async def test_an_engine_is_held_idle_only_where_it_is(folder: Path) -> None:
    async with AsyncLLM(str(folder), num_workers=1) as llm:
        engine = llm._llm.engine
        with engine.held_idle() as idle:
            assert idle
            call = engine.submit("embed", ["text"])
        await call.outcome()
        waiting = engine.submit("embed", MANY)
        with engine.held_idle() as idle:
            assert not idle
        waiting.cancel()
