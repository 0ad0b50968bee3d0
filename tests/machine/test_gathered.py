"""Short calls that come while others are there: they are tokenised together, and each answers for itself."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cenote.call import Call
from cenote.errors import BadInput, CenoteError, DeadlineExceeded, TooLong, Unavailable
from cenote.tasks import embed
from cenote.types import Length
from support.faulty import WAIT_S, Serve, Served, until

TEXTS = ("one text", "another text", "and a third one")
LONE_SURROGATE = "a \ud800"


class Read:
    """What each call of the task's `encode` was given."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.inputs: list[list[Any]] = []
        encode = embed.encode

        def noted(recipe: Any, tokenizer: Any, inputs: Sequence[Any], *more: Any) -> Any:
            self.inputs.append(list(inputs))
            return encode(recipe, tokenizer, inputs, *more)

        patch.setattr(embed, "encode", noted)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    return Read(monkeypatch)


def at_once(served: Served, *calls: tuple[list[Any], dict[str, Any]]) -> list[Call]:
    """Hand calls in while no turn of the pool can begin; one batch is under way, so that none of them is lone."""
    blocked = served.occupy()
    with served.engine._shared.work:
        submitted = [served.engine.submit("embed", inputs, **options) for inputs, options in calls]
    served.runner.gate.set()
    blocked.result()
    return submitted


def error_of(call: Call) -> BaseException | None:
    return call.future.exception(timeout=WAIT_S)


def test_they_are_read_at_once_and_run_in_one_batch(serve: Serve, read: Read) -> None:
    served = serve(num_workers=1)
    alone = [served.engine.run_call("embed", [text]).rows for text in TEXTS]
    read.inputs.clear()
    calls = at_once(served, *[([text], {}) for text in TEXTS[:2]], ([*TEXTS[2:], TEXTS[0]], {}))
    outcomes = [call.result() for call in calls]
    assert read.inputs[1:] == [[*TEXTS, TEXTS[0]]]
    assert served.runner.batches[-1].num_seqs == len(TEXTS)  # the text that comes twice runs once
    assert [len(outcome.encoded) for outcome in outcomes] == [1, 1, 2]
    together = np.concatenate([np.asarray(outcome.rows) for outcome in outcomes])
    np.testing.assert_allclose(together, np.concatenate([*alone, alone[0]]), atol=1e-6)


def test_those_with_other_options_are_read_apart(serve: Serve, read: Read) -> None:
    served = serve()
    cut = {"length": Length("cut", limit=4)}
    kept = {"keep_errors": True}
    calls = at_once(served, *[([text], options) for options in (cut, {}, kept) for text in TEXTS[:2]])
    lengths = [len(call.result().encoded[0].ids) for call in calls]
    one, another = TEXTS[:2]
    assert sorted(read.inputs[1:]) == sorted([[one, another], [one, another], [one], [another]])
    assert max(lengths[:2]) == 4 < min(lengths[2:])


@pytest.mark.parametrize(
    ("inputs", "expected"), [([TEXTS[0], LONE_SURROGATE], BadInput), ([TEXTS[0], "long " * 300], TooLong)]
)
def test_only_the_call_at_fault_fails(serve: Serve, inputs: list[str], expected: type[CenoteError]) -> None:
    served = serve()
    first, bad, last = at_once(served, ([TEXTS[1]], {}), (inputs, {}), ([TEXTS[2]], {}))
    error = error_of(bad)
    assert isinstance(error, expected)
    assert error.index in (1, None)
    assert "nput 1" in str(error)
    assert [np.asarray(call.result().rows).shape[0] for call in (first, last)] == [1, 1]
    until(lambda: served.engine.snapshot().open_calls == 0)
    assert served.engine.snapshot().waiting_tokens == 0


def test_errors_that_are_kept_name_their_own_positions(serve: Serve) -> None:
    calls = at_once(serve(), *[([TEXTS[0], LONE_SURROGATE], {"keep_errors": True})] * 2)
    assert [list(call.result().errors) for call in calls] == [[1], [1]]


def test_one_that_is_late_or_given_up_takes_no_other_with_it(serve: Serve) -> None:
    served = serve()
    blocked = served.occupy()
    with served.engine._shared.work:
        late, gone, good = (
            served.engine.submit("embed", [text], deadline_s=deadline_s)
            for text, deadline_s in zip(TEXTS, (1e-9, None, None), strict=True)
        )
        assert gone.cancel()
    served.runner.gate.set()
    assert isinstance(error_of(late), DeadlineExceeded)
    assert gone.future.cancelled()
    assert len(good.result().rows) == 1
    blocked.result()
    until(lambda: served.engine.snapshot().open_calls == 0)


def test_a_closed_pool_ends_them(serve: Serve) -> None:
    served = serve()
    blocked = served.occupy()
    served.engine._shared.tokenize_pool.shutdown()
    calls = [served.engine.submit("embed", [text]) for text in TEXTS[:3]]
    assert all(isinstance(error_of(call), Unavailable) for call in calls)
    served.runner.gate.set()
    blocked.result()


def test_a_call_is_freed_without_the_collector_of_cycles(serve: Serve) -> None:
    served = serve()
    gc.collect()
    gc.disable()
    try:
        call = served.engine.submit("embed", [TEXTS[0]])
        call.result()
        kept = weakref.ref(call)
        del call
        until(lambda: kept() is None)  # the finishing thread may hold it a moment longer
        assert kept() is None
    finally:
        gc.enable()
