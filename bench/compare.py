"""A comparison, from building the peers to the files: what `python -m bench peers` and its like do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from . import gemm, machine, peers, report, rounds
from .driver import WorkerProcess
from .errors import PeerUnavailable, WorkerFailed
from .flops import Dims
from .subjects import SUBJECTS, Subject
from .texts import Workload, build, token_counter


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run.

    Args:
        name: Of the files of results.
        num_rounds: Measured rounds.
        threads: CPUs and threads of every subject.
        output: Folder of the results.
        allow_missing: Whether a subject that cannot be built or loaded is left out instead of ending the run.
    """

    name: str
    num_rounds: int
    threads: int
    output: Path
    allow_missing: bool


@dataclass(frozen=True, slots=True)
class Contest:
    """Subjects that answer the same workloads with the same model.

    Args:
        name: What messages call it.
        model: A folder, what is asked of it, and where its exports lie.
        workloads: All of the model's task.
        subjects: Names, in the order of the tables; those that do not do the task stay out.
    """

    name: str
    model: peers.Model
    workloads: Sequence[Workload]
    subjects: Sequence[str]


def against_peers(subjects: Sequence[str], sizes: dict[str, int], console: Console) -> list[Contest]:
    """One contest per task: the workloads of `sizes` (name -> number of texts) with the default model of its task."""
    count = token_counter(peers.default_model())  # both models have this tokenizer
    workloads = [build(name, size, count) for name, size in sizes.items()]
    return [
        Contest(task, peers.build_model(task, console.print), [w for w in workloads if w.task == task], subjects)
        for task in dict.fromkeys(workload.task for workload in workloads)
    ]


def run(plan: Plan, contests: Sequence[Contest], console: Console) -> list[report.Section]:
    """Build, measure, print, and write JSON, Markdown and a picture under the plan's name.

    Raises:
        PeerUnavailable, WorkerFailed: A subject is missing and the plan does not allow that.
        GemmFailed: The limit could not be measured.
        AnswersDiffer: Cenote does not answer as the reference does.
    """
    plan.output.mkdir(parents=True, exist_ok=True)
    line_ups = [LineUp(plan, contest, console) for contest in contests]
    for line_up in line_ups:
        line_up.build()  # may use the whole machine; only what is measured is pinned
    cpus = machine.pin(plan.threads)
    busy = machine.busy_fraction()
    sections, limits = _measured(line_ups, plan, cpus, console)
    facts = {
        **machine.facts(),
        "cpus": cpus,
        "busy_before": busy,
        "rounds": plan.num_rounds,
        "loads": {line_up.contest.name: line_up.loads for line_up in line_ups},
        "missing": {line_up.contest.name: line_up.missing for line_up in line_ups},
        "gemm": {name: asdict(limit) for name, limit in limits.items()},
    }
    _print(console, sections, facts)
    _write(console, plan, sections, facts)
    report.check_agreement(sections)
    return sections


class LineUp:
    """Who takes part in a contest: builds what the peers need, starts the workers, and keeps what it learned of each.

    `subjects` are those of the contest that do its task; `loads` is what each worker said when it had loaded; `missing`
    is why a subject is not there.
    """

    def __init__(self, plan: Plan, contest: Contest, console: Console) -> None:
        self.plan = plan
        self.contest = contest
        self.model = contest.model
        self.console = console
        self.subjects = [SUBJECTS[name] for name in contest.subjects if self.model.task in SUBJECTS[name].tasks]
        self.loads: dict[str, Any] = {}
        self.missing: dict[str, str] = {}

    def build(self) -> None:
        """Build the peers' environment and exported models where they are not there yet."""
        wanted = [subject for subject in self.subjects if subject.in_peers]
        try:
            if wanted:
                peers.build_environment(self.console.print)
        except PeerUnavailable as error:
            for subject in wanted:
                self._miss(subject, error)
            return
        for subject in wanted:
            try:
                peers.build_export(subject.name.removeprefix("st-"), self.model, self.console.print)
            except PeerUnavailable as error:
                self._miss(subject, error)

    def start(self, stack: ExitStack) -> list[WorkerProcess]:
        """Start and load one worker after another; `stack` ends them."""
        workers = []
        for subject in (subject for subject in self.subjects if subject.name not in self.missing):
            log = self.plan.output / f"{self.contest.name}-{subject.name}.log"
            worker = stack.enter_context(WorkerProcess(subject, log))
            try:
                self.loads[subject.name] = worker.load(self.model, self.plan.threads)
                workers.append(worker)
            except WorkerFailed as error:
                self._miss(subject, error)
        return workers

    def _miss(self, subject: Subject, error: Exception) -> None:
        if not self.plan.allow_missing:
            raise error
        self.console.print(f"MISSING in {self.contest.name}: {subject.title}\n{error}", style="bold red", markup=False)
        self.missing[subject.name] = str(error)


def _measured(
    line_ups: Sequence[LineUp], plan: Plan, cpus: Sequence[int], console: Console
) -> tuple[list[report.Section], dict[str, gemm.GemmLimit]]:
    """The GEMM limit before and after each contest's rounds (the best counts of those of one shape), and all workloads.

    The workers of one contest live at a time, so that none holds memory while another is measured.
    """
    limits: dict[Dims, gemm.GemmLimit] = {}
    done: list[tuple[Workload, dict[str, rounds.Timing], Dims]] = []
    for line_up in line_ups:
        dims = Dims.of_folder(line_up.model.folder)
        own = line_up.contest.workloads
        with ExitStack() as stack:
            workers = line_up.start(stack)
            num_steps = sum(rounds.num_steps(workers, workload, plan.num_rounds) for workload in own)
            advance = stack.enter_context(progress(num_steps + 2, console))
            measured = [_limit("before", dims, cpus, advance)]
            done += [(w, rounds.run_rounds(workers, w, plan.num_rounds, plan.output, advance), dims) for w in own]
            measured.append(_limit("after", dims, cpus, advance))
        known = [limits[dims]] if dims in limits else []
        limits[dims] = max([*known, *measured], key=lambda one: one.gflops)
    sections = [report.section(workload, timings, dims, limits[dims]) for workload, timings, dims in done]
    return sections, {line_up.contest.name: limits[Dims.of_folder(line_up.model.folder)] for line_up in line_ups}


def _limit(when: str, dims: Dims, cpus: Sequence[int], advance: rounds.Advance) -> gemm.GemmLimit:
    advance(f"GEMM limit, {when}")
    return gemm.measure(dims, cpus)


@contextmanager
def progress(num_steps: int, console: Console) -> Iterator[rounds.Advance]:
    """A bar of so many steps; what it gives is told before each step what that is."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=num_steps, completed=-1)

        def advance(what: str) -> None:
            progress.update(bar, advance=1, description=what)

        yield advance


def _print(console: Console, sections: Sequence[report.Section], facts: dict[str, Any]) -> None:
    for part in sections:
        report.print_table(console, part.description, report.columns(part), [report.cells(row) for row in part.rows])
        console.print(report.verdict(part) + "\n", markup=False)
    console.print(report.LEGEND + "\n", markup=False)
    threading = {name: load["threading"] for loads in facts["loads"].values() for name, load in loads.items()}
    cores = f"{len(facts['cpus'])} cores"
    console.print(
        *(
            f"GEMM limit in {name}: {limit['gflops']:.0f} GFLOP/s float32 on {cores} ({limit['where']})."
            for name, limit in facts["gemm"].items()
        ),
        *(f"Threads of {SUBJECTS[name].title}: {words}." for name, words in threading.items()),
        *(f"MISSING in {task}: {SUBJECTS[name].title}" for task, names in facts["missing"].items() for name in names),
        sep="\n",
        markup=False,
    )
    report.print_busy(console, facts["busy_before"])


def _write(console: Console, plan: Plan, sections: Sequence[report.Section], facts: dict[str, Any]) -> None:
    caption = f"{facts['processor']}, {len(facts['cpus'])} cores, float32, torch {facts['versions']['torch']}"
    stem = plan.output / plan.name
    report.write_json(stem.with_suffix(".json"), sections, facts)
    report.write_markdown(stem.with_suffix(".md"), sections)
    report.write_png(stem.with_suffix(".png"), sections, caption)
    for suffix in (".json", ".md", ".png"):
        console.print(f"wrote {stem.with_suffix(suffix)}", markup=False, soft_wrap=True)
