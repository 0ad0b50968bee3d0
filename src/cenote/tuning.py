"""What serves a model best on this machine, found by measuring: one setting after the other, in interleaved rounds.

Setups are opened one at a time and in turn, so that what else the machine does meets all of them alike. One is chosen
only where it is better than what it would replace by more than either of them varies.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from typing import Any, Final, Literal, TypeAlias

from . import config, profiles
from .config import MachineSettings, ModelSettings
from .cores import num_cores
from .engine import Engine
from .errors import CenoteError
from .loadgen.texts import words
from .registry import Registry
from .types import Input, Length

Goal: TypeAlias = Literal["all", "throughput", "latency"]
GOALS: Final[dict[Goal, tuple[str, ...]]] = {
    "all": ("short_per_s", "long_per_s", "query_per_s"),
    "throughput": ("short_per_s", "long_per_s"),
    "latency": ("query_per_s",),
}
"""What is to be best -> the figures that count, each as much as the others."""

SHORT_WORDS: Final = (4, 20)
LONG_TOKENS: Final = 256
_MOST_TEXTS: Final = 20_000
_LEAST_QUERIES: Final = 10


@dataclass(frozen=True)
class Figures:
    """One measurement.

    Args:
        short_per_s, long_per_s: Short texts, and texts of up to `LONG_TOKENS` tokens, a second; each asked for alone,
            all at once.
        query_per_s: One over the median seconds of one short text, asked for when nothing else is.
    """

    short_per_s: float
    long_per_s: float
    query_per_s: float


@dataclass
class Trial:
    """A setup and its measurements.

    Args:
        label: What tables call it.
        changes: Settings that differ from the user's and the defaults.
        rounds: One for each round.
        refusal: Why it cannot be had, "" where it can.
    """

    label: str
    changes: Mapping[str, Any]
    rounds: list[Figures] = field(default_factory=list)
    refusal: str = ""

    def median(self, name: str) -> float:
        """The median of one figure over the rounds."""
        return float(statistics.median(getattr(figures, name) for figures in self.rounds))


@dataclass(frozen=True)
class Compared:
    """A trial beside the one that it would replace.

    Args:
        ratios: Of the medians of each figure, above 1 where it is better.
        gain: By which part it is better over all figures that count, at the median.
        spread: By which part either of the two varies from round to round.
    """

    trial: Trial
    ratios: Mapping[str, float]
    gain: float
    spread: float

    @property
    def wins(self) -> bool:
        """Whether it is better by more than noise."""
        return self.gain > self.spread


@dataclass(frozen=True)
class Choice:
    """What came of one setting.

    Args:
        what: The setting.
        base: How it was before.
        compared: The others.
        refused: Those that cannot be had.
        chosen: One of them, or the base.
    """

    what: str
    base: Trial
    compared: tuple[Compared, ...]
    refused: tuple[Trial, ...]
    chosen: Trial


def choose(what: str, trials: Sequence[Trial], goal: Goal) -> Choice:
    """The best of `trials`, the first of which stays unless another one beats it by more than the spread."""
    base = trials[0]
    compared = tuple(_compared(base, trial, goal) for trial in trials[1:] if not trial.refusal)
    winners = [one for one in compared if one.wins]
    chosen = max(winners, key=lambda one: one.gain).trial if winners else base
    return Choice(what, base, compared, tuple(trial for trial in trials if trial.refusal), chosen)


def _compared(base: Trial, trial: Trial, goal: Goal) -> Compared:
    ratios = {name: trial.median(name) / base.median(name) for name in GOALS["all"]}
    scores, base_scores = _scores(trial, base, goal), _scores(base, base, goal)
    gain = statistics.median(scores) / statistics.median(base_scores) - 1
    return Compared(trial, ratios, gain, max(_spread(scores), _spread(base_scores)))


def _scores(trial: Trial, base: Trial, goal: Goal) -> list[float]:
    """Of each round, the geometric mean of the figures that count, as ratios to the base's medians."""
    names = GOALS[goal]
    return [
        statistics.geometric_mean(getattr(figures, name) / base.median(name) for name in names)
        for figures in trial.rounds
    ]


def _spread(scores: Sequence[float]) -> float:
    return (max(scores) - min(scores)) / statistics.median(scores)


@dataclass(frozen=True)
class Asked:
    """What is tuned, and how thoroughly.

    Args:
        model, machine: As the user gave them; what is given there is not tuned.
        goal: What is to be best.
        rounds: Measurements of each setup, at least 2.
        seconds: About how long each of the three parts of a measurement takes.
        half, int8: Whether precisions that change vectors are tried too.
    """

    model: ModelSettings
    machine: MachineSettings
    goal: Goal = "all"
    rounds: int = 5
    seconds: float = 2.0
    half: bool = False
    int8: bool = False


Watch: TypeAlias = Callable[[str, int, int], None]
"""Is told what is measured, how many measurements are done, and of how many."""


class Tuning:
    """Measures setups of one model.

    Args:
        asked: What is tuned.
        watch: Is told how far it is.
    """

    def __init__(self, asked: Asked, watch: Watch) -> None:
        self._asked, self._watch = asked, watch
        self._texts: _Texts | None = None

    def run(self) -> Iterator[Choice]:
        """One choice after the other; the last one is all of them against the defaults, where any was made."""
        best: dict[str, Any] = {}
        for what, values in self._dimensions():
            trials = [Trial("as before" if best else "default", dict(best))]
            trials += [Trial(_label(changes), {**best, **changes}) for changes in values]
            choice = self._choice(what, trials)
            best = dict(choice.chosen.changes)
            yield choice
        if best:
            yield self._choice("all together", [Trial("default", {}), Trial(_label(best), best)])

    def _choice(self, what: str, trials: list[Trial]) -> Choice:
        total = len(trials) * self._asked.rounds
        for number in range(self._asked.rounds):
            # The other way round every other time, so that none is always the one after a slow one.
            for trial in trials if number % 2 == 0 else reversed(trials):
                if not trial.refusal:
                    self._measure(trial)
                done = sum(len(one.rounds) if not one.refusal else number + 1 for one in trials)
                self._watch(f"{what}: {trial.label}", done, total)
        return choose(what, trials, self._asked.goal)

    def _dimensions(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """What is tuned, and the values that are tried beside that which stands."""
        machine, model = self._asked.machine, self._asked.model
        free = {name for name in profiles.OF_MACHINE if config.source_of(machine, name) == "default"}
        on_cpu = self._plan().device.type == "cpu"
        if on_cpu and {"num_workers", "threads_per_worker"} <= free:
            yield "workers and threads", _ways_to_share(self._plan().num_workers)
        if "max_batch_tokens" in free:
            usual = self._plan().max_batch_tokens
            yield "max_batch_tokens", [{"max_batch_tokens": int(usual * by)} for by in (0.25, 0.5, 2, 4)]
        if self._asked.half and config.source_of(model, "dtype") == "default":
            own = str(self._plan().dtype).removeprefix("torch.")
            yield "dtype", [{"dtype": dtype} for dtype in ("bfloat16", "float16") if dtype != own]
        if self._asked.int8 and on_cpu and "quantization" in free:
            yield "quantization", [{"quantization": "int8"}]

    def _plan(self) -> Any:
        from . import recipe as recipes
        from .checkpoint import open_checkpoint
        from .device import plan

        model = self._asked.model
        recipe = recipes.resolve(open_checkpoint(model.model, model.revision, with_code=model.trust_remote_code), model)
        return plan(self._asked.machine, recipe.dtype, recipe.stored_dtype)

    def _measure(self, trial: Trial) -> None:
        changes = trial.changes
        of_model = {name: value for name, value in changes.items() if name in profiles.OF_MODEL}
        of_machine = {name: value for name, value in changes.items() if name in profiles.OF_MACHINE}
        model = config.changed(self._asked.model, of_model, "tuning")
        machine = config.changed(self._asked.machine, {**of_machine, "profile": False}, "tuning")
        try:
            with Registry(machine) as registry:
                engine = registry.open(model)
                if self._texts is None:
                    self._texts = _Texts.of(engine, self._asked.seconds)
                trial.rounds.append(self._texts.figures(engine, self._asked.seconds))
        except CenoteError as error:
            if not changes:  # without the defaults there is nothing to compare with
                raise
            trial.refusal = str(error)


@dataclass(frozen=True)
class _Texts:
    """What every setup is measured with."""

    short: list[Input]
    long: list[Input]

    @classmethod
    def of(cls, engine: Engine, seconds: float) -> _Texts:
        """So many that they take about `seconds`."""
        few = cls(_prose(SHORT_WORDS, 64), _prose((LONG_TOKENS, LONG_TOKENS), 8))
        few._warm(engine)
        counts = [_per_s(engine, texts) * seconds for texts in (few.short, few.long)]
        short, long = (max(least, min(_MOST_TEXTS, int(count))) for count, least in zip(counts, (32, 4), strict=True))
        return cls(_prose(SHORT_WORDS, short), _prose((LONG_TOKENS, LONG_TOKENS), long))

    def figures(self, engine: Engine, seconds: float) -> Figures:
        """Measure one setup."""
        self._warm(engine)
        return Figures(_per_s(engine, self.short), _per_s(engine, self.long), 1 / self._query_s(engine, seconds))

    def _warm(self, engine: Engine) -> None:
        _per_s(engine, self.short[:64])
        _per_s(engine, self.long[:8])

    def _query_s(self, engine: Engine, seconds: float) -> float:
        took: list[float] = []
        began_s = time.perf_counter()
        for at, text in enumerate(self.short * _LEAST_QUERIES):
            sent_s = time.perf_counter()
            if at >= _LEAST_QUERIES and sent_s - began_s > seconds:
                break
            _answered(engine, [text])
            took.append(time.perf_counter() - sent_s)
        return statistics.median(took)


def _answered(engine: Engine, texts: Sequence[Input]) -> None:
    """Ask for each text by itself, as requests do, and wait for all; no row is taken from elsewhere."""
    limit = min(LONG_TOKENS, engine.recipe.max_len)
    how: dict[str, Any] = {"length": Length("cut", limit=limit), "wait": True, "use_cache": False}
    calls = [engine.submit(engine.recipe.default_task, [text], **how) for text in texts]
    for call in calls:
        call.result()


def _per_s(engine: Engine, texts: Sequence[Input]) -> float:
    began_s = time.perf_counter()
    _answered(engine, texts)
    return len(texts) / (time.perf_counter() - began_s)


def _prose(lengths: tuple[int, int], count: int) -> list[Input]:
    """Stretches of English prose of so many words; the same ones each time."""
    prose, source = words(), random.Random(0)
    found: list[Input] = []
    for _ in range(count):
        start, length = source.randrange(len(prose) - lengths[1]), source.randint(*lengths)
        found.append(" ".join(prose[start : start + length]))
    return found


def _ways_to_share(num_workers: int) -> list[dict[str, int]]:
    """Fewer workers with more threads, by halves, but the way that stands."""
    cores = num_cores()
    counts = sorted({max(1, cores >> by) for by in range(int(log2(cores)) + 1)})
    return [
        {"num_workers": count, "threads_per_worker": max(1, cores // count)} for count in counts if count != num_workers
    ]


def _label(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in changes.items())
