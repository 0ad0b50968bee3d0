"""The command: `python -m bench [peers|shapes|prefix|latency|int8|serve|linear|memory|load|job|build]`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from . import compare, int8, job, latency, linear, load, memory, peers, report, serve, shapes
from .errors import BenchError, PeerUnavailable, WorkerFailed
from .subjects import RACED, SUBJECTS
from .texts import TASKS

FULL = {"short": 1024, "paragraphs": 160, "rerank": 100}
QUICK = {"short": 192, "paragraphs": 32, "rerank": 32}
_IN_SHAPES = ("cenote", "st-torch", "st-onnx", "st-openvino")

C = TypeVar("C", bound=Callable[..., Any])


class PeersByDefault(click.Group):
    """A group that runs `peers` where no command is named, so that `python -m bench --quick` works."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["peers", *args]
        return super().parse_args(context, args)


def _names(allowed: Mapping[str, object] | Sequence[str], value: str, what: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    unknown = [name for name in names if name not in allowed]
    if unknown or not names:
        given = ", ".join(unknown) or "nothing"
        raise click.UsageError(f"{what} names {given}; it takes a comma-separated list of {', '.join(allowed)}.")
    return names


def _subjects(value: str, workloads: Sequence[str]) -> tuple[str, ...]:
    names = _names(SUBJECTS, value, "--subjects")
    for workload in workloads:
        if not any(TASKS[workload] in SUBJECTS[name].tasks for name in names):
            does = ", ".join(subject.name for subject in SUBJECTS.values() if TASKS[workload] in subject.tasks)
            raise click.UsageError(f"--subjects: none of {', '.join(names)} does {workload}; {does} do.")
    return names


@contextmanager
def _told() -> Iterator[None]:
    """End the command with the message of whatever ends a run."""
    try:
        yield
    except (PeerUnavailable, WorkerFailed) as error:
        raise click.ClickException(
            f"{error}\nA comparison without it would mislead. Mend it, or pass --allow-missing."
        ) from error
    except BenchError as error:
        raise click.ClickException(str(error)) from error


def _options(files: str) -> Callable[[C], C]:
    """`--threads` and `--output`; `files` are what a command writes."""
    folder = click.Path(file_okay=False, path_type=Path, resolve_path=True)
    default = peers.ROOT / "bench" / "results"
    of_threads = "CPUs that all are bound to, and threads of each."
    of_output = f"Folder for {files}."

    def add(command: C) -> C:
        command = click.option("--output", type=folder, default=default, show_default="bench/results", help=of_output)(
            command
        )
        return click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help=of_threads)(
            command
        )

    return add


_quick = click.option("--quick", is_flag=True, help="Smaller and fewer rounds: a check, too noisy to publish.")
_allow_missing = click.option(
    "--allow-missing", is_flag=True, help="Go on without a subject that cannot be built or loaded."
)
_rounds = click.option(
    "--rounds", type=click.IntRange(min=1), help="Measured rounds; the median counts.  [default: 5, quick 3]"
)


@click.group(cls=PeersByDefault)
def main() -> None:
    """Measure Cenote on this machine, beside its peers or alone.

    Without a command, `peers` runs:

    \b
      python -m bench                                 everything: about nine minutes on two cores
      python -m bench --quick                         the same with fewer texts: does it run, roughly how fast
      python -m bench --subjects cenote,st-torch      without building the peers' environment
      python -m bench load                            import, start, memory, latency
      python -m bench int8                            int8 beside float32 and the int8 of peers
      python -m bench job                             10,000 real texts from Python, from the shell and over HTTP
      python -m bench build                           only build what all parts need
    """


@main.command(name="peers", short_help="Cenote, sentence-transformers on torch, ONNX O3 and OpenVINO.")
@_quick
@click.option(
    "--subjects",
    default=",".join(RACED),
    show_default=True,
    help="Who is compared. Without st-torch there are no cosines; st-onnx and st-openvino need the peers' environment, "
    "which is built in .venvs/peers on first use.",
)
@_rounds
@click.option(
    "--workloads",
    default=",".join(FULL),
    show_default=True,
    help="short: sentences of about 16 tokens. paragraphs: about 177 tokens. rerank: one query with documents of 120 "
    "tokens.",
)
@_options("peers.json, peers.md, peers.png and a log per subject")
@_allow_missing
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
    named = _subjects(subjects, chosen)
    console = report.console()
    with _told():
        plan = compare.Plan("peers", rounds or (3 if quick else 5), threads, output, allow_missing)
        contests = compare.against_peers(named, {name: sizes[name] for name in chosen}, console)
        compare.run(plan, contests, console)


@main.command(name="shapes", short_help="The same race on random models of well-known shapes.")
@_quick
@click.option(
    "--shapes",
    "names",
    default=",".join(shapes.SHAPES_RACED),
    show_default=True,
    help=f"Which; {', '.join(shapes.SHAPES_LARGE)} only where they are named.",
)
@click.option("--subjects", default=",".join(_IN_SHAPES), show_default=True, help="Who is compared.")
@_rounds
@click.option("--name", default="shapes", show_default=True, help="Of the files, so that runs lie side by side.")
@_options("NAME.json, NAME.md, NAME.png and a log per subject")
@_allow_missing
def compare_shapes(
    quick: bool,
    names: str,
    subjects: str,
    rounds: int | None,
    name: str,
    threads: int,
    output: Path,
    allow_missing: bool,
) -> None:
    """Compare on random models of well-known shapes: texts of 256 tokens, and sentences of about 16."""
    chosen = _names((*shapes.SHAPES_RACED, *shapes.SHAPES_LARGE), names, "--shapes")
    named = _names(_IN_SHAPES, subjects, "--subjects")
    console = report.console()
    with _told():
        plan = compare.Plan(name, rounds or (3 if quick else 5), threads, output, allow_missing)
        num_long, num_short = (2, 16) if quick else (8, 64)
        compare.run(plan, shapes.contests(chosen, named, num_long, num_short, console), console)


@main.command(name="prefix", short_help="What sharing prefixes gains a language model.")
@_quick
@_rounds
@_options("prefix.json, prefix.md, prefix.png")
def compare_prefixes(quick: bool, rounds: int | None, threads: int, output: Path) -> None:
    """Compare a language model with itself: what texts begin with alike computed once, or for each.

    1,000 queries behind one instruction of 30 tokens are embedded, and 100 documents behind a query of 60 tokens are
    scored, by four layers of Qwen3-0.6B with random weights.
    """
    console = report.console()
    with _told():
        plan = compare.Plan("prefix", rounds or (2 if quick else 3), threads, output, allow_missing=False)
        compare.run(plan, shapes.prefix_contests(*((50, 10) if quick else (1000, 100)), console), console)


@main.command(name="latency", short_help="One short text at a time, offline by each and over HTTP.")
@_quick
@_options("latency.json, latency.md, latency.png and a log per subject")
@_allow_missing
def measure_latency(quick: bool, threads: int, output: Path, allow_missing: bool) -> None:
    """Time one short text at a time on an idle engine: all subjects offline, Cenote over HTTP too, in turns."""
    with _told():
        plan = compare.Plan("latency", 1, threads, output, allow_missing)
        latency.run(plan, latency.Sizes(2, 20) if quick else latency.Sizes(10, 100), report.console())


@main.command(name="int8", short_help="int8 beside float32 and the peers' int8: speed, cosines, neighbours.")
@_quick
@_rounds
@_options("int8.json, int8.md, int8.png and a log per subject")
@_allow_missing
def compare_int8(quick: bool, rounds: int | None, threads: int, output: Path, allow_missing: bool) -> None:
    """Compare Cenote's int8 with its float32 and with ONNX Runtime's and OpenVINO's int8 on short texts and paragraphs.

    All are compared with sentence-transformers on torch: mean and least cosine, and how many of each text's ten nearest
    neighbours stay. "int8 is" says how many times a row's texts/s Cenote's int8 gives.
    """
    sizes = {name: (QUICK if quick else FULL)[name] for name in ("short", "paragraphs")}
    with _told():
        plan = compare.Plan("int8", rounds or (3 if quick else 5), threads, output, allow_missing)
        int8.run(plan, sizes, report.console())


@main.command(name="serve", short_help="A server under load, beside the offline call and infinity's server.")
@_quick
@click.option("--with-infinity/--without-infinity", default=True, show_default=True, help="Whether it takes part.")
@_options("serve.json, serve.md, serve.png and a log per server")
def measure_serve(quick: bool, with_infinity: bool, threads: int, output: Path) -> None:
    """Load a server: processor time per text, texts/s, and who waits beside large requests.

    infinity's server runs from an environment of its own, .venvs/infinity, built on first use.
    """
    rounds, seconds, num_texts = (1, 3.0, 512) if quick else (2, 8.0, 1024)
    with _told():
        serve.run(serve.Plan(rounds, seconds, num_texts, threads, output, with_infinity), report.console())


@main.command(name="linear", short_help="Cost and memory over ever more and ever longer texts.")
@_quick
@click.option("--million", is_flag=True, help="Up to a million texts: a quarter of an hour more.")
@_options("linear.json, linear.md, linear.png")
def measure_linear(quick: bool, million: bool, threads: int, output: Path) -> None:
    """Embed 100 to 100,000 short texts, and texts of 8 to 8,192 tokens by a random model that takes so many."""
    counts = linear.COUNTS[:3] if quick else (*linear.COUNTS, *((1_000_000,) if million else ()))
    num_tokens = 1024 if quick else linear.TOKENS_PER_LENGTH
    with _told():
        linear.run(linear.Plan(counts, linear.LENGTHS, num_tokens, threads, output), report.console())


@main.command(name="memory", short_help="Anonymous memory of servers, and after many texts of random lengths.")
@_quick
@click.option("--shapes", "names", default=",".join(memory.SERVED), show_default=True, help="Which are served.")
@_options("memory.json, memory.md, memory.png")
def measure_memory(quick: bool, names: str, threads: int, output: Path) -> None:
    """Measure memory that belongs to no file: needs no quiet machine."""
    chosen = _names(memory.SERVED, names, "--shapes")
    per_piece = 1_000 if quick else 10_000
    with _told():
        memory.run(memory.Plan(chosen, 10, per_piece, threads, output), report.console())


@main.command(name="load", short_help="Import, first vector, server start, memory, latency.")
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Starts; the median counts.")
@click.option(
    "--calls",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Single texts behind the latency percentiles.",
)
@_options("load.json, load.md and the server's log")
def measure_load(repeats: int, calls: int, threads: int, output: Path) -> None:
    """Measure what starting and serving the default model cost, files in the page cache."""
    with _told():
        load.run(load.Plan(repeats, calls, threads, output), report.console())


@main.command(name="job", short_help="10,000 real texts from Python, from the shell and over HTTP.")
@click.option("--texts", type=click.IntRange(min=1), default=job.NUM_TEXTS, show_default=True, help="How many texts.")
@_options("job.json and job.md")
def run_job(texts: int, threads: int, output: Path) -> None:
    """Embed the same texts by every road and by sentence-transformers; fails where vectors differ."""
    with _told():
        job.run(texts, threads, output, report.console())


@main.command(name="build", short_help="Only build environments, checkpoints and exports.")
def build_all() -> None:
    """Build what the parts would build on first use; what cannot be exported is said and left out."""
    console = report.console()
    with _told():
        for name in (peers.PEERS, serve.INFINITY):
            peers.build_environment(console.print, name)
        models = [peers.build_model("embed", console.print), peers.build_model("rerank", console.print)]
        models += [peers.build_shape(name, console.print) for name in shapes.SHAPES_RACED]
        for name in (*shapes.SHAPES_LARGE, *shapes.SHAPES_OTHER):
            peers.build_shape(name, console.print)
    exports = [(kind, model) for model in models for kind in ("onnx", "openvino")]
    exports += [(name.removeprefix("st-"), models[0]) for name in int8.PEERS]
    for kind, model in exports:
        try:
            peers.build_export(kind, model, console.print)
        except PeerUnavailable as error:
            console.print(f"MISSING: {error}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
