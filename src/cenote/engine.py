"""One model at work: calls come in, batches go to a runner, each call ends exactly once.

An engine owns no thread. Callers run `submit`, the registry's pools tokenise and finish, workers run `take` and `run`.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import pieces, tasks
from .admission import Admission
from .cache import RowCache
from .call import Call
from .config import MachineSettings
from .errors import CenoteError
from .forward import Answered, End, Failed, RunsBatches, forward
from .gathered import Gathered
from .scheduler import Lane, Pending, share
from .shared import Shared
from .stats import Snapshot, Stats
from .types import FloatArray, Input, Length, Outcome
from .waiting import Waiting

if TYPE_CHECKING:
    from .fingerprint import Fingerprint
    from .precisions import Calibration
    from .recipe import Recipe
    from .tokenizer import Tokenizer

log = logging.getLogger(__name__)

_DEFAULT_LENGTH = Length()


class Engine:
    """One served model.

    Args:
        names: What it is called; the first is its name, the others are aliases.
        recipe: Everything decided about the checkpoint.
        tokenizers: Name of each route, "" where there are none -> its tokenizer, that of the default route first.
        runner: Its loaded model.
        machine: Sizes of batches and of the queue.
        shared: What it shares with the other engines.
        calibration: Ranges of its one-byte vectors; None leaves them to a sample.
        fingerprint: Tells it from other models; None where nobody asks.

    Attributes:
        sample_ranges: Those that the sample gave, by the form of vectors; `calibration` fills it.
    """

    def __init__(
        self,
        names: Sequence[str],
        recipe: Recipe,
        tokenizers: Mapping[str, Tokenizer],
        runner: RunsBatches,
        machine: MachineSettings,
        shared: Shared,
        calibration: Calibration | None = None,
        fingerprint: Fingerprint | None = None,
    ) -> None:
        self.name, self.aliases = names[0], tuple(names[1:])
        self.recipe, self.tokenizers, self.runner = recipe, tokenizers, runner
        self.tokenizer = next(iter(tokenizers.values()))
        self.calibration, self.fingerprint = calibration, fingerprint
        self.sample_ranges: dict[Hashable, FloatArray] = {}
        self.stats = Stats()
        self.machine, self._shared = machine, shared
        self._calls: set[Call] = set()
        self._cache = RowCache(machine.cache_bytes) if machine.cache_bytes else None
        self._running_seqs = 0
        self._admission = Admission(self.name, machine.max_queue_tokens, shared.room, self.stats.tokens_per_s)
        self._waiting = Waiting(self._admission, shared.work)
        self._gathered = Gathered(self.name, shared, self._note, self._end)

    # Coming in, on the caller's thread.

    def submit(
        self,
        task: str,
        inputs: Sequence[Input],
        params: Any = None,
        *,
        length: Length = _DEFAULT_LENGTH,
        lane: Lane = "interactive",
        deadline_s: float | None = None,
        keep_errors: bool = False,
        wait: bool = False,
        request_id: str | None = None,
        use_cache: bool = True,
    ) -> Call:
        """Admit a call of one or more inputs; its `future` ends with an `Outcome`.

        Args:
            task: Name of a task that the model serves.
            inputs: Parsed inputs, see `inputs.parse`.
            params: The task's options; None changes nothing.
            length: What happens to inputs that are too long. `refuse` names every offender before any forward.
            lane: `interactive` goes first, `bulk` never starves.
            deadline_s: Seconds from now after which the call ends with `DeadlineExceeded`.
            keep_errors: Bad inputs become entries of `Outcome.errors` and the others run; else the first one ends
                the call.
            wait: Block while the queue is full, where `Overloaded` would be raised.
            request_id: The caller's name for it, for the log.
            use_cache: Whether the cache of rows, or the row of an equal input that waits or runs, may answer it.

        Raises:
            BadInput: No inputs, or options that this model cannot follow.
            UnsupportedTask: The model cannot be read as this task.
            Overloaded: The queue is full, and `wait` is False.
            DeadlineExceeded: The deadline passed while waiting for room.
            Unavailable: The engine is draining, closed or dead, or this is a fork of its process.
        """
        self._shared.check_not_forked(self.name)
        try:
            pieces.refuse_none(inputs)
            module = tasks.find_served(task, self.recipe)
            params = module.default_params() if params is None else params
            params.check(self.recipe)
            call = Call(
                task,
                inputs,
                pieces.Reader.of(module, self.recipe, self.tokenizers, params, length, keep_errors),
                lane=lane,
                deadline_s=deadline_s,
                request_id=request_id,
                use_cache=use_cache,
                on_end=self._end,
            )
            self._admit(call, wait)
        except CenoteError as error:
            self.stats.error(error.kind)
            raise
        self._start(call, inputs)
        return call

    def run_call(self, task: str, inputs: Sequence[Input], params: Any = None, **options: Any) -> Outcome:
        """`submit`, and wait for the outcome; options and errors as there, and those of `Call.result`."""
        return self.submit(task, inputs, params, **options).result()

    def _admit(self, call: Call, wait: bool) -> None:
        estimate = call.reader.estimate(call.work.inputs)
        pieces.refuse_large(estimate, call.num_inputs, self.machine.max_call_tokens)
        with self._shared.lock:
            self._admission.enter(call, estimate, wait)
            self._calls.add(call)
            self._shared.num_open += 1
        self.stats.call_admitted(call.num_inputs)

    def _start(self, call: Call, inputs: Sequence[Input]) -> None:
        todo = pieces.cut(inputs)
        shared, are_few = self._shared, pieces.are_few(inputs)
        with shared.lock:
            # Going from thread to thread takes longer than tokenising and finishing a short text.
            call.lone = are_few and shared.num_open == 1 and not shared.num_running
            if call.lone:
                shared.lone.append(functools.partial(self._answer, call, todo))
                shared.work.notify()
                return
        if are_few:
            self._gathered.add(call)
            return
        for _ in range(min(shared.num_tokenize_threads, len(inputs))):
            self._gathered.soon(call, self._tokenize_turn, call, todo)

    def _answer(self, call: Call, todo: Iterator[slice]) -> None:
        """All of a lone call, on the thread of one worker."""
        self.runner.rouse()
        while self._tokenize_next(call, todo):
            pass
        with self._shared.lock:
            batch = self.take()
            # Others may have come meanwhile, or this one fills more than one batch.
            self._shared.work.notify(self._waiting.num_seqs)
        if batch:
            self.run(batch)

    # Tokenising, on the pool.

    def _tokenize_turn(self, call: Call, todo: Iterator[slice]) -> None:
        if self._tokenize_next(call, todo):
            self._gathered.soon(call, self._tokenize_turn, call, todo)

    def _tokenize_next(self, call: Call, todo: Iterator[slice]) -> bool:
        """Tokenise one piece; whether others may be left."""
        try:
            with self._shared.lock:
                where = None if call.work.ended else next(todo, None)
                inputs = call.work.inputs[where] if where else ()
            if where is None:
                return False
            if call.expired:
                raise call.deadline_error()
            began_s = time.monotonic()
            piece = call.reader.read(where.start, inputs)
            self._note(call, piece, time.monotonic() - began_s)
        except BaseException as error:  # a panic of a tokenizer in Rust is no Exception
            self._end(call, error)
            return False
        return bool(where.stop < call.num_inputs)

    def _note(self, call: Call, piece: pieces.Piece, took_s: float) -> None:
        with self._shared.lock:
            if call.work.ended:
                return
            call.work.note(piece, took_s)
            all_read = call.work.num_unread == 0
        for error in piece.errors.values():
            self.stats.error(error.kind)
        if not call.reader.refuses_call:
            self._add(call, slice(piece.start, piece.start + len(piece.encoded)))
        elif all_read:
            call.reader.refuse_long_ones(call.work.encoded)
            for part in pieces.in_turns(call.num_inputs):
                self._add(call, part)

    def _add(self, call: Call, where: slice) -> None:
        work = call.work
        with self._shared.lock:
            if work.ended:
                return
            sequences = work.sequences(call, where)
            if self._cache is not None and call.use_cache:
                num_sequences, sequences = len(sequences), self._cache.answer(call, sequences)
                self.stats.cache_asked(num_sequences - len(sequences), len(sequences))
            is_all = where.stop - where.start == call.num_inputs
            self._admission.hold(call, -(work.held_tokens if is_all else call.reader.estimate(work.inputs[where])))
            self._waiting.enter(sequences, tell=not call.lone)
            complete = work.complete
        if complete:
            self._soon(call, self._finish, call)

    # Batches, on the workers' threads.

    def take(self) -> list[Pending[Call]]:
        """The next batch for one worker; empty if nothing waits. What it returns must go to `run`."""
        with self._shared.lock:
            num_workers, num_tokens = self.runner.num_workers, self._waiting.num_tokens
            budget = share(num_tokens, num_workers, others_run=self._shared.num_running >= num_workers - 1)
            batch, late = self._waiting.take(min(budget, self.runner.max_batch_tokens), self.machine.max_batch_seqs)
            self._running_seqs += len(batch)
            self._shared.num_running += bool(batch)
        for call in late:
            self._shared.soon(call.expire)
        return batch

    def run(self, batch: Sequence[Pending[Call]]) -> None:
        """Put a batch through the model and hand out its rows; what fails is retried by halves."""
        began_s = time.monotonic()
        answered: list[Pending[Call]] = []
        alone = self._shared.has_one_batch() and batch[0].call.num_inputs <= len(batch)
        try:
            for end in forward(self.runner, batch, alone=alone):
                answered += self._hand_out(end)
        finally:
            with self._shared.lock:
                self._running_seqs -= len(batch)
                self._shared.num_running -= 1
        self._answered(answered, time.monotonic() - began_s)

    def _hand_out(self, end: End) -> list[Pending[Call]]:
        """Give what came of a forward to all that wait for it, and return them."""
        batch = [end.pending] if isinstance(end, Failed) else end.batch
        with self._shared.lock:
            groups = self._waiting.finish(batch)
        everyone = [pending for group in groups for pending in group]
        if isinstance(end, Failed):
            who = end.pending.call.request_id
            log.error("%s Request %s, model %s.", end.error.what, who, self.name, exc_info=end.error.__cause__)
            for pending in everyone:
                self._fail(pending, end.error if pending is end.pending else pieces.moved(end.error, pending.index))
        else:
            self.stats.batch_ended(len(batch), sum(p.num_tokens for p in batch), end.num_shared)
            self.stats.merged(len(everyone) - len(batch))
            self._keep(end, groups)
        return everyone

    def _keep(self, ran: Answered, groups: list[list[Pending[Call]]]) -> None:
        """Store the rows of a forward, call by call; what raises ends these calls alone."""
        done = ran.to_all(groups)
        calls = done.by_call()
        try:
            if self._cache is not None:
                self._cache.keep(ran.batch, ran.rows)
            with self._shared.lock:
                targets = [None if call.work.ended else call.work.room_for(done.rows) for call in calls]
            for (call, positions), target in zip(calls.items(), targets, strict=True):
                if target is not None:
                    call.work.store(*done.at(positions), target)
        except Exception as error:
            for call in calls:
                self._end(call, error)

    def _fail(self, pending: Pending[Call], error: CenoteError) -> None:
        call = pending.call
        with self._shared.lock:
            call.work.errors[pending.index] = error
        if call.reader.keep_errors:
            self.stats.error(error.kind)
        else:
            self._soon(call, self._end, call, error)

    def _answered(self, batch: Sequence[Pending[Call]], took_s: float) -> None:
        complete = []
        with self._shared.lock:
            for pending in batch:
                pending.call.work.answered(pending)
            for call in {pending.call for pending in batch}:
                # One that found its input running waited for a part of it, in no queue.
                call.work.inference_s += min(took_s, call.age_s)
                if call.work.queue_s is None:
                    call.work.queue_s = max(0.0, call.age_s - took_s)
                if call.work.complete and not call.work.ended:
                    complete.append(call)
        if complete:
            # In one step, since each wakes a thread.
            self._soon(complete[0], self._finish_each, sorted(complete, key=lambda call: call.num_inputs))

    # Ending.

    def _soon(self, call: Call, step: Callable[..., object], *arguments: Any) -> None:
        """Do `step` for a call on the pool, or here for a lone one."""
        if call.lone:
            step(*arguments)
        else:
            self._shared.soon(step, *arguments)

    def _finish_each(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self._finish(call)

    def _finish(self, call: Call) -> None:
        try:
            with self._shared.lock:
                if call.work.ended:
                    return
                outcome = call.work.outcome(call.reader.shape)
            outcome = call.finished(outcome)
        except BaseException as error:
            self._end(call, error)
        else:
            self._end(call, outcome)

    def _end(self, call: Call, result: Outcome | BaseException) -> None:
        """The one place where calls end; only the first to come here ends this one."""
        if not isinstance(result, (Outcome, CenoteError)):
            result = call.unexpected(result)
        with self._shared.lock:
            if call.work.ended:
                return
            call.work.ended = True
            self._calls.discard(call)
            self._shared.num_open -= 1
            if call.work.num_unanswered:
                self._waiting.drop(call)
            self._admission.hold(call, -call.work.held_tokens)
            call.work.release()
            self._shared.room.notify_all()
        end = call.close(result)
        self.stats.call_ended(end, call.work.queue_s or 0.0, call.work.tokenize_s, call.work.inference_s)
        call.resolve(result)

    # What the registry asks.

    @contextmanager
    def held_idle(self) -> Iterator[bool]:
        """Whether nothing is done for any model; if so, it stays so inside, for a moment, and `submit` never waits."""
        self._shared.check_not_forked(self.name)
        with self._shared.lock:
            yield self._shared.num_open == 0

    def snapshot(self) -> Snapshot:
        """All counters of this model, now."""
        with self._shared.lock:
            return self.stats.snapshot(
                waiting_seqs=self._waiting.num_seqs,
                waiting_tokens=self._waiting.num_tokens,
                running_seqs=self._running_seqs,
                cache_bytes=0 if self._cache is None else self._cache.num_bytes,
                open_calls=len(self._calls),
            )

    def refuse(self, why: str) -> None:
        """Refuse new calls from now on; `why` completes a sentence that starts with the model's name."""
        with self._shared.lock:
            self._admission.refuse(why)

    def end_all(self) -> None:
        """End every call with `Unavailable`; `refuse` said why."""
        with self._shared.lock:
            calls = list(self._calls)
        for call in calls:
            self._end(call, self._admission.unavailable())
