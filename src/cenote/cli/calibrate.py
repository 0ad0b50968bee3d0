"""`cenote calibrate`: the ranges of one-byte vectors, measured on texts of the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..config import MachineSettings, ModelSettings, ShellSettings
from ..errors import BadInput
from ..precisions import Calibration, ranges_of
from ..types import FloatArray
from .options import Given, settings
from .run import loaded
from .sources import Sources

if TYPE_CHECKING:
    from ..llm import LLM

_EXAMPLES = """\b
Examples:
  cenote calibrate intfloat/e5-small-v2 texts.txt --output ranges.safetensors
  cenote serve intfloat/e5-small-v2 --calibration ranges.safetensors

\b
A few thousand texts like those to come are enough. Vectors of another size need ranges of their own.
"""


@click.command(epilog=_EXAMPLES)
@click.argument("name", metavar="MODEL")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="A safetensors file.")
@click.option("--field", help="JSON field or Parquet column that holds the text; named, lines are JSON.")
@click.option("--prompt-name", help="Name of the model's own prompt to put before every text.")
@click.option("--input-type", help="What the texts are (query, document): chooses a prompt, and a model's route.")
@click.option("--dimensions", type=int, help="Keep this many leading values (Matryoshka models).")
@settings(ModelSettings, MachineSettings, ShellSettings)
def calibrate(
    given: Given,
    name: str,
    files: tuple[str, ...],
    output: Path,
    field: str | None,
    prompt_name: str | None,
    input_type: str | None,
    dimensions: int | None,
) -> None:
    """Measure from where to where each number of a model's vectors goes: the ranges of int8 and uint8.

    Texts are lines of files or of standard input (-), fields of JSON lines, or columns of Parquet files.
    """
    given = given.with_model(name)
    sources = Sources((), files, field or "text", "auto" if field is None else "json")
    sources.check()
    form = {"prompt_name": prompt_name, "input_type": input_type, "dimensions": dimensions}
    with loaded(given) as model:
        more: dict[str, Any] = {name: value for name, value in form.items() if value is not None}
        if model.length.on_long == "cut":
            more["tokenization_kwargs"] = {"truncate_prompt_tokens": -1}
        found = _measured(model.llm, sources, more)
    found.save(output)
    if not given.settings(ShellSettings).quiet:
        click.echo(f"{output} has the ranges of {found.size} numbers, from {found.num_texts} texts.", err=True)


def _measured(llm: LLM, sources: Sources, more: dict[str, Any]) -> Calibration:
    extremes: FloatArray | None = None
    num_texts = 0
    for row in llm.embed_iter(_texts(sources), output="numpy", **more):
        extremes = ranges_of(np.vstack([row] if extremes is None else [extremes, row]))
        num_texts += 1
    if extremes is None or num_texts == 1:
        raise BadInput(f"There are {num_texts} texts.", allowed="A range needs two or more.", param="files")
    return Calibration(extremes, llm.engine.name, num_texts)


def _texts(sources: Sources) -> Iterator[str | None]:
    for record in sources.read():
        if record.error is not None:
            raise record.error
        yield record.text
