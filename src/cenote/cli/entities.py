"""`cenote entities`: texts in, and what a token classifier finds in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from ..config import MachineSettings, ModelSettings, ShellSettings
from ..errors import CenoteError
from ..types import Encoded, Input, Length
from .asked import Asked, job_flags
from .options import Given, settings
from .run import Loaded, run
from .show import print_marked
from .sinks import Finished, TableSink

if TYPE_CHECKING:
    from ..call import Call
    from ..uses.entities import Entity, Options, Plan

_EXAMPLES = """\b
Examples:
  cenote entities --model FOLDER "Ada Lovelace was born in London."     the text with its entities
  cenote entities --model FOLDER "Ada was here." | jq '.entities[].word'
  cenote entities --model FOLDER --input docs.jsonl --field body --stride 32 --output found.jsonl

\b
JSON lines hold index, id (where the input has one), entities, tokens and truncated. An entity has
the keys of transformers' pipeline: entity_group, score, word, start and end, which count
characters; with --aggregation none it is a token, with entity and index in place of entity_group.
Files, failed inputs and interrupted jobs are as in `cenote embed`.
"""
_WAYS: Final = ("none", "simple", "first", "average", "max")


@click.command(epilog=_EXAMPLES)
@job_flags("table", "jsonl")
@click.option(
    "--aggregation",
    type=click.Choice(_WAYS),
    default="simple",
    help="How tokens become entities: by their labels (simple), after each word got one label from its first token, "
    "the mean or the surest one (first, average, max), or not at all. [default: simple]",
)
@click.option(
    "--ignore-label", "ignored", multiple=True, metavar="NAME", help="Label to leave out; may be repeated. [default: O]"
)
@click.option(
    "--stride",
    type=click.IntRange(min=0),
    help="Read texts longer than the model in windows that share so many tokens; without it they are cut.",
)
@settings(ModelSettings, MachineSettings, ShellSettings)
def entities(given: Given, asked: Asked, aggregation: Any, ignored: tuple[str, ...], stride: int | None) -> None:
    """Find names of persons, places or whatever else a model was taught to label in texts.

    Texts come from where `cenote embed` takes them.
    """
    sources = asked.sources()
    what = {"command": "entities", "aggregation": aggregation, "ignored": ignored, "stride": stride}

    def reads(model: Loaded) -> Entities:
        from ..uses.entities import Options, plan

        options = Options(aggregation, ignored or ("O",))
        length = model.length if stride is None else Length("chunk", overlap=stride)
        # Planned ahead: what is not allowed is refused before anything is written.
        plan(model.llm.recipe, model.llm.engine.tokenizer, ["a"], options, length)
        return Entities(model, options, length)

    run(given, sources, asked.target(sources), what, reads)


@dataclass(frozen=True)
class Entities:
    """A model read as the entities of each input."""

    model: Loaded
    options: Options
    length: Length
    num_columns: int = 0

    def submit(self, inputs: Sequence[Input]) -> Underway:
        """Start on texts; those that are refused are noted."""
        from ..uses.entities import PARAMS, TASK

        found = Underway(self.model, len(inputs))
        try:
            found.planned, found.places = self._plan(inputs), list(range(len(inputs)))
        except CenoteError:
            good = []
            for place, item in enumerate(inputs):
                try:
                    self._plan([item])
                    good.append(place)
                except CenoteError as error:
                    found.errors[place] = error
            found.planned, found.places = self._plan([inputs[place] for place in good]), good
        if found.places:
            found.call = self.model.submit(TASK, found.planned.inputs, PARAMS)
        return found

    def _plan(self, inputs: Sequence[Input]) -> Plan:
        from ..uses.entities import plan

        llm = self.model.llm
        return plan(llm.recipe, llm.engine.tokenizer, inputs, self.options, self.length)

    def answer(self, row: Sequence[Entity]) -> dict[str, Any]:
        """The entities, with scores as the model has them."""
        return {"entities": [{**one.as_dict(), "score": np.float32(one.score)} for one in row]}

    def show(self, kept: TableSink) -> None:
        """Each text with its entities marked in it."""
        print_marked(kept, lambda row: [(one.start, one.end, one.label, one.score) for one in row])


@dataclass
class Underway:
    """A chunk of texts that is being looked through.

    Args:
        num_texts: How many there are.
        planned: What runs for those that are not refused, which stand at `places`.
    """

    model: Loaded
    num_texts: int
    planned: Any = None
    places: Sequence[int] = ()
    errors: dict[int, CenoteError] = field(default_factory=dict)
    call: Call | None = None

    def cancel(self) -> None:
        """Give it up."""
        if self.call is not None:
            self.call.cancel()

    def result(self) -> Finished:
        """Wait for the end: the entities of each text, an error where one of its windows has one."""
        from ..pieces import moved
        from ..uses.entities import finish

        rows: list[Any] = [()] * self.num_texts
        encoded = [Encoded(np.zeros(0, np.int32))] * self.num_texts
        if self.call is not None:
            outcome, windows = self.call.result(), self.planned.windows
            failed = {windows[at][0]: error for at, error in outcome.errors.items()}
            kept = [at for at, (text, _) in enumerate(windows) if text not in failed]
            planned = replace(self.planned, windows=[windows[at] for at in kept])
            llm = self.model.llm
            found = finish(llm.recipe, llm.engine.tokenizer, planned, [outcome.rows[at] for at in kept])
            for text, (place, item) in enumerate(zip(self.places, self.planned.encoded(), strict=True)):
                rows[place], encoded[place] = found[text], item
                if text in failed:
                    self.errors[place] = moved(failed[text], place)
        return Finished(rows, encoded, self.errors)
