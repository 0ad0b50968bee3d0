"""`cenote zero-shot`: texts and any labels in, how likely each label is out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..config import MachineSettings, ModelSettings, ShellSettings
from ..errors import CenoteError
from ..types import Encoded, Input
from .asked import Asked, job_flags
from .classify import Classes
from .options import Given, settings
from .run import Loaded, run
from .sinks import Finished

if TYPE_CHECKING:
    from ..call import Call
    from ..uses.zero_shot import Plan

_EXAMPLES = """\b
Examples:
  cenote zero-shot --model NLI --labels "sport,politics,health" "The match ended in a draw."
  cenote zero-shot --model NLI --labels "urgent,phone" --multi-label --input mails.txt | jq .label
  cenote zero-shot --model NLI --labels "good,bad" --hypothesis-template "This film is {}." --input films.txt

\b
The model is one of natural language inference (NLI), which says whether a text entails a sentence.
JSON lines and .npy files are as in `cenote classify`, with these labels; tokens are those of the text
with every label. Where a text is too long it is cut, and the sentence with the label never.
"""
_TEMPLATE = "This example is {}."


@click.command(epilog=_EXAMPLES)
@job_flags("table", "jsonl", "npy")
@click.option(
    "--labels",
    "named",
    multiple=True,
    required=True,
    metavar="NAMES",
    help="Labels with commas between them; may be repeated.",
)
@click.option("--multi-label", is_flag=True, help="Several labels may hold: each has a probability of its own.")
@click.option(
    "--hypothesis-template",
    "template",
    default=_TEMPLATE,
    help=f"Sentence that says of a text that it is {{}}. [default: {_TEMPLATE}]",
)
@click.option("--top-k", type=click.IntRange(min=1), help="Give only this many labels, the likeliest.")
@settings(ModelSettings, MachineSettings, ShellSettings)
def zero_shot(
    given: Given, asked: Asked, named: tuple[str, ...], multi_label: bool, template: str, top_k: int | None
) -> None:
    """Say which of any labels fits each text, by a model of natural language inference.

    Texts come from where `cenote embed` takes them.
    """
    sources = asked.sources()
    what = {"command": "zero-shot", "labels": named, "multi": multi_label, "template": template, "top_k": top_k}

    def reads(model: Loaded) -> AnyLabels:
        from ..tasks.classify import Params
        from ..uses.zero_shot import OPTIONS, plan

        # Planned ahead: what is not allowed is refused before anything is written.
        planned = plan(model.llm.recipe, [], ",".join(named), multi_label, template)
        return AnyLabels(model, Params(**OPTIONS), tuple(planned.labels), top_k, multi_label, template)

    run(given, sources, asked.target(sources), what, reads)


@dataclass(frozen=True)
class AnyLabels(Classes):
    """A model read as one value for each of any labels and input."""

    multi_label: bool
    template: str

    def submit(self, inputs: Sequence[Input]) -> Any:
        """Start classifying."""
        from ..uses.zero_shot import TASK, plan

        planned = plan(self.model.llm.recipe, inputs, self.labels, self.multi_label, self.template)
        return Underway(planned, self.model.submit(TASK, planned.pairs, self.params))


@dataclass(frozen=True)
class Underway:
    """A chunk of texts that is being classified."""

    planned: Plan
    call: Call

    def cancel(self) -> None:
        """Give it up."""
        self.call.cancel()

    def result(self) -> Finished:
        """Wait for the end: one row per text, an error where one of its pairs has one."""
        from ..pieces import moved
        from ..uses.zero_shot import scores

        outcome = self.call.result()
        num_labels = len(self.planned.labels)
        errors: dict[int, CenoteError] = {}
        for at, error in outcome.errors.items():
            errors.setdefault(at // num_labels, moved(error, at // num_labels))
        encoded = []
        for text in range(len(self.planned.texts)):
            pairs = outcome.encoded[text * num_labels : (text + 1) * num_labels]
            ids = np.concatenate([pair.ids for pair in pairs])
            encoded.append(Encoded(ids, num_cut=sum(pair.num_cut for pair in pairs)))
        return Finished(scores(self.planned, outcome.rows), encoded, errors)
