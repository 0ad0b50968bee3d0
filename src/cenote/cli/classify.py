"""`cenote classify`: texts or pairs in, labels and their probabilities out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..config import MachineSettings, ModelSettings, ShellSettings
from ..errors import UnsupportedTask
from ..types import FloatArray, Input
from .asked import Asked, job_flags
from .bars import print_classes
from .options import Given, settings
from .run import Loaded, run
from .sinks import TableSink

if TYPE_CHECKING:
    from ..call import Call
    from ..recipe import Recipe
    from ..tasks.classify import Params

_SHOWN_LABELS = 3
_EXAMPLES = """\b
Examples:
  cenote classify --model FOLDER "Lovely." "Never again."     a table with bars
  cenote classify --model FOLDER "Lovely." | jq .label        JSON lines into a pipe
  cenote classify --model FOLDER --input reviews.jsonl --field body --output labels.jsonl
  cenote classify --model NLI --input pairs.jsonl --field premise --field-pair hypothesis

\b
JSON lines hold index, id (where the input has one), label and score of the likeliest label, probs
(each label's value, the likeliest first), tokens and truncated. A .npy has one float32 row per
input, a value per label in the model's order, which `cenote inspect` shows.
Values are what the model's own activation makes of the logits: probabilities over all labels, or
one apart for each label where several may hold at once. With --raw they are the logits.
Files, failed inputs and interrupted jobs are as in `cenote embed`.
"""


@click.command(epilog=_EXAMPLES)
@job_flags("table", "jsonl", "npy")
@click.option(
    "--field-pair", metavar="NAME", help="Field or column of the second text, for models that read pairs (NLI)."
)
@click.option("--top-k", type=click.IntRange(min=1), help="Give only this many labels, the likeliest.")
@click.option("--raw", is_flag=True, help="Logits in place of probabilities.")
@settings(ModelSettings, MachineSettings, ShellSettings)
def classify(given: Given, asked: Asked, field_pair: str | None, top_k: int | None, raw: bool) -> None:
    """Say which label a classifier gives each text, and how likely each label is.

    Texts come from where `cenote embed` takes them; with --field-pair, two fields of a line are read together.
    Inputs longer than the model allows are cut, and counted, unless --on-long refuse is given.
    """
    sources = asked.sources()
    if field_pair is not None:
        sources = sources.paired(sources.field, field_pair)

    def reads(model: Loaded) -> Classes:
        from ..tasks.classify import Params

        options = Params(use_activation=False if raw else None)
        return Classes(model, options, _labels(model.llm.recipe), top_k)

    run(given, sources, asked.target(sources), {"command": "classify", "top_k": top_k, "raw": raw}, reads)


def _labels(recipe: Recipe) -> tuple[str, ...]:
    if recipe.classifier is None or "classify" not in recipe.tasks:
        raise UnsupportedTask(
            f"{recipe.name} is no classifier of texts.",
            allowed=f"It serves {', '.join(recipe.tasks)}.",
            fix="Name a model with a sequence classification head with --model.",
            param="--model",
        )
    return recipe.classifier.labels


@dataclass(frozen=True)
class Classes:
    """A model read as one value per label and input.

    Args:
        labels: Their names, length `L`.
        top_k: How many an answer gives; None for all, and in a table for the first few.
    """

    model: Loaded
    params: Params
    labels: tuple[str, ...]
    top_k: int | None

    @property
    def num_columns(self) -> int:
        """Size of a finished row, `L`."""
        return len(self.labels)

    def submit(self, inputs: Sequence[Input]) -> Call:
        """Start classifying."""
        return self.model.submit("classify", inputs, self.params)

    def ranked(self, row_L: FloatArray, most: int | None) -> list[tuple[str, Any]]:
        """Labels and their float32 values, the likeliest first; ties in the model's order."""
        return [(self.labels[at], row_L[at]) for at in np.argsort(-row_L, kind="stable")[:most]]

    def answer(self, row_L: FloatArray) -> dict[str, Any]:
        """The likeliest label, its value, and the others."""
        ranked = self.ranked(row_L, self.top_k)
        return {"label": ranked[0][0], "score": ranked[0][1], "probs": dict(ranked)}

    def show(self, kept: TableSink) -> None:
        """A table with a bar for each of the likeliest labels."""
        print_classes(kept, lambda row_L: self.ranked(row_L, self.top_k or _SHOWN_LABELS))
