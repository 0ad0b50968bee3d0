"""The model as `cenote embed` uses it: fed in chunks, and described so that no other model continues its job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoint import open_checkpoint
from ..config import MachineSettings, ModelSettings
from ..types import Length
from .options import Given
from .sources import Sources
from .version import version

if TYPE_CHECKING:
    from ..call import Call
    from ..llm import LLM
    from ..tasks.embed import Params

_DEFAULT_ON_LONG = "cut"


@dataclass(frozen=True)
class ModelEmbedder:
    """A loaded model and the options of this job."""

    llm: LLM
    params: Params
    length: Length

    @property
    def num_columns(self) -> int:
        """Size of a finished row."""
        recipe = self.llm.recipe
        return self.params.dimensions or recipe.dimensions or recipe.embedding_size

    def submit(self, texts: Sequence[str]) -> Call:
        """Start embedding `texts`, once the queue has room; inputs that fail are in the outcome's `errors`."""
        return self.llm.engine.submit(
            "embed", texts, self.params, length=self.length, lane="bulk", keep_errors=True, wait=True
        )


@contextmanager
def open_embedder(given: Given, params: Mapping[str, Any]) -> Iterator[ModelEmbedder]:
    """Load the model; it is closed at the end.

    Raises:
        BadInput: The model has no such prompt, or cannot give rows of this size.
    """
    from ..llm import LLM
    from ..tasks.embed import Params

    with LLM(**given.values(ModelSettings, MachineSettings)) as llm:
        options = Params(**params)
        options.check(llm.recipe)
        yield ModelEmbedder(llm, options, Length(on_long=_on_long(given)))


def description(given: Given, sources: Sources, form: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the rows of a job and their order; a job that differs in any of it is another job."""
    from ..recipe import resolve

    model = given.settings(ModelSettings)
    checkpoint = open_checkpoint(model.model, model.revision)
    recipe = resolve(checkpoint, model)
    return {
        "version of cenote": version(),
        "model": _files(checkpoint.folder),
        "tokenizer": model.tokenizer,
        "dtype": recipe.dtype,
        "max_model_len": recipe.max_len,
        "on_long": _on_long(given),
        "options": dict(params),
        "format": form,
        "field": [sources.field, sources.lines],
        "input": sources.identity(),
    }


def _on_long(given: Given) -> Any:
    return given.settings(ModelSettings).on_long or _DEFAULT_ON_LONG


def _files(folder: Path) -> list[list[Any]]:
    # Sizes and times, not contents: reading gigabytes of weights only to compare them would delay every start.
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return [[str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns] for path in paths]
