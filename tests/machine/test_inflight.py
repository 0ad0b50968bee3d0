"""Inputs equal to one that waits or runs: they get its row, whatever becomes of the call that came first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cenote.call import Call
from cenote.errors import Cancelled, DeadlineExceeded, ForwardFailed, NotFinite
from cenote.tasks import embed
from cenote.types import Input, Outcome, Pair, Tokens
from support.faulty import GIVES_NAN, RAISES, WAITS, Serve, Served, tokens, until


def rows_of(outcome: Outcome) -> list[bytes]:
    return [row.tobytes() for row in outcome.rows]


def num_runs(served: Served, one: Tokens) -> int:
    """How often the model read `one`."""
    return sum(
        batch.ids[start:end].tolist() == one.ids.tolist()
        for batch in served.runner.batches
        for start, end in zip(batch.bounds, batch.bounds[1:], strict=False)
    )


def read(call: Call) -> None:
    """Return once all inputs of a call are tokenised and wait."""
    until(lambda: call.work.num_unadded == 0)


A, B, C = (tokens(2, 10 + index, 20, 3) for index in range(3))
GATED = tokens(2, WAITS, 7, 3)


def test_equal_inputs_that_wait_run_once(serve: Serve) -> None:
    served = serve(num_workers=1)
    served.occupy()
    calls = [served.engine.submit("embed", inputs) for inputs in ([A, B], [B, C], [B, A, A])]
    for call in calls:
        read(call)
    assert served.engine.snapshot().waiting_seqs == 3
    served.runner.gate.set()
    first, second, third = (call.result() for call in calls)
    assert [num_runs(served, one) for one in (A, B, C)] == [1, 1, 1]
    a, b = rows_of(first)
    assert rows_of(second)[0] == b
    assert rows_of(third) == [b, a, a]
    third.rows[0][:] = 0
    assert rows_of(first) == [a, b]
    counted = served.engine.snapshot()
    assert (counted.merged, counted.waiting_tokens, counted.running_seqs) == (3, 0, 0)
    assert counted.tokens == 3 + 3 * 4  # of those that ran


@pytest.mark.parametrize("task", ["embed", "token_embed"])
def test_an_equal_input_that_runs_answers_too(serve: Serve, task: str) -> None:
    served = serve(num_workers=2)
    running = served.engine.submit(task, [GATED])
    served.runner.wait_until_waiting()
    later = served.engine.submit(task, [A, GATED])
    read(later)
    other = served.engine.run_call(task, [A])  # the other worker is free
    served.runner.gate.set()
    first, second = running.result(), later.result()
    assert rows_of(second)[1] == rows_of(first)[0]
    assert num_runs(served, GATED) == 1
    assert rows_of(second)[0] == rows_of(other)[0] or num_runs(served, A) == 2
    assert second.inference_s > 0
    second.rows[1][:] = 0
    assert np.any(first.rows[0])


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("gone", ["first", "second"])
def test_cancelling_one_leaves_the_other(serve: Serve, is_running: bool, gone: str) -> None:
    served = serve(num_workers=1)
    if not is_running:
        served.occupy()
    one = served.engine.submit("embed", [GATED if is_running else A])
    if is_running:
        served.runner.wait_until_waiting()
    read(one)
    two = served.engine.submit("embed", [GATED if is_running else A])
    read(two)
    left, cancelled = (two, one) if gone == "first" else (one, two)
    assert cancelled.cancel()
    served.runner.gate.set()
    with pytest.raises(Cancelled):
        cancelled.result()
    assert left.result().errors == {}
    assert num_runs(served, GATED if is_running else A) == 1
    counted = served.engine.snapshot()
    assert (counted.waiting_seqs, counted.waiting_tokens, counted.open_calls) == (0, 0, 0)
    assert served.engine.run_call("embed", [B]).errors == {}


def test_all_cancelled_nothing_runs(serve: Serve) -> None:
    served = serve(num_workers=1)
    blocked = served.occupy()
    calls = [served.engine.submit("embed", [A]) for _ in range(3)]
    for call in calls:
        read(call)
        assert call.cancel()
    assert served.engine.snapshot().waiting_seqs == 0
    served.runner.gate.set()
    assert blocked.result().errors == {}
    assert served.engine.run_call("embed", [A]).errors == {}
    assert num_runs(served, A) == 1


@pytest.mark.parametrize(("poison", "kind"), [(RAISES, ForwardFailed), (GIVES_NAN, NotFinite)])
def test_a_failure_reaches_all_under_their_own_positions(serve: Serve, poison: int, kind: type[Exception]) -> None:
    served = serve(num_workers=1)
    served.occupy()
    bad = tokens(2, poison, 3)
    strict = served.engine.submit("embed", [bad])
    kept = served.engine.submit("embed", [A, B, bad], keep_errors=True)
    for call in (strict, kept):
        read(call)
    served.runner.gate.set()
    with pytest.raises(kind, match="input 0"):
        strict.result()
    outcome = kept.result()
    assert {index: type(error) for index, error in outcome.errors.items()} == {2: kind}
    assert outcome.errors[2].index == 2
    assert "input 2" in str(outcome.errors[2])
    again = served.engine.run_call("embed", [bad], keep_errors=True)  # what failed is tried anew
    assert isinstance(again.errors[0], kind)


def test_a_deadline_ends_its_own_call_alone(serve: Serve) -> None:
    served = serve(num_workers=1)
    served.occupy()
    hasty = served.engine.submit("embed", [A], deadline_s=0.05)
    read(hasty)
    patient = served.engine.submit("embed", [A])
    read(patient)
    until(lambda: hasty.expired)
    # Nobody waits for it, so that the worker is who finds out.
    served.runner.gate.set()
    assert patient.result().errors == {}
    with pytest.raises(DeadlineExceeded):
        hasty.result()
    assert num_runs(served, A) == 1
    assert served.engine.snapshot().waiting_tokens == 0


def test_inputs_that_are_read_otherwise_are_not_merged(serve: Serve) -> None:
    served = serve(num_workers=1)
    pair = Pair("one", "two")
    same = Tokens(served.engine.run_call("embed", [pair]).encoded[0].ids)  # but for the segment ids
    served.occupy()
    asked: tuple[tuple[str, Input, Any], ...] = (
        ("embed", same, None),
        ("embed", pair, None),
        ("embed", same, embed.Params(pooling="max")),
        ("token_embed", same, None),
    )
    calls = [served.engine.submit(task, [one], params) for task, one, params in asked]
    for call in calls:
        read(call)
    assert served.engine.snapshot().waiting_seqs == 4
    served.runner.gate.set()
    rows = [call.result().rows[0].tobytes() for call in calls]
    assert len(set(rows)) == 4
    assert served.engine.snapshot().merged == 0


def test_options_of_a_finished_row_are_each_call_s_own(serve: Serve) -> None:
    served = serve(num_workers=1)
    served.occupy()
    raw, unit = (served.engine.submit("embed", [A], embed.Params(normalize=normalize)) for normalize in (False, True))
    for call in (raw, unit):
        read(call)
    served.runner.gate.set()
    row, unit_row = raw.result().rows[0], unit.result().rows[0]
    np.testing.assert_allclose(unit_row, row / np.linalg.norm(row), rtol=1e-6)
    assert served.engine.snapshot().merged == 1


def test_a_call_may_run_by_itself(serve: Serve) -> None:
    served = serve(num_workers=1)
    served.occupy()
    calls = [served.engine.submit("embed", [A], use_cache=use_cache) for use_cache in (True, False, False, True)]
    for call in calls:
        read(call)
    assert served.engine.snapshot().waiting_seqs == 3
    served.runner.gate.set()
    assert all(call.result().errors == {} for call in calls)
    assert num_runs(served, A) == 3


def test_a_question_does_not_wait_in_the_bulk_lane(serve: Serve) -> None:
    served = serve(num_workers=1, max_batch_seqs=1)
    served.occupy()
    bulk = served.engine.submit("embed", [B, C, A], lane="bulk")
    read(bulk)
    question = served.engine.submit("embed", [A])
    read(question)
    assert served.engine.snapshot().waiting_seqs == 3
    served.runner.gate.set()
    answer = question.result()
    # The first batch after the one that held the worker.
    assert served.runner.batches[1].ids.tolist() == A.ids.tolist()
    assert rows_of(bulk.result())[2] == rows_of(answer)[0]
    assert num_runs(served, A) == 1
    assert served.engine.snapshot().waiting_tokens == 0


def test_many_calls_at_once_with_cancels_all_end_right(serve: Serve) -> None:
    served = serve(num_workers=2, max_batch_tokens=64)
    source = np.random.default_rng(3)
    inputs = [tokens(2, *source.integers(10, 600, length).tolist(), 3) for length in source.integers(2, 9, 12)]
    expected = {one.ids.tobytes(): served.engine.run_call("embed", [one]).rows[0] for one in inputs}
    before = served.engine.snapshot()
    calls: list[tuple[Call, list[Tokens]]] = []
    for number in range(400):
        chosen = [inputs[at] for at in source.integers(0, len(inputs), source.integers(1, 4))]
        lane: Any = "bulk" if number % 3 == 0 else "interactive"
        calls.append((served.engine.submit("embed", chosen, lane=lane, use_cache=number % 7 != 0), chosen))
        if number % 5 == 0:
            calls[int(source.integers(0, len(calls)))][0].cancel()
    ends = {"ok": 0, "cancelled": 0}
    for call, chosen in calls:
        try:
            outcome = call.result()
        except Cancelled:
            ends["cancelled"] += 1
            continue
        ends["ok"] += 1
        for row, one in zip(outcome.rows, chosen, strict=True):
            reference = expected[one.ids.tobytes()]
            assert np.abs(row - reference).max() <= 2e-6 * np.abs(reference).max()
    after = served.engine.snapshot()
    assert ends["ok"] == after.calls_by_end["ok"] - before.calls_by_end["ok"]
    until(lambda: served.engine.snapshot().running_seqs == 0)
    assert (after.waiting_seqs, after.waiting_tokens, after.open_calls) == (0, 0, 0)
    assert not served.engine._waiting._in_flight._by_key
    assert not served.engine._waiting._in_flight._by_leader
