"""`cenote tune`: find out what serves a model best on this machine, and keep it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..config import MachineSettings, ModelSettings, ShellSettings
from ..errors import ConfigError
from .options import Given, settings
from .show import printable

if TYPE_CHECKING:
    from rich.console import Console

    from ..profiles import Profile
    from ..tuning import Asked, Choice, Compared, Trial

_EXAMPLES = """\b
Examples:
  cenote tune intfloat/e5-small-v2                    a few minutes; the machine should do nothing else
  cenote tune intfloat/e5-small-v2 --goal latency     for few questions at a time
  cenote tune ./model --int8 --half                   also ways that change vectors a little
  cenote serve intfloat/e5-small-v2                   uses what was found, and says so
  cenote serve intfloat/e5-small-v2 --no-profile      does not

\b
Every way is measured in turn, round after round. One is kept only where it beats what it replaces by more than the
measurements vary; else the default stays. Settings that are given are not tuned. What is found is kept for this model,
as these flags set it up, on this machine (processor, cores, instruction set, device) and with these versions of Cenote
and torch. Flags and the environment go before it.
"""


@click.command(epilog=_EXAMPLES)
@click.argument("name", metavar="[MODEL]", required=False)
@click.option(
    "--goal",
    type=click.Choice(["all", "throughput", "latency"]),
    default="all",
    help="What is to be best: many texts at once (short, and long), one question alone, or all alike. [default: all]",
)
@click.option("--rounds", type=click.IntRange(2), default=5, help="Measurements of each way. [default: 5]")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=2.0,
    help="Of each of the three parts of a measurement. [default: 2]",
)
@click.option("--half", is_flag=True, help="Try bfloat16 and float16 too, which change vectors a little.")
@click.option("--int8", is_flag=True, help="Try linear layers in 8 bits too, which change vectors a little more.")
@click.option("--dry-run", is_flag=True, help="Measure and show, and keep nothing.")
@settings(ModelSettings, MachineSettings, ShellSettings)
def tune(given: Given, name: str | None, dry_run: bool, **how: Any) -> None:
    """Measure which workers, threads, batches and, if asked for, precisions serve a model best on this machine.

    What is found is kept as a profile, which `cenote serve`, the other commands and LLM() use from then on.
    """
    from rich.console import Console

    from ..tuning import Asked, Tuning

    given = given.with_model(name)
    asked = Asked(given.settings(ModelSettings), given.settings(MachineSettings), **how)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=140)
    last: Choice | None = None
    with _bar(quiet=given.settings(ShellSettings).quiet) as watch:
        for last in Tuning(asked, watch).run():
            _print(console, last)
    if last is None:
        raise ConfigError(
            "Nothing is left to tune.", allowed="Settings that are given are not tuned.", fix="Leave some of them out."
        )
    found = dict(last.chosen.changes)
    said = ", ".join(f"{name}={value}" for name, value in found.items())
    console.print(f"Best here: {said}." if found else "The defaults stay: nothing beats them by more than noise.")
    if not dry_run:
        profile = _profile(asked, found)
        from ..profiles import save

        save(profile)
        console.print(f"Kept in {profile.path}", markup=False, soft_wrap=True)


def _profile(asked: Asked, found: dict[str, Any]) -> Profile:
    from .. import checkpoint, profiles
    from ..recipe import resolve

    model = asked.model
    files = checkpoint.open_checkpoint(model.model, model.revision, with_code=model.trust_remote_code)
    recipe = resolve(files, model)
    words = checkpoint.open_checkpoint(model.tokenizer) if model.tokenizer else recipe.transformer
    return profiles.of(recipe, words, asked.machine, found, asked.goal)


def _print(console: Console, choice: Choice) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = f"{choice.what} (1.10x: better than the first row by a tenth)"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for heading in ("", "short texts/s", "long texts/s", "one question, ms", "gain", "spread", ""):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    table.add_row(*_figures(choice.base, None), "", "", "stays" if choice.chosen is choice.base else "")
    for one in choice.compared:
        verdict = "chosen" if one.trial is choice.chosen else "better" if one.wins else "within noise or worse"
        table.add_row(*_figures(one.trial, one), f"{one.gain:+.1%}", f"{one.spread:.1%}", verdict)
    console.print(table)
    for trial in choice.refused:
        console.print(f"{trial.label}: {printable(trial.refusal)}", markup=False)


def _figures(trial: Trial, compared: Compared | None) -> list[str]:
    def cell(name: str, text: str) -> str:
        return text if compared is None else f"{text} ({compared.ratios[name]:.2f}x)"

    return [
        trial.label,
        cell("short_per_s", f"{trial.median('short_per_s'):,.1f}"),
        cell("long_per_s", f"{trial.median('long_per_s'):,.1f}"),
        cell("query_per_s", f"{1e3 / trial.median('query_per_s'):,.2f}"),
    ]


@contextmanager
def _bar(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr where that is a terminal; yields what moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda label, done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda label, done, total: bar.update(task, description=label, completed=done, total=total)
