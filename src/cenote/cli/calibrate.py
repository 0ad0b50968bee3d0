"""`cenote calibrate`: the ranges of one-byte vectors, measured on texts of the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..config import MachineSettings, ModelSettings, ShellSettings
from ..errors import BadInput
from ..precisions import Calibration, ranges_of
from ..types import FloatArray
from .embed import vector_flags
from .options import Given, settings
from .run import Loaded, loaded
from .sources import Sources, check_outputs

_EXAMPLES = """\b
Examples:
  cenote calibrate intfloat/e5-small-v2 texts.txt --output ranges.safetensors
  cenote serve intfloat/e5-small-v2 --calibration ranges.safetensors
  cenote calibrate intfloat/e5-small-v2 texts.txt --pooling max --no-normalize --output raw.safetensors

\b
A few thousand texts like those to come are enough. Vectors of another size, pooling or length need
ranges of their own; a request for others than those measured takes the ranges of sample texts.
"""


@click.command(epilog=_EXAMPLES)
@click.argument("name", metavar="MODEL")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="A safetensors file.")
@click.option("--field", help="JSON field or Parquet column that holds the text; named, lines are JSON.")
@vector_flags
@settings(ModelSettings, MachineSettings, ShellSettings)
def calibrate(given: Given, name: str, files: tuple[str, ...], output: Path, field: str | None, **params: Any) -> None:
    """Measure from where to where each number of a model's vectors goes: the ranges of int8 and uint8.

    Texts are lines of files or of standard input (-), fields of JSON lines, or columns of Parquet files.
    """
    given = given.with_model(name)
    sources = Sources((), files, field or "text", "auto" if field is None else "json")
    sources.check()
    check_outputs([output], files)
    asked = {name: value for name, value in params.items() if value is not None}
    with loaded(given) as model:
        found = _measured(model, sources, asked)
    found.save(output)
    if not given.settings(ShellSettings).quiet:
        click.echo(f"{output} has the ranges of {found.size} numbers, from {found.num_texts} texts.", err=True)


def _measured(model: Loaded, sources: Sources, asked: dict[str, Any]) -> Calibration:
    how = {"tokenization_kwargs": {"truncate_prompt_tokens": -1}} if model.length.on_long == "cut" else {}
    extremes: FloatArray | None = None
    num_texts = 0
    for row in model.llm.embed_iter(_texts(sources), output="numpy", **asked, **how):
        extremes = ranges_of(np.vstack([row] if extremes is None else [extremes, row]))
        num_texts += 1
    if extremes is None or num_texts == 1:
        raise BadInput(f"There are {num_texts} texts.", allowed="A range needs two or more.", param="files")
    pooling = str(asked.get("pooling", "")).lower()
    return Calibration(extremes, model.llm.engine.name, num_texts, normalize=asked.get("normalize"), pooling=pooling)


def _texts(sources: Sources) -> Iterator[str | None]:
    for record in sources.read():
        if record.error is not None:
            raise record.error
        yield record.text
