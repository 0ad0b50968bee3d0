"""Calls through the real runner of a tiny model: answers, lengths, errors of inputs, admission, ends."""

from __future__ import annotations

import asyncio
import threading
from concurrent import futures

import numpy as np
import pytest

from cenote.errors import (
    BadInput,
    Cancelled,
    DeadlineExceeded,
    Overloaded,
    TooLong,
    UnsupportedTask,
)
from cenote.tasks import embed
from cenote.types import FloatArray, Input, Length, Outcome, Pair, Tokens
from support.faulty import WAIT_S, WAITS, Serve, tokens, until

MAX_LEN = 300
LONG = "long " * (2 * MAX_LEN)


def rows_of(outcome: Outcome) -> FloatArray:
    assert isinstance(outcome.rows, np.ndarray)
    return outcome.rows


def ragged(count: int, seed: int = 0) -> list[Input]:
    source = np.random.default_rng(seed)
    return [Tokens(source.integers(5, 600, source.integers(3, 60)).astype(np.int32)) for _ in range(count)]


def test_rows_come_in_input_order_and_do_not_depend_on_the_batch(serve: Serve) -> None:
    engine = serve(max_batch_tokens=256).engine
    inputs = ragged(300)
    together = rows_of(engine.run_call("embed", inputs, lane="bulk"))
    assert together.dtype == np.float32
    for index in (0, 1, 150, 299):
        (alone,) = rows_of(engine.run_call("embed", [inputs[index]]))
        assert np.abs(together[index] - alone).max() <= 2e-6 * np.abs(alone).max()
    assert len({row.tobytes() for row in together}) == 300


def test_identical_inputs_run_once_and_share_their_row(serve: Serve) -> None:
    served = serve(max_batch_tokens=128)
    inputs: list[Input] = ["one", Pair("one", "two"), "three words here", "one", Pair("one", "two"), "one"] * 100
    rows = rows_of(served.engine.run_call("embed", inputs))
    assert sum(batch.num_seqs for batch in served.runner.batches) == 3
    for index in range(600):
        assert rows[index].tobytes() == rows[index % 6].tobytes()
    assert rows[0].tobytes() == rows[3].tobytes() == rows[5].tobytes()
    assert rows[1].tobytes() == rows[4].tobytes()
    assert len({rows[index].tobytes() for index in range(3)}) == 3


def test_outcome_tells_tokens_and_times(serve: Serve) -> None:
    engine = serve().engine
    call = engine.submit("embed", [tokens(2, 10, 3), tokens(2, 11, 12, 3)], request_id="r1")
    outcome = call.result()
    assert outcome.num_tokens == 7
    assert [len(item.ids) for item in outcome.encoded] == [3, 4]
    assert outcome.queue_s > 0
    assert outcome.tokenize_s > 0
    assert outcome.inference_s > 0
    assert (call.num_done, call.num_done_tokens, call.request_id) == (2, 7, "r1")
    counted = engine.snapshot()
    assert (counted.requests, counted.inputs, counted.tokens, counted.open_calls) == (1, 2, 7, 0)
    assert counted.calls_by_end == {"ok": 1}
    assert (counted.waiting_seqs, counted.waiting_tokens, counted.running_seqs) == (0, 0, 0)


def test_options_apply_to_each_request(serve: Serve) -> None:
    engine = serve().engine
    raw, unit = (
        rows_of(engine.run_call("embed", ["a text"], embed.Params(normalize=normalize)))[0]
        for normalize in (False, True)
    )
    assert np.linalg.norm(unit) == pytest.approx(1)
    assert np.linalg.norm(raw) != pytest.approx(1)
    assert raw / np.linalg.norm(raw) == pytest.approx(unit, abs=1e-6)


def test_refuse_names_every_offender_before_any_forward(serve: Serve) -> None:
    served = serve()
    inputs: list[Input] = ["short" for _ in range(700)]
    for index in (3, 300, 699):
        inputs[index] = LONG
    with pytest.raises(TooLong) as raised:
        served.engine.run_call("embed", inputs)
    assert raised.value.offenders == (3, 300, 699)
    assert f"{MAX_LEN} tokens" in str(raised.value)
    assert served.runner.batches == []
    assert served.engine.snapshot().errors == {"too_long": 1}


def test_cut_takes_them_and_says_so(serve: Serve) -> None:
    engine = serve().engine
    outcome = engine.run_call("embed", ["short", LONG, "short"], length=Length("cut", limit=20))
    assert [len(item.ids) for item in outcome.encoded] == [len(outcome.encoded[0].ids), 20, len(outcome.encoded[0].ids)]
    assert outcome.num_truncated == 1
    assert outcome.errors == {}


def test_kept_errors_are_those_of_single_inputs(serve: Serve) -> None:
    engine = serve().engine
    inputs: list[Input] = [*["fine"] * 300, LONG, tokens(2, 10**6, 3), "fine"]
    outcome = engine.run_call("embed", inputs, keep_errors=True)
    rows = rows_of(outcome)
    assert list(outcome.errors) == [300, 301]
    too_long, unknown = outcome.errors.values()
    assert isinstance(too_long, TooLong)
    assert too_long.offenders == (300,)
    assert str(too_long).startswith("Input 300 ")
    assert (unknown.kind, unknown.index) == ("bad_input", 301)
    assert "Input 301" in str(unknown)
    assert np.isnan(rows[300:302]).all()
    assert np.isfinite(rows[302]).all()
    assert rows[302].tobytes() == rows[0].tobytes()
    assert len(outcome.encoded[300].ids) == 0


def test_a_call_of_errors_alone_ends_too(serve: Serve) -> None:
    outcome = serve().engine.run_call("embed", [LONG, LONG], keep_errors=True)
    assert list(outcome.errors) == [0, 1]
    assert len(outcome.rows) == 2


def test_a_bad_input_is_named_by_its_place_in_the_call(serve: Serve) -> None:
    with pytest.raises(BadInput) as raised:
        serve().engine.run_call("embed", [*["fine"] * 300, tokens(2, 10**6, 3)])
    assert raised.value.index == 300
    assert "Input 300" in str(raised.value)


def test_what_cannot_be_done_is_refused_at_once(serve: Serve) -> None:
    engine = serve().engine
    with pytest.raises(UnsupportedTask):
        engine.submit("paint", ["x"])
    with pytest.raises(BadInput, match="no inputs"):
        engine.submit("embed", [])
    with pytest.raises(BadInput):
        engine.submit("embed", ["x"], embed.Params(dimensions=10**6))
    assert engine.snapshot().requests == 0
    assert sum(engine.snapshot().errors.values()) == 3


def test_full_queue_refuses_and_says_when_to_come_back(serve: Serve) -> None:
    served = serve(num_workers=1, max_queue_tokens=100)
    engine = served.engine
    blocked = served.occupy()
    first = engine.submit("embed", [tokens(2, *range(10, 90), 3)])
    with pytest.raises(Overloaded) as raised:
        engine.submit("embed", [tokens(2, *range(10, 90), 3)])
    assert raised.value.retry_after_s >= 1
    small = engine.submit("embed", [tokens(2, 10, 3)])
    served.runner.gate.set()
    for call in (blocked, first, small):
        assert call.result().errors == {}
    assert engine.snapshot().errors == {"overloaded": 1}


def test_a_cancelled_call_gives_its_room_back(serve: Serve) -> None:
    served = serve(num_workers=1, max_queue_tokens=100)
    served.occupy()
    for _ in range(3):
        call = served.engine.submit("embed", [tokens(2, *range(10, 90), 3)])
        served.wait_for_queue(1)
        assert call.cancel()
    assert served.engine.snapshot().calls_by_end == {"cancelled": 3}


def test_a_call_larger_than_the_queue_gets_in_when_it_is_empty(serve: Serve) -> None:
    engine = serve(max_queue_tokens=50).engine
    assert len(engine.run_call("embed", ragged(40)).rows) == 40


def test_wait_blocks_until_there_is_room(serve: Serve) -> None:
    served = serve(num_workers=1, max_queue_tokens=100)
    engine = served.engine
    served.occupy()
    engine.submit("embed", [tokens(2, *range(10, 90), 3)])
    with futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(engine.run_call, "embed", [tokens(2, *range(10, 95), 3)], wait=True)
        with pytest.raises(DeadlineExceeded):
            engine.submit("embed", [tokens(2, *range(10, 95), 3)], wait=True, deadline_s=0.01)
        assert not waiting.done()
        served.runner.gate.set()
        assert len(waiting.result(WAIT_S).rows) == 1


def test_interactive_goes_before_bulk(serve: Serve) -> None:
    served = serve(num_workers=1, max_batch_tokens=128)
    engine = served.engine
    served.occupy()
    bulk = engine.submit("embed", [tokens(2, *range(100, 220), 3 + index) for index in range(6)], lane="bulk")
    served.wait_for_queue(6)
    quick = engine.submit("embed", [tokens(2, 7, 3)])
    served.wait_for_queue(7)
    served.runner.gate.set()
    quick.result()
    assert bulk.result().errors == {}
    assert served.runner.batches[1].num_tokens == 3


def test_two_workers_share_a_small_load(serve: Serve) -> None:
    served = serve(num_workers=2, max_batch_tokens=4096)
    blocked = served.occupy()
    second = served.engine.submit("embed", [tokens(4, WAITS, 3)])
    served.runner.wait_until_waiting()
    call = served.engine.submit("embed", [tokens(2, *range(100, 197), 3 + index) for index in range(8)])
    served.wait_for_queue(8)
    served.runner.gate.set()
    for each in (blocked, second, call):
        each.result()
    # Half of 8 by 99 tokens; more, up to 512 tokens, where the other worker has not ended its batch yet. What the
    # second worker takes of the rest may be run first.
    assert max(batch.num_tokens for batch in served.runner.batches[2:]) in (4 * 99, 5 * 99)


def wide(count: int) -> list[Input]:
    """Inputs of 99 tokens each."""
    return [tokens(2, *range(100, 197), 3 + index) for index in range(count)]


def test_little_is_not_kept_for_a_worker_that_is_busy(serve: Serve) -> None:
    served = serve(num_workers=2)
    served.occupy()
    served.engine.run_call("embed", wide(5))
    assert [batch.num_tokens for batch in served.runner.batches[1:]] == [5 * 99]
    served.engine.run_call("embed", wide(11)[5:])
    assert len(served.runner.batches) == 4, "more than enough for a batch is shared"


def test_cancelled_while_waiting(serve: Serve) -> None:
    served = serve(num_workers=1)
    engine = served.engine
    blocked = served.occupy()
    call = engine.submit("embed", ragged(50))
    served.wait_for_queue(50)
    assert call.cancel()
    assert engine.snapshot().waiting_seqs == 0
    assert engine.snapshot().waiting_tokens == 0
    with pytest.raises(Cancelled):
        call.result()
    served.runner.gate.set()
    assert blocked.result().errors == {}
    assert not blocked.cancel()
    assert len(served.runner.batches) == 1
    assert engine.snapshot().calls_by_end == {"cancelled": 1, "ok": 1}


def test_cancelled_while_running(serve: Serve) -> None:
    served = serve(num_workers=1)
    call = served.occupy()
    assert call.cancel()
    done, _ = futures.wait([call.future], WAIT_S)
    assert done
    served.runner.gate.set()
    assert served.engine.run_call("embed", ["next"]).errors == {}
    assert served.engine.snapshot().open_calls == 0


def test_deadline_of_a_call_that_waits(serve: Serve) -> None:
    served = serve(num_workers=1)
    served.occupy()
    call = served.engine.submit("embed", ["late"], deadline_s=0.02)
    with pytest.raises(DeadlineExceeded, match=r"0\.02 s"):
        call.result()
    assert served.engine.snapshot().waiting_seqs == 0
    served.runner.gate.set()


def test_deadline_is_seen_when_the_call_is_taken(serve: Serve) -> None:
    served = serve(num_workers=1)
    blocked = served.occupy()
    call = served.engine.submit("embed", ["late"], deadline_s=0.05)
    until(lambda: call.expired)
    served.runner.gate.set()
    assert isinstance(call.future.exception(WAIT_S), DeadlineExceeded)
    blocked.result()
    assert len(served.runner.batches) == 1


def test_awaited_outcome(serve: Serve) -> None:
    engine = serve().engine

    async def main() -> list[Outcome]:
        return await asyncio.gather(*(engine.submit("embed", [f"text {i}"]).outcome() for i in range(20)))

    assert [len(outcome.rows) for outcome in asyncio.run(main())] == [1] * 20


def test_cancelling_the_task_cancels_the_call(serve: Serve) -> None:
    served = serve(num_workers=1)
    served.occupy()
    call = served.engine.submit("embed", ["unwanted"])

    async def main() -> None:
        task = asyncio.ensure_future(call.outcome())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert call.future.cancelled()
    assert served.engine.snapshot().waiting_seqs == 0


def test_wrapping_the_future_cancels_the_call_too(serve: Serve) -> None:
    served = serve(num_workers=1)
    served.occupy()
    call = served.engine.submit("embed", ["unwanted"])

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(call.future), 0.02)

    asyncio.run(main())
    assert call.future.cancelled()
    assert served.engine.snapshot().open_calls == 1


def test_awaiting_sees_deadlines_and_foreign_cancels(serve: Serve) -> None:
    served = serve(num_workers=1)
    served.occupy()
    late = served.engine.submit("embed", ["late"], deadline_s=0.02)
    dropped = served.engine.submit("embed", ["dropped"])

    async def main() -> None:
        with pytest.raises(DeadlineExceeded):
            await late.outcome()
        waiting = asyncio.ensure_future(dropped.outcome())
        await asyncio.sleep(0)
        dropped.cancel()
        with pytest.raises(Cancelled):
            await waiting

    asyncio.run(main())


def test_threads_that_submit_and_cancel(serve: Serve) -> None:
    served = serve(max_batch_tokens=64)
    engine = served.engine
    (expected,) = rows_of(engine.run_call("embed", [tokens(2, 100, 3)]))
    wrong: list[object] = []
    ended_early: list[BaseException] = []
    num_calls = 120

    def hammer(seed: int) -> None:
        source = np.random.default_rng(seed)
        for number in range(num_calls):
            call = engine.submit(
                "embed",
                [tokens(2, 100, 3), *ragged(int(source.integers(1, 6)), seed * 1000 + number)],
                lane="bulk" if number % 3 else "interactive",
                deadline_s=0.001 if number % 7 == 0 else None,
                length=Length("cut" if number % 2 else "refuse"),
            )
            if number % 2:
                call.cancel()
            try:
                (row, *_) = rows_of(call.result())
                if np.abs(row - expected).max() > 1e-5:
                    wrong.append(row)
            except (Cancelled, DeadlineExceeded) as error:
                ended_early.append(error)
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=hammer, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert wrong == []
    assert served.registry.drain(WAIT_S)
    ends = engine.snapshot()
    assert sum(ends.calls_by_end.values()) == ends.requests == 6 * num_calls + 1
    assert set(ends.calls_by_end) <= {"ok", "cancelled", "deadline"}
    assert ends.calls_by_end["ok"] == 6 * num_calls + 1 - len(ended_early)
    assert (ends.waiting_seqs, ends.waiting_tokens, ends.open_calls) == (0, 0, 0)
