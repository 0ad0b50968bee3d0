"""The comparison, from building the peers to the files: what `python -m bench peers` does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
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
from .texts import CountTokens, Workload, build


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    Args:
        subjects: Names, in the order of the tables.
        sizes: Workload -> number of texts.
        num_rounds: Measured rounds.
        threads: CPUs and threads of every subject.
        output: Folder of the results.
        allow_missing: Whether a subject that cannot be built or loaded is left out instead of ending the run.
    """

    subjects: tuple[str, ...]
    sizes: dict[str, int]
    num_rounds: int
    threads: int
    output: Path
    allow_missing: bool


def run(plan: Plan, console: Console) -> list[report.Section]:
    """Build, measure, print, and write `peers.json`, `peers.md` and `peers.png`.

    Raises:
        PeerUnavailable, WorkerFailed: A subject is missing and the plan does not allow that.
        GemmFailed: The limit could not be measured.
    """
    plan.output.mkdir(parents=True, exist_ok=True)
    model = peers.default_model()
    count = token_counter(model)
    workloads = [build(name, size, count) for name, size in plan.sizes.items()]
    line_up = LineUp(plan, model, console)
    with ExitStack() as stack:
        line_up.build()  # may use the whole machine; only what is measured is pinned
        cpus = machine.pin(plan.threads)
        busy = machine.busy_fraction()
        workers = line_up.start(stack)
        sections, limit = _measured(workers, workloads, plan, Dims.of_folder(model), cpus, console)
    facts = {
        **machine.facts(),
        "cpus": cpus,
        "busy_before": busy,
        "rounds": plan.num_rounds,
        "loads": line_up.loads,
        "missing": line_up.missing,
        "gemm": asdict(limit),
    }
    _print(console, sections, facts)
    _write(console, plan.output, sections, facts)
    return sections


def token_counter(model: Path) -> CountTokens:
    """Counts tokens by the model's own tokenizer, without the truncation and padding that its file stores."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda texts: [len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts))]


class LineUp:
    """Who takes part: builds what the peers need, starts the workers, and keeps what it learned of each.

    `loads` is what each worker said when it had loaded; `missing` is why a subject is not there.
    """

    def __init__(self, plan: Plan, model: Path, console: Console) -> None:
        self.plan = plan
        self.model = model
        self.console = console
        self.loads: dict[str, Any] = {}
        self.missing: dict[str, str] = {}

    def build(self) -> None:
        """Build the peers' environment and exported models where they are not there yet."""
        wanted = [SUBJECTS[name] for name in self.plan.subjects if SUBJECTS[name].in_peers]
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
        for subject in (SUBJECTS[name] for name in self.plan.subjects if name not in self.missing):
            worker = stack.enter_context(WorkerProcess(subject, self.plan.output / f"{subject.name}.log"))
            try:
                self.loads[subject.name] = worker.load(self.model, self.plan.threads)
                workers.append(worker)
            except WorkerFailed as error:
                self._miss(subject, error)
        return workers

    def _miss(self, subject: Subject, error: Exception) -> None:
        if not self.plan.allow_missing:
            raise error
        self.console.print(f"MISSING: {subject.title}\n{error}", style="bold red", markup=False)
        self.missing[subject.name] = str(error)


def _measured(
    workers: Sequence[WorkerProcess],
    workloads: Sequence[Workload],
    plan: Plan,
    dims: Dims,
    cpus: Sequence[int],
    console: Console,
) -> tuple[list[report.Section], gemm.GemmLimit]:
    """The GEMM limit before and after the rounds (the better counts), and all workloads between."""
    steps = len(workloads) * rounds.num_steps(workers, plan.num_rounds) + 2
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=steps, completed=-1)

        def advance(what: str) -> None:
            progress.update(bar, advance=1, description=what)

        advance("GEMM limit, before")
        limits = [gemm.measure(dims, cpus)]
        timings = [rounds.run_rounds(workers, w, plan.num_rounds, plan.output, advance) for w in workloads]
        advance("GEMM limit, after")
        limits.append(gemm.measure(dims, cpus))
    limit = max(limits, key=lambda one: one.gflops)
    return [report.section(w, t, dims, limit) for w, t in zip(workloads, timings, strict=True)], limit


def _print(console: Console, sections: Sequence[report.Section], facts: dict[str, Any]) -> None:
    for part in sections:
        report.print_table(console, part.description, report.COLUMNS, [report.cells(row) for row in part.rows])
        console.print(report.verdict(part) + "\n", markup=False)
    console.print(report.LEGEND + "\n", markup=False)
    limit = facts["gemm"]
    console.print(
        f"GEMM limit: {limit['gflops']:.0f} GFLOP/s float32 on {len(facts['cpus'])} cores ({limit['where']}).",
        *(f"Threads of {SUBJECTS[name].title}: {load['threading']}." for name, load in facts["loads"].items()),
        *(f"MISSING: {SUBJECTS[name].title}" for name in facts["missing"]),
        sep="\n",
        markup=False,
    )
    report.print_busy(console, facts["busy_before"])


def _write(console: Console, output: Path, sections: Sequence[report.Section], facts: dict[str, Any]) -> None:
    caption = f"{facts['processor']}, {len(facts['cpus'])} cores, float32, torch {facts['versions']['torch']}"
    report.write_json(output / "peers.json", sections, facts)
    report.write_markdown(output / "peers.md", sections)
    report.write_png(output / "peers.png", sections, caption)
    for name in ("peers.json", "peers.md", "peers.png"):
        console.print(f"wrote {output / name}", markup=False, soft_wrap=True)
