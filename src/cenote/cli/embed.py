"""`cenote embed`: texts in, vectors out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..config import MachineSettings, ModelSettings, ShellSettings
from ..errors import ConfigError, UnsupportedTask
from ..types import FloatArray, Input
from .asked import Asked, job_flags
from .options import Given, settings
from .run import Loaded, run
from .show import print_embeddings
from .sinks import TableSink
from .sparse import SparseVectors

if TYPE_CHECKING:
    from ..call import Call
    from ..recipe import Recipe
    from ..tasks.embed import Params

F = TypeVar("F", bound=Callable[..., Any])

_EXAMPLES = """\b
Examples:
  cenote embed "a cat" "a kitten"                        a table, and their similarity
  cenote embed "a cat" | jq .embedding                   JSON lines into a pipe
  cenote embed --input lines.txt --output rows.npy       one text per line
  cenote embed --input docs.jsonl --field body --output rows.jsonl
  cenote embed --input docs.parquet --field body --output rows.npy --errors skip
  cenote embed --model SPLADE --sparse --top-k 64 --input docs.jsonl --output rows.jsonl

\b
A .npy has one float32 row per input, NaN where an input failed. JSON lines hold index, id (where
the input has one), embedding, tokens and truncated, and leave failed inputs out. Sparse vectors go
into JSON lines only: indices, values and words in place of embedding. With --errors skip
failed inputs are listed in OUTPUT.errors.jsonl.
A job that was interrupted goes on when the same command is run again: OUTPUT.partial says how far
it came, and disappears at the end. A finished OUTPUT is not overwritten without --force.
"""


def vector_flags(command: F) -> F:
    """Give a command the options of vectors, by the names of `tasks.embed.Params`."""
    flags = (
        click.option("--prompt", help="Text put before every input."),
        click.option("--prompt-name", help="Name of the model's own prompt to put before every input."),
        click.option(
            "--input-type", help="What the inputs are (query, document): chooses a prompt, and a model's route."
        ),
        click.option("--adapter", help="Name of the model's own adapter to read every input with."),
        click.option("--pooling", help="Pool in this way, such as mean, cls or last. [default: as the model says]"),
        click.option("--dimensions", type=int, help="Keep this many leading values (Matryoshka models)."),
        click.option(
            "--normalize/--no-normalize", default=None, help="Unit length or not. [default: as the model says]"
        ),
    )
    for flag in reversed(flags):
        command = flag(command)
    return command


@click.command(epilog=_EXAMPLES)
@job_flags("table", "jsonl", "npy")
@vector_flags
@click.option("--sparse", "is_sparse", is_flag=True, help="Sparse vectors, also where the model makes others as well.")
@click.option("--top-k", type=click.IntRange(min=1), help="Keep this many dimensions of a sparse vector, the largest.")
@click.option(
    "--threshold", type=click.FloatRange(min=0), help="Keep dimensions of a sparse vector whose value is larger."
)
@settings(ModelSettings, MachineSettings, ShellSettings)
def embed(given: Given, asked: Asked, is_sparse: bool, **params: Any) -> None:
    """Turn texts into vectors.

    Texts are arguments, lines of files or of standard input, fields of JSON lines, or columns of Parquet files.
    Inputs longer than the model allows are cut, and counted, unless --on-long refuse is given.
    """
    sources = asked.sources()
    written = {name: value for name, value in params.items() if value is not None}

    target = asked.target(sources)

    def reads(model: Loaded) -> Embeddings | SparseVectors:
        from ..tasks import embed, sparse

        recipe = model.llm.recipe
        if is_sparse or recipe.default_task == sparse.NAME:
            _check_sparse(recipe, target.form)
            weights = sparse.Params(**_fitting(sparse.Params, written))
            weights.check(recipe)
            return SparseVectors(model, weights)
        options = embed.Params(**_fitting(embed.Params, written))
        options.check(recipe)
        return Embeddings(model, options)

    run(given, sources, target, {"command": "embed", "sparse": is_sparse, **written}, reads)


def _fitting(params: type, written: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options as written, if all are fields of `params`; raises `ConfigError` where one is not."""
    known = {field.name for field in fields(params)}
    for name in written:
        if name not in known:
            flag = f"--{name.replace('_', '-')}"
            other = "sparse" if name in ("top_k", "threshold") else "other"
            raise ConfigError(f"{flag} is for {other} vectors.", fix="Leave it out.", param=flag)
    return written


def _check_sparse(recipe: Recipe, form: str) -> None:
    if recipe.sparse is None:
        raise UnsupportedTask(
            f"{recipe.name} makes no sparse vectors.",
            allowed=f"It serves {', '.join(recipe.tasks)}.",
            fix="Name a SPLADE model or a masked language model with --model, or leave --sparse out.",
            param="--sparse",
        )
    if form == "npy":
        raise ConfigError("A .npy holds no sparse vectors.", fix="Write a .jsonl.", param="--output")


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
