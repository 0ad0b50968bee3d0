"""A job from its flags to its end: the model is loaded, described so that no other one continues its work, and run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from ..checkpoint import open_checkpoint
from ..config import MachineSettings, ModelSettings, ShellSettings
from ..types import Input, Length
from .job import Job, State, take_up
from .options import Given
from .show import progress_bar, summary
from .sinks import TableSink
from .sources import Sources
from .target import Reading, Target
from .version import version

if TYPE_CHECKING:
    from ..call import Call
    from ..llm import LLM

_DEFAULT_ON_LONG = "cut"


@dataclass(frozen=True)
class Loaded:
    """A loaded model, and what happens to inputs that are too long for it."""

    llm: LLM
    length: Length

    def submit(self, task: str, inputs: Sequence[Input], params: Any) -> Call:
        """Start on `inputs` once the queue has room; those that fail are in the outcome's `errors`."""
        return self.llm.engine.submit(
            task, inputs, params, length=self.length, lane="bulk", keep_errors=True, wait=True
        )


Reads: TypeAlias = Callable[[Loaded], Reading]
"""Makes a command's reading of a loaded model; raises `BadInput` where the model cannot be read so."""


@contextmanager
def loaded(given: Given) -> Iterator[Loaded]:
    """Load the model; it is closed at the end."""
    from ..llm import LLM

    with LLM(**given.values(ModelSettings, MachineSettings)) as llm:
        yield Loaded(llm, Length(on_long=_on_long(given)))


def run(given: Given, sources: Sources, target: Target, what: Mapping[str, Any], reads: Reads) -> None:
    """Run the job from where it stands to its end, then print what there is to print.

    Args:
        what: The command and its options; a job with others must not go on from here.
        reads: The command's reading of the model.
    """
    quiet = given.settings(ShellSettings).quiet
    records = sources.read()
    can_resume = target.output is not None and sources.identity() is not None
    state = State({})
    if target.output is not None:
        job = description(given, sources, target.form, what)
        state = take_up(target.output, job, can_resume=can_resume, force=target.force)
    resumed_at = state.num_done
    with ExitStack() as stack:
        reading = reads(stack.enter_context(loaded(given)))
        if target.state_path is not None:  # before the output, so that an output without a state is a finished one
            state.save(target.state_path)
        sink = target.open(reading, state)
        stack.callback(sink.close)
        failed = target.open_errors(state)
        if failed is not None:
            stack.callback(failed.close)
        move = stack.enter_context(progress_bar(state, sources.total_units, quiet=quiet))
        try:
            Job(reading, sink, reading.num_columns, state, target.state_path, failed, move).run(records)
        except KeyboardInterrupt:
            if can_resume:
                click.echo(f"{target.output} is unfinished; the same command goes on where it stopped.", err=True)
            raise
    if isinstance(sink, TableSink):
        reading.show(sink)
    if target.state_path is not None:
        target.state_path.unlink()
    if not quiet:
        click.echo(summary(state, resumed_at=resumed_at), err=True)


def description(given: Given, sources: Sources, form: str, what: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the rows of a job and their order; a job that differs in any of it is another job."""
    from ..recipe import resolve

    model = given.settings(ModelSettings)
    checkpoint = open_checkpoint(model.model, model.revision, with_code=model.trust_remote_code)
    recipe = resolve(checkpoint, model)
    return {
        "version of cenote": version(),
        "model": _files(checkpoint.folder),
        "tokenizer": model.tokenizer,
        "dtype": recipe.dtype,
        "max_model_len": recipe.max_len,
        "on_long": _on_long(given),
        "pooler_config": asdict(model.pooler_config),
        "options": dict(what),
        "format": form,
        "field": [sources.field, sources.field_pair, sources.lines],
        "input": sources.identity(),
    }


def _on_long(given: Given) -> Any:
    return given.settings(ModelSettings).on_long or _DEFAULT_ON_LONG


def _files(folder: Path) -> list[list[Any]]:
    # Sizes and times, not contents: reading gigabytes of weights only to compare them would delay every start.
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return [[str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns] for path in paths]
