"""What happens when a part fails: the call ends, once, with the right error, and the others do not notice."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote.config import MachineSettings, ModelSettings
from cenote.errors import CenoteError, ForwardFailed, NotFinite, Unavailable
from cenote.registry import Registry
from cenote.runner import Runner
from cenote.tasks import embed
from cenote.types import Batch, Input, Length, Rows, Tokens
from support.faulty import GIVES_NAN, KILLS, RAISES, WAIT_S, WAITS, Serve, tokens

GOOD: list[Input] = [Tokens(np.arange(10 + index, 20 + index, dtype=np.int32)) for index in range(20)]


def test_the_batch_is_halved_down_to_the_input_at_fault(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    served = serve(num_workers=1)
    clean = served.engine.run_call("embed", GOOD).rows
    with caplog.at_level(logging.ERROR):
        outcome = served.engine.run_call("embed", [*GOOD[:7], tokens(2, RAISES, 3), *GOOD[7:]], keep_errors=True)
    assert list(outcome.errors) == [7]
    error = outcome.errors[7]
    assert (type(error), error.index) == (ForwardFailed, 7)
    assert isinstance(error.__cause__, RuntimeError)
    assert "poison" in str(error)
    assert len([record for record in caplog.records if "poison" in record.getMessage()]) == 1
    assert isinstance(outcome.rows, np.ndarray)
    assert np.isnan(outcome.rows[7]).all()
    np.testing.assert_allclose(np.delete(outcome.rows, 7, 0), clean, atol=1e-5)


def test_only_the_call_at_fault_fails(serve: Serve) -> None:
    served = serve(num_workers=1)
    blocked = served.occupy()
    bad = served.engine.submit("embed", [*GOOD[:3], tokens(2, RAISES, 3)])
    good = served.engine.submit("embed", GOOD)
    served.wait_for_queue(21)  # three wait for those of the call at fault
    served.runner.gate.set()
    with pytest.raises(ForwardFailed) as raised:
        bad.result()
    assert raised.value.index == 3
    assert good.result().errors == {}
    assert blocked.result().errors == {}
    assert served.engine.snapshot().calls_by_end == {"ok": 2, "forward_failed": 1}


def test_not_a_number_is_an_error_of_that_input(serve: Serve) -> None:
    engine = serve().engine
    poison = tokens(2, GIVES_NAN, 3)
    outcome = engine.run_call("embed", [GOOD[0], poison, GOOD[1], poison], keep_errors=True)
    assert {index: type(error) for index, error in outcome.errors.items()} == {1: NotFinite, 3: NotFinite}
    assert [error.index for error in outcome.errors.values()] == [1, 3]
    assert "input 3" in str(outcome.errors[3])
    assert isinstance(outcome.rows, np.ndarray)
    assert np.isfinite(outcome.rows[[0, 2]]).all()
    with pytest.raises(NotFinite):
        engine.run_call("embed", [GOOD[0], poison])


@pytest.mark.parametrize("lane", ["interactive", "bulk"])
def test_a_dead_worker_ends_everything_and_says_so(serve: Serve, lane: Any, caplog: pytest.LogCaptureFixture) -> None:
    served = serve(num_workers=2)
    blocked = served.occupy()
    deadly = served.engine.submit("embed", [tokens(2, KILLS, 3)], lane=lane, keep_errors=True)
    for call in (deadly, blocked):
        with pytest.raises(Unavailable, match="worker thread died"):
            call.result()
    assert served.registry.state == "dead"
    with pytest.raises(Unavailable):
        served.engine.submit("embed", ["more"])
    assert served.engine.snapshot().open_calls == 0
    assert any(record.levelno == logging.CRITICAL for record in caplog.records)


def test_a_batch_that_never_ends_is_noticed(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    served = serve(num_workers=2, max_forward_s=0.2)
    stuck = served.occupy()
    waiting = served.engine.submit("embed", [tokens(4, WAITS, 3)])
    for call in (stuck, waiting):
        with pytest.raises(Unavailable, match=r"a batch ran for more than 0\.2 s"):
            call.result()
    assert served.registry.state == "dead"
    assert any(record.levelno == logging.CRITICAL for record in caplog.records)


class _Ragged(Runner):
    """Gives rows of a size of its own for each number of sequences."""

    def run(self, batch: Batch, *, alone: bool = False) -> list[Rows]:
        return [
            Rows(answer.seqs, np.ones((len(answer.rows), 5 + batch.num_seqs), np.float32))
            for answer in super().run(batch, alone=alone)
        ]


def test_rows_that_cannot_be_kept_end_their_call_alone(folder: Path) -> None:
    machine = MachineSettings(device="cpu", num_workers=1, max_batch_seqs=2)
    with Registry(machine, runner_factory=_Ragged) as registry:
        engine = registry.open(ModelSettings(model=str(folder)))
        with pytest.raises(CenoteError, match="failed") as raised:
            engine.run_call("embed", GOOD[:3])
        assert raised.value.kind == "internal"
        assert engine.run_call("embed", GOOD[:2]).errors == {}
        assert registry.state == "ready"


def broken(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("broken")


@pytest.mark.parametrize("step", ["encode", "shape"])
@pytest.mark.parametrize("keep_errors", [False, True])
def test_a_task_that_raises_ends_the_call(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, step: str, keep_errors: bool
) -> None:
    engine = serve().engine
    with monkeypatch.context() as patched:
        patched.setattr(embed, step, broken)
        with pytest.raises(CenoteError, match="ZeroDivisionError") as raised:
            engine.run_call("embed", ["text"], keep_errors=keep_errors)
    assert raised.value.kind == "internal"
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert engine.run_call("embed", ["text"]).errors == {}
    assert engine.snapshot().calls_by_end == {"internal": 1, "ok": 1}


def test_a_panic_while_tokenising_ends_the_call(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        """As extensions written in Rust raise it."""

    def panic(*_: object) -> Any:
        raise Panic

    engine = serve().engine
    monkeypatch.setattr(embed, "encode", panic)
    with pytest.raises(CenoteError, match="Panic"):
        engine.run_call("embed", ["text"] * 1000, length=Length("cut"))


class _Forgets(Runner):
    def run(self, batch: Batch, *, alone: bool = False) -> list[Rows]:
        return [Rows(answer.seqs[1:], answer.rows[1:]) for answer in super().run(batch, alone=alone)]


class _Repeats(Runner):
    def run(self, batch: Batch, *, alone: bool = False) -> list[Rows]:
        return super().run(batch, alone=alone) * 2


class _Miscounts(Runner):
    def run(self, batch: Batch, *, alone: bool = False) -> list[Rows]:
        return [Rows(answer.seqs, answer.rows[:-1]) for answer in super().run(batch, alone=alone)]


@pytest.mark.parametrize("runner", [_Forgets, _Repeats, _Miscounts])
def test_a_runner_that_does_not_answer_each_sequence_once(folder: Path, runner: Callable[..., Runner]) -> None:
    with Registry(MachineSettings(device="cpu", num_workers=1), runner_factory=runner) as registry:
        engine = registry.open(ModelSettings(model=str(folder)))
        outcome = engine.submit("embed", GOOD[:4], keep_errors=True)
        assert isinstance(outcome.future.result(WAIT_S).errors[0], ForwardFailed)
