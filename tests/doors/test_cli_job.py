"""The job without a model: order, failures, checkpoints, and going on after an interruption at any point."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote.cli import job as job_module
from cenote.cli.job import Job, State, state_path_of, take_up
from cenote.cli.sinks import ErrorLog, JsonlSink, NpySink, Sink, open_at
from cenote.cli.sources import Record
from cenote.errors import BadInput, ConfigError, ForwardFailed
from cenote.types import Encoded, Input, Outcome

COLUMNS = 3
TEXTS = [f"text {number}" for number in range(25)]


class Lengths:
    """Embeds a text as its length, its last byte and 1; fails on `poison`; raises `stop` at the given submission."""

    def __init__(self, stop_at: int = -1, stop: type[BaseException] = KeyboardInterrupt) -> None:
        self.num_submitted = 0
        self._stop_at, self._stop = stop_at, stop

    def submit(self, inputs: Sequence[Input]) -> Future[Outcome]:
        texts = [text for text in inputs if isinstance(text, str)]
        self.num_submitted += 1
        if self.num_submitted == self._stop_at:
            raise self._stop
        future: Future[Outcome] = Future()
        rows = np.array([row_of(text) for text in texts], np.float32)
        encoded = [Encoded(np.zeros(len(text), np.int32), num_cut=int(len(text) > 100)) for text in texts]
        errors = {at: ForwardFailed("The model raised.") for at, text in enumerate(texts) if text == "poison"}
        rows[list(errors)] = np.nan
        future.set_result(Outcome(rows, encoded, dict(errors)))
        return future


def row_of(text: str) -> list[float]:
    return [float(len(text)), float(text.encode()[-1]) if text else 0.0, 1.0]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "CHUNK_TEXTS", 2)
    monkeypatch.setattr(job_module, "CHUNKS_IN_FLIGHT", 3)
    monkeypatch.setattr(job_module, "CHECKPOINT_EVERY_S", 0.0)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power is lost here, and a disk takes its time


def _records(texts: Sequence[str | None]) -> list[Record]:
    broken = BadInput("Line 1: broken")
    return [Record(at, text, at + 1, error=None if text is not None else broken) for at, text in enumerate(texts)]


def _run(
    output: Path,
    texts: Sequence[str | None],
    embedder: Lengths | None = None,
    *,
    skip: bool = False,
    close: bool = True,
) -> State:
    state = take_up(output, {"what": "lengths"}, can_resume=True, force=False)
    state.save(state_path_of(output))
    opened: Callable[[], Sink] = (
        (lambda: NpySink(output, COLUMNS, state.output_bytes))
        if output.suffix == ".npy"
        else (lambda: JsonlSink(open_at(output, state.output_bytes), lambda row_D: {"embedding": row_D}))
    )
    sink = opened()
    failed = ErrorLog(output.with_suffix(".errors"), state.errors_bytes) if skip else None
    run = Job(embedder or Lengths(), sink, COLUMNS, state, state_path_of(output), failed, lambda state, units: None)
    try:
        run.run(_records(texts))
    finally:
        if close:
            sink.close()
        if failed is not None:
            failed.close()
    return state


def test_rows_are_in_order_and_counted(tmp_path: Path) -> None:
    state = _run(tmp_path / "a.npy", [*TEXTS, "x" * 101])
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), [row_of(text) for text in [*TEXTS, "x" * 101]])
    assert (state.num_done, state.num_truncated, state.num_failed) == (26, 1, 0)
    assert state.num_tokens == sum(len(text) for text in TEXTS) + 101


def test_failed_inputs_are_nan_in_npy_and_listed(tmp_path: Path) -> None:
    state = _run(tmp_path / "a.npy", ["one", "poison", None, "four", None, None], skip=True)
    rows_ND = np.load(tmp_path / "a.npy")
    assert np.isnan(rows_ND[[1, 2, 4, 5]]).all()
    np.testing.assert_array_equal(rows_ND[[0, 3]], [row_of("one"), row_of("four")])
    listed = [json.loads(line) for line in (tmp_path / "a.errors").read_text().splitlines()]
    assert [(entry["index"], entry["kind"]) for entry in listed] == [
        (1, "forward_failed"), (2, "bad_input"), (4, "bad_input"), (5, "bad_input"),
    ]  # fmt: skip
    assert state.num_failed == 4


def test_failed_inputs_have_no_json_line(tmp_path: Path) -> None:
    _run(tmp_path / "a.jsonl", ["one", "poison", "three"], skip=True)
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["index"] for line in lines] == [0, 2]
    assert lines[1] == {"index": 2, "embedding": row_of("three"), "tokens": 5, "truncated": False}


def test_the_first_failure_ends_the_job_and_keeps_what_was_done(tmp_path: Path) -> None:
    output = tmp_path / "a.npy"
    with pytest.raises(ForwardFailed, match=r"Input 5: The model raised. .*--errors skip"):
        _run(output, [*TEXTS[:5], "poison", *TEXTS[6:]])
    assert len(np.load(output)) == 4
    state = _run(output, [*TEXTS[:5], "poison", *TEXTS[6:]], skip=True)
    assert (state.num_done, state.num_failed) == (25, 1)
    np.testing.assert_array_equal(np.load(output)[6:], [row_of(text) for text in TEXTS[6:]])


@pytest.mark.parametrize("name", ["a.npy", "a.jsonl"])
@pytest.mark.parametrize("stop_at", [1, 4, 9, 13])
def test_an_interrupted_job_goes_on_and_ends_as_if_never_stopped(tmp_path: Path, name: str, stop_at: int) -> None:
    texts: list[str | None] = [*TEXTS]
    texts[3], texts[17] = "poison", None
    (tmp_path / "whole").mkdir()
    whole = tmp_path / "whole" / name
    _run(whole, texts, skip=True)
    output = tmp_path / name
    with pytest.raises(KeyboardInterrupt):
        _run(output, texts, Lengths(stop_at), skip=True)
    second = Lengths()
    state = _run(output, texts, second, skip=True)
    assert output.read_bytes() == whole.read_bytes()
    assert output.with_suffix(".errors").read_bytes() == whole.with_suffix(".errors").read_bytes()
    assert state.num_done == 25
    assert second.num_submitted < 13 or stop_at <= 3


@pytest.mark.parametrize("name", ["a.npy", "a.jsonl"])
def test_what_was_written_after_the_last_checkpoint_is_dropped(tmp_path: Path, name: str) -> None:
    output = tmp_path / name
    with pytest.raises(KeyboardInterrupt):
        _run(output, TEXTS, Lengths(8))
    with output.open("ab") as file:
        file.write(b"half a row" * 1000)
    _run(output, TEXTS)
    if name == "a.npy":
        np.testing.assert_array_equal(np.load(output), [row_of(text) for text in TEXTS])
    else:
        assert [json.loads(line)["index"] for line in output.read_text().splitlines()] == list(range(25))


def test_a_growing_npy_is_a_valid_file_after_each_flush(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    sink = NpySink(path, COLUMNS)
    for num_rows in range(1, 12):
        sink.write([], np.full((1, COLUMNS), num_rows, np.float32))
        assert sink.flush() == path.stat().st_size
        rows_ND = np.load(path)
        assert rows_ND.shape == (num_rows, COLUMNS)
        assert rows_ND.dtype == np.float32
    sink.write([], np.zeros((5, COLUMNS), np.float32))
    assert np.load(path).shape == (11, COLUMNS)
    sink.close()
    assert np.load(path, mmap_mode="r").shape == (16, COLUMNS)


def _unfinished(output: Path, **job: Any) -> None:
    output.write_bytes(b"12345678")
    State(job, num_done=2, output_bytes=8).save(state_path_of(output))


def test_take_up_goes_on_with_the_same_job_alone(tmp_path: Path) -> None:
    output = tmp_path / "a.npy"
    job = {"model": "m", "input": [("f", 1)]}
    assert take_up(output, job, can_resume=True, force=False) == State(job)
    _unfinished(output, **job)
    assert take_up(output, job, can_resume=True, force=False).num_done == 2
    assert take_up(output, job, can_resume=True, force=True).num_done == 0
    with pytest.raises(ConfigError, match=r"cannot be continued: model is not what it was.*--force"):
        take_up(output, {**job, "model": "n"}, can_resume=True, force=False)
    with pytest.raises(ConfigError, match="standard input cannot be read again"):
        take_up(output, job, can_resume=False, force=False)
    output.write_bytes(b"1")
    with pytest.raises(ConfigError, match="shorter than 8 bytes"):
        take_up(output, job, can_resume=True, force=False)
    state_path_of(output).write_text("{")
    with pytest.raises(ConfigError, match="no state of a job"):
        take_up(output, job, can_resume=True, force=False)
    state_path_of(output).unlink()
    with pytest.raises(ConfigError, match=r"exists and is finished.*--force"):
        take_up(output, job, can_resume=True, force=False)
