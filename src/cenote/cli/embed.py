"""`cenote embed`: texts in, vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..config import MachineSettings, ModelSettings, ShellSettings
from ..types import FloatArray, Input
from .asked import Asked, job_flags
from .options import Given, settings
from .run import Loaded, run
from .show import print_embeddings
from .sinks import TableSink

if TYPE_CHECKING:
    from ..call import Call
    from ..tasks.embed import Params

_EXAMPLES = """\b
Examples:
  cenote embed "a cat" "a kitten"                        a table, and their similarity
  cenote embed "a cat" | jq .embedding                   JSON lines into a pipe
  cenote embed --input lines.txt --output rows.npy       one text per line
  cenote embed --input docs.jsonl --field body --output rows.jsonl
  cenote embed --input docs.parquet --field body --output rows.npy --errors skip

\b
A .npy has one float32 row per input, NaN where an input failed. JSON lines hold index, id (where
the input has one), embedding, tokens and truncated, and leave failed inputs out. With --errors skip
failed inputs are listed in OUTPUT.errors.jsonl.
A job that was interrupted goes on when the same command is run again: OUTPUT.partial says how far
it came, and disappears at the end. A finished OUTPUT is not overwritten without --force.
"""


@click.command(epilog=_EXAMPLES)
@job_flags("table", "jsonl", "npy")
@click.option("--prompt", help="Text put before every input.")
@click.option("--prompt-name", help="Name of the model's own prompt to put before every input.")
@click.option("--dimensions", type=int, help="Keep this many leading values (Matryoshka models).")
@click.option("--normalize/--no-normalize", default=None, help="Unit length or not. [default: as the model says]")
@settings(ModelSettings, MachineSettings, ShellSettings)
def embed(given: Given, asked: Asked, **params: Any) -> None:
    """Turn texts into vectors.

    Texts are arguments, lines of files or of standard input, fields of JSON lines, or columns of Parquet files.
    Inputs longer than the model allows are cut, and counted, unless --on-long refuse is given.
    """
    sources = asked.sources()
    written = {name: value for name, value in params.items() if value is not None}

    def reads(model: Loaded) -> Embeddings:
        from ..tasks.embed import Params

        options = Params(**written)
        options.check(model.llm.recipe)
        return Embeddings(model, options)

    run(given, sources, asked.target(sources), {"command": "embed", **written}, reads)


@dataclass(frozen=True)
class Embeddings:
    """A model read as one vector per input."""

    model: Loaded
    params: Params

    @property
    def num_columns(self) -> int:
        """Size of a finished row."""
        recipe = self.model.llm.recipe
        return self.params.dimensions or recipe.dimensions or recipe.embedding_size

    def submit(self, inputs: Sequence[Input]) -> Call:
        """Start embedding."""
        return self.model.submit("embed", inputs, self.params)

    def answer(self, row_D: FloatArray) -> dict[str, Any]:
        """The vector."""
        return {"embedding": row_D}

    def show(self, kept: TableSink) -> None:
        """A table of vectors and their similarities."""
        print_embeddings(kept)
