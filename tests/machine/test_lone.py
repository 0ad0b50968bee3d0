"""Short calls that come while nothing else is there: one worker does all of each, and nothing else changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote.config import MachineSettings, ModelSettings
from cenote.errors import Cancelled, CenoteError, DeadlineExceeded, ForwardFailed, NotFinite, Unavailable
from cenote.pieces import FEW_BYTES, FEW_INPUTS
from cenote.registry import Registry
from cenote.tasks import embed
from cenote.types import Batch, Input, Rows
from support.faulty import GIVES_NAN, RAISES, WAIT_S, WAITS, Serve, Served, tokens, until

SHORT = "a short text"


class Steps:
    """Which threads tokenised, computed and finished, and a gate before the first of these.

    Attributes:
        threads: Step -> names of threads.
        gate: Opened by the test where `hold` was called.
        held: Released once for each call that reached the closed gate.
    """

    def __init__(self, served: Served, patch: pytest.MonkeyPatch) -> None:
        self.threads: dict[str, list[str]] = {"encode": [], "run": [], "shape": []}
        self.gate, self.held = threading.Event(), threading.Semaphore(0)
        self.gate.set()
        patch.setattr(embed, "encode", self._noted("encode", self._behind_gate(embed.encode)))
        patch.setattr(served.runner, "run", self._noted("run", served.runner.run))
        patch.setattr(embed, "shape", self._noted("shape", embed.shape))

    @property
    def all_threads(self) -> set[str]:
        """Names of all that did anything."""
        return {name for names in self.threads.values() for name in names}

    def _noted(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **more: Any) -> Any:
            self.threads[step].append(threading.current_thread().name)
            return function(*arguments, **more)

        return noted

    def _behind_gate(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def behind(*arguments: Any, **more: Any) -> Any:
            if not self.gate.is_set():
                self.held.release()
                assert self.gate.wait(WAIT_S)
            return function(*arguments, **more)

        return behind

    def wait_until_held(self) -> None:
        """Return once a call stands at the gate."""
        assert self.held.acquire(timeout=WAIT_S)


def assert_idle(served: Served) -> None:
    """Nothing is left behind of any call."""
    shared = served.engine._shared
    until(lambda: (shared.num_open, shared.num_running, len(shared.lone)) == (0, 0, 0))
    after = served.engine.snapshot()
    assert (after.waiting_seqs, after.waiting_tokens, after.running_seqs, after.open_calls) == (0, 0, 0, 0)
    assert sum(after.calls_by_end.values()) == after.requests


def test_a_batch_is_alone_where_nothing_else_is_there(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve(num_workers=2)
    run, told = served.runner.run, []

    def noted(batch: Batch, *, alone: bool = False) -> list[Rows]:
        told.append(alone)
        return run(batch, alone=alone)

    monkeypatch.setattr(served.runner, "run", noted)
    for inputs in ([SHORT], ["x" * (FEW_BYTES + 1)]):
        served.engine.run_call("embed", inputs)
        until(lambda: served.engine._shared.num_open == 0)
    assert told == [True, True]
    blocked = served.occupy()
    served.engine.run_call("embed", [SHORT])
    assert told == [True, True, True, False]
    assert blocked.cancel()


def test_other_cores_are_roused_for_a_lone_call_before_it_is_read(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve(num_workers=2)
    served.engine.run_call("embed", [SHORT] * 500)
    steps: list[str] = []
    for owner, name in ((served.runner, "rouse"), (served.runner, "run"), (served.engine, "_tokenize_next")):
        step = getattr(owner, name)

        def noted(*args: Any, _step: Callable[..., Any] = step, _name: str = name, **more: Any) -> Any:
            steps.append(_name)
            return _step(*args, **more)

        monkeypatch.setattr(owner, name, noted)
    served.engine.run_call("embed", [SHORT])
    assert steps == ["rouse", "_tokenize_next", "run"]
    steps.clear()
    served.engine.run_call("embed", [f"{number} {SHORT}" for number in range(500)])
    assert "rouse" not in steps


def test_one_worker_does_all_of_a_short_call(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve(num_workers=2)
    steps = Steps(served, monkeypatch)
    outcome = served.engine.run_call("embed", [SHORT, "and another one"])
    (name,) = steps.all_threads
    assert name.startswith("cenote-worker")
    assert {step: len(names) for step, names in steps.threads.items()} == {"encode": 1, "run": 1, "shape": 1}
    assert min(outcome.queue_s, outcome.tokenize_s, outcome.inference_s) > 0
    assert_idle(served)


@pytest.mark.parametrize("inputs", [[SHORT] * (FEW_INPUTS + 1), ["x" * (FEW_BYTES + 1)]])
def test_what_is_not_short_goes_from_thread_to_thread(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, inputs: list[Input]
) -> None:
    served = serve(num_workers=2)
    steps = Steps(served, monkeypatch)
    assert len(served.engine.run_call("embed", inputs).rows) == len(inputs)
    assert all(name.startswith("cenote-tokenize") for name in steps.threads["encode"])
    assert all(name.startswith("cenote-finish") for name in steps.threads["shape"])


def test_what_comes_beside_another_goes_from_thread_to_thread_and_gets_the_same_row(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve(num_workers=2)
    alone = served.engine.run_call("embed", [SHORT]).rows
    blocked = served.occupy()
    steps = Steps(served, monkeypatch)
    beside = served.engine.run_call("embed", [SHORT]).rows
    assert len(steps.all_threads) == 3
    assert beside[0].tobytes() == alone[0].tobytes()
    # One that was given up still runs.
    assert blocked.cancel()
    served.engine.run_call("embed", [SHORT])
    assert len(steps.all_threads) >= 3
    assert all(name.startswith("cenote-tokenize") for name in steps.threads["encode"])
    served.runner.gate.set()
    assert_idle(served)


def test_what_fills_several_batches_is_shared_with_the_other_worker(serve: Serve) -> None:
    served = serve(num_workers=2)
    rest = [tokens(2, *range(200 + n, 298 + n), 3) for n in range(3)]
    call = served.engine.submit("embed", [tokens(2, WAITS, 3), *rest])
    served.runner.wait_until_waiting()
    until(lambda: call.num_done >= 2)  # the gate is still closed
    served.runner.gate.set()
    assert call.result().errors == {}
    assert_idle(served)


@pytest.mark.parametrize("ends", ["cancel", "deadline"])
@pytest.mark.parametrize("where", ["encode", "run"])
def test_a_lone_call_that_is_given_up_ends_at_once(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, ends: str, where: str
) -> None:
    served = serve(num_workers=1)
    steps = Steps(served, monkeypatch)
    if where == "encode":
        steps.gate.clear()
    deadline_s = 0.05 if ends == "deadline" else None
    call = served.engine.submit("embed", [tokens(2, WAITS, 3)], deadline_s=deadline_s)
    if where == "encode":
        steps.wait_until_held()
    else:
        served.runner.wait_until_waiting()
    if ends == "cancel":
        assert call.cancel()
    with pytest.raises(Cancelled if ends == "cancel" else DeadlineExceeded):
        call.result()
    steps.gate.set()
    served.runner.gate.set()
    assert served.engine.run_call("embed", [SHORT]).errors == {}
    assert len(served.runner.batches) == (1 if where == "encode" else 2)
    assert_idle(served)


@pytest.mark.parametrize("step", ["encode", "shape"])
def test_what_raises_in_a_step_ends_its_call_and_no_worker(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    class Panic(BaseException):
        """As extensions written in Rust raise it."""

    def panic(*_: object) -> Any:
        raise Panic

    served = serve(num_workers=1)
    with monkeypatch.context() as patched:
        patched.setattr(embed, step, panic)
        with pytest.raises(CenoteError, match="Panic"):
            served.engine.run_call("embed", [SHORT])
    assert served.registry.state == "ready"
    assert served.engine.run_call("embed", [SHORT]).errors == {}
    assert_idle(served)


@pytest.mark.parametrize(("poison", "error"), [(RAISES, ForwardFailed), (GIVES_NAN, NotFinite)])
def test_a_forward_that_fails_ends_its_call_once(serve: Serve, poison: int, error: type[CenoteError]) -> None:
    served = serve(num_workers=1)
    with pytest.raises(error):
        served.engine.run_call("embed", [SHORT, tokens(2, poison, 3)])
    outcome = served.engine.run_call("embed", [SHORT, tokens(2, poison, 3)], keep_errors=True)
    assert {index: type(found) for index, found in outcome.errors.items()} == {1: error}
    assert np.isfinite(outcome.rows[0]).all()
    assert_idle(served)


@pytest.mark.parametrize("where", ["encode", "run"])
def test_closing_ends_a_lone_call(serve: Serve, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    served = serve(num_workers=1)
    steps = Steps(served, monkeypatch)
    if where == "encode":
        steps.gate.clear()
    call = served.engine.submit("embed", [tokens(2, WAITS, 3)])
    steps.wait_until_held() if where == "encode" else served.runner.wait_until_waiting()
    closing = threading.Thread(target=served.registry.close)
    closing.start()
    with pytest.raises(Unavailable, match="closed"):
        call.result()
    steps.gate.set()
    served.runner.gate.set()
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert len(served.runner.batches) == (0 if where == "encode" else 1)


def test_an_equal_input_that_came_meanwhile_runs_once_for_both(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve(num_workers=2)
    steps = Steps(served, monkeypatch)
    steps.gate.clear()
    first = served.engine.submit("embed", [tokens(2, WAITS, 3)])
    steps.wait_until_held()
    second = served.engine.submit("embed", [tokens(2, WAITS, 3)])
    steps.wait_until_held()
    steps.gate.set()
    served.runner.wait_until_waiting()
    until(lambda: first.work.num_unread == second.work.num_unread == 0)
    until(lambda: first.work.num_unadded == second.work.num_unadded == 0)
    served.runner.gate.set()
    assert first.result().rows[0].tobytes() == second.result().rows[0].tobytes()
    assert len(served.runner.batches) == 1
    assert_idle(served)


def test_threads_that_all_ask_alone_and_together(serve: Serve) -> None:
    served = serve(num_workers=2)
    texts = [f"text number {number}" for number in range(12)]
    expected = [served.engine.run_call("embed", [text]).rows[0] for text in texts]
    wrong: list[object] = []

    def ask(seed: int) -> None:
        source = np.random.default_rng(seed)
        for number in source.integers(0, len(texts), 60).tolist():
            call = served.engine.submit("embed", [texts[number]], lane="bulk" if seed % 2 else "interactive")
            if number == 11:
                call.cancel()
            try:
                (row,) = call.result().rows
                if np.abs(row - expected[number]).max() > 2e-6 * np.abs(expected[number]).max():
                    wrong.append(row)
            except Cancelled:
                if number != 11:
                    wrong.append(number)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert wrong == []
    assert_idle(served)


def test_two_models_take_turns(folder: Path) -> None:
    with Registry(MachineSettings(device="cpu", num_workers=1)) as registry:
        one, two = (registry.open(ModelSettings(model=str(folder)), [name]) for name in ("one", "two"))
        calls = [engine.submit("embed", [f"text {number}"]) for number in range(20) for engine in (one, two)]
        rows = [call.result().rows[0].tobytes() for call in calls]
    assert rows[::2] == rows[1::2]
    assert len(set(rows)) == 20
