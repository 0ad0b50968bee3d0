"""The command: `python -m bench [peers|load|job]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from . import compare, job, load, peers, report
from .errors import BenchError, PeerUnavailable, WorkerFailed
from .subjects import SUBJECTS
from .texts import TASKS

FULL = {"short": 1024, "paragraphs": 160, "rerank": 100}
QUICK = {"short": 192, "paragraphs": 32, "rerank": 32}


class PeersByDefault(click.Group):
    """A group that runs `peers` where no command is named, so that `python -m bench --quick` works."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["peers", *args]
        return super().parse_args(context, args)


def _names(allowed: dict[str, int] | tuple[str, ...], value: str, what: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    unknown = [name for name in names if name not in allowed]
    if unknown or not names:
        given = ", ".join(unknown) or "nothing"
        raise click.UsageError(f"{what} names {given}; it takes a comma-separated list of {', '.join(allowed)}.")
    return names


def _subjects(value: str, workloads: Sequence[str]) -> tuple[str, ...]:
    names = _names(tuple(SUBJECTS), value, "--subjects")
    for workload in workloads:
        if not any(TASKS[workload] in SUBJECTS[name].tasks for name in names):
            does = ", ".join(subject.name for subject in SUBJECTS.values() if TASKS[workload] in subject.tasks)
            raise click.UsageError(f"--subjects: none of {', '.join(names)} does {workload}; {does} do.")
    return names


@click.group(cls=PeersByDefault)
def main() -> None:
    """Measure Cenote on this machine, beside its peers or alone.

    Without a command, `peers` runs:

    \b
      python -m bench                                 everything: about nine minutes on two cores
      python -m bench --quick                         the same with fewer texts: does it run, roughly how fast
      python -m bench --subjects cenote,st-torch      without building the peers' environment
      python -m bench load                            import, start, memory, latency
      python -m bench job                             10,000 real texts from Python, from the shell and over HTTP
    """


@main.command(name="peers", short_help="Cenote, sentence-transformers on torch, ONNX O3 and OpenVINO.")
@click.option("--quick", is_flag=True, help="Fewer texts and 3 rounds. Good for a check, too noisy to publish.")
@click.option(
    "--subjects",
    default=",".join(SUBJECTS),
    show_default=True,
    help="Who is compared. Without st-torch there are no cosines; st-onnx and st-openvino need the peers' environment, "
    "which is built in .venvs/peers on first use.",
)
@click.option("--rounds", type=click.IntRange(min=1), help="Measured rounds; the median counts.  [default: 5, quick 3]")
@click.option(
    "--workloads",
    default=",".join(FULL),
    show_default=True,
    help="short: sentences of about 16 tokens. paragraphs: about 177 tokens. rerank: one query with documents of 120 "
    "tokens.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="CPUs that all are bound to, and threads of each.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=peers.ROOT / "bench" / "results",
    show_default="bench/results",
    help="Folder for peers.json, peers.md, peers.png and a log per subject.",
)
@click.option("--allow-missing", is_flag=True, help="Go on without a subject that cannot be built or loaded.")
def compare_peers(
    quick: bool, subjects: str, rounds: int | None, workloads: str, threads: int, output: Path, allow_missing: bool
) -> None:
    """Compare Cenote with its peers on the same real texts: vectors, and scores of a query with documents.

    Every subject is a process of its own, bound to the same CPUs, with as many threads. They take turns: in each round
    each answers all texts once, in an order that rotates; the others wait. The fraction of the GEMM limit says how near
    each comes to what float32 matrix products can give on this machine, measured in the same run.
    """
    sizes = QUICK if quick else FULL
    chosen = _names(FULL, workloads, "--workloads")
    plan = compare.Plan(
        subjects=_subjects(subjects, chosen),
        sizes={name: sizes[name] for name in chosen},
        num_rounds=rounds or (3 if quick else 5),
        threads=threads,
        output=output.resolve(),
        allow_missing=allow_missing,
    )
    try:
        compare.run(plan, report.console())
    except (PeerUnavailable, WorkerFailed) as error:
        raise click.ClickException(
            f"{error}\nA comparison without it would mislead. Mend it, or pass --allow-missing."
        ) from error
    except BenchError as error:
        raise click.ClickException(str(error)) from error


@main.command(name="load", short_help="Import, first vector, server start, memory, latency.")
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Starts; the median counts.")
@click.option(
    "--calls",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Single texts behind the latency percentiles.",
)
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help="CPUs that all are bound to.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=peers.ROOT / "bench" / "results",
    show_default="bench/results",
    help="Folder for load.json, load.md and the server's log.",
)
def measure_load(repeats: int, calls: int, threads: int, output: Path) -> None:
    """Measure what starting and serving the default model cost, files in the page cache."""
    try:
        load.run(load.Plan(repeats, calls, threads, output.resolve()), report.console())
    except BenchError as error:
        raise click.ClickException(str(error)) from error


@main.command(name="job", short_help="10,000 real texts from Python, from the shell and over HTTP.")
@click.option("--texts", type=click.IntRange(min=1), default=job.NUM_TEXTS, show_default=True, help="How many texts.")
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help="CPUs that all are bound to.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=peers.ROOT / "bench" / "results",
    show_default="bench/results",
    help="Folder for job.json and job.md.",
)
def run_job(texts: int, threads: int, output: Path) -> None:
    """Embed the same texts by every road and by sentence-transformers; fails where vectors differ."""
    try:
        job.run(texts, threads, output.resolve(), report.console())
    except BenchError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
