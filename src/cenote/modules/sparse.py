"""Modules that make sparse rows, and the Router that sends queries past the model. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..checkpoint import Checkpoint
from ..errors import CheckpointError, UnknownModule, WeightMismatch
from ..steps import Normalize, PresentWords, SparseCode, SparseStep, Splade, Step
from ..types import InputType
from .late_interaction import LateStep
from .readers import Read, check_keys
from .routing import Listed, router

ROUTER: Final = "Router"
_STATIC: Final = "SparseStaticEmbedding"
_DOCUMENTS: Final = (("Transformer", "SpladePooling"), ("MLMTransformer", "SpladePooling"))


@dataclass(frozen=True, slots=True)
class SparseModules:
    """What the modules of a SparseEncoder say.

    Args:
        step: What makes rows of what the model reads; where it reads nothing, the same as `words`.
        words: What makes rows of texts that it does not read, or None.
        by_words: Which texts those are; None stands for those that are neither queries nor documents.
    """

    step: SparseStep
    words: PresentWords | None = None
    by_words: tuple[InputType | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Routes:
    """What a Router sends where.

    Args:
        documents: The modules of documents, as `modules.json` lists modules.
        words: What makes rows of queries.
        by_words: As in `SparseModules`.
    """

    documents: Listed
    words: PresentWords
    by_words: tuple[InputType | None, ...]


def routes(path: str, checkpoint: Checkpoint) -> Routes:
    """Read the Router in the folder `path`.

    Raises:
        UnknownModule: It is not one of queries without a model and of documents with one.
        CheckpointError: Its routes know other words.
    """
    found = router(path, checkpoint)
    kinds = {route: found.kinds(route) for route in found.inside}
    is_known = kinds in [{"query": (_STATIC,), "document": modules} for modules in _DOCUMENTS]
    has_rules = bool(found.rules.mapped) or found.rules.always is not None
    if not is_known or has_rules:
        raise UnknownModule(
            f"The Router of {checkpoint.name} has routes {kinds}{' and mappings' if has_rules else ''}.",
            allowed=f"A query that is a {_STATIC}, a document that is one of {_DOCUMENTS}, and no mappings.",
            fix="Name another checkpoint, or the folder of one route.",
            param="model",
        )
    (query,), documents = found.inside["query"], found.inside["document"]
    _check_same_words(checkpoint, str(query["path"]), str(documents[0]["path"]))
    return Routes(
        documents,
        present_words(str(query["path"]), checkpoint),
        ("query", None) if found.rules.default == "query" else ("query",),
    )


def from_modules(
    found: Sequence[Read], words: PresentWords | None, routes: Routes | None
) -> tuple[list[Step | LateStep], SparseModules | None]:
    """All other steps, and what makes sparse rows as the last one; None where that does not.

    Args:
        found: All steps.
        words: Weights of words that are the whole model.
    """
    others = [step for step in found if not isinstance(step, (Splade, SparseCode))]
    last = found[-1] if found else words
    if last is words:
        return others, SparseModules(words, words, (None, "query", "document")) if words else None
    if not isinstance(last, (Splade, SparseCode)):
        return others, None
    if isinstance(last, SparseCode):
        last = replace(last, of_unit=bool(others) and isinstance(others[-1], Normalize))
    return others, SparseModules(last, routes.words, routes.by_words) if routes else SparseModules(last)


def present_words(path: str, checkpoint: Checkpoint) -> PresentWords:
    """Read the SparseStaticEmbedding in the folder `path`.

    Raises:
        CheckpointError: Its config has a key that is not known, or names a file that is not there.
        WeightMismatch: It has no weight for each word.
    """
    raw = checkpoint.json(_in(path, "config.json")) or {}
    check_keys(raw, ("frozen", "path"), f"{_in(path, 'config.json')} of {checkpoint.name}")
    if str(raw.get("path") or "").endswith(".json"):
        return PresentWords(_idf(path, str(raw["path"]), checkpoint), path)
    from .. import weights

    stored = dict(weights.stored_tensors(checkpoint, path))
    if set(stored) != {"weight"} or stored["weight"].ndim != 1:
        shapes = {name: tuple(tensor.shape) for name, tensor in stored.items()}
        raise WeightMismatch(
            f"The {_STATIC} in {path!r} has {shapes}.", allowed="A weight for each word.", fix="Fetch it again."
        )
    return PresentWords(tuple(stored["weight"].float().tolist()), path)


def _idf(path: str, named: str, checkpoint: Checkpoint) -> tuple[float, ...]:
    from ..tokenizer_files import read_files

    # The reference takes the path as it was on the machine that saved it; the file itself lies beside the config.
    name = named.replace("\\", "/").rsplit("/", 1)[-1]
    idf = checkpoint.json(_in(path, name)) or checkpoint.json(name)
    if not isinstance(idf, dict):
        raise CheckpointError(f"{_in(path, 'config.json')} names {named!r}, which is not there.", fix="Fetch it.")
    files = read_files(Checkpoint(checkpoint.name, checkpoint.folder / path))
    unknown = files.backend.id_of(files.special_tokens.get("unk_token", ""))
    found = [0.0] * files.backend.vocab_size
    for word, weight in idf.items():
        number = files.backend.id_of(word)
        number = unknown if number is None else number
        if number is None:
            raise CheckpointError(f"{name} weighs {word!r}, which the tokenizer does not know.", fix="Take it out.")
        found[number] = float(weight)
    return tuple(found)


def _check_same_words(checkpoint: Checkpoint, query: str, document: str) -> None:
    both = [checkpoint.json(_in(folder, "tokenizer.json")) for folder in (query, document)]
    parts = ("model", "added_tokens", "normalizer", "pre_tokenizer")
    first, second = ([tokenizer.get(part) for part in parts] if tokenizer else None for tokenizer in both)
    if first is None or first != second:
        raise CheckpointError(
            f"tokenizer.json in {query!r} and in {document!r} of {checkpoint.name} make other tokens of a text.",
            allowed="Queries and documents share their words.",
            fix="Fetch the checkpoint again.",
        )


def _in(folder: str, name: str) -> str:
    return "/".join(part for part in (folder, name) if part)
