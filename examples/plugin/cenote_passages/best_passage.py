"""A use: where in which of some documents a question is answered best, found by one forward over each document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cenote.errors import BadInput
from cenote.tasks import embed
from cenote.uses import Group, Planned

from . import passage_embed

if TYPE_CHECKING:
    from cenote.recipe import Recipe
    from cenote.tokenizer import Tokenizer
    from cenote.types import Outcome

NAME = "best_passage"


@dataclass(frozen=True)
class Options:
    """How many tokens a passage has, and how many documents to give, the best first; 0 for all."""

    tokens: int = 64
    top_n: int = 0


@dataclass(frozen=True)
class Asked:
    """What the rows are read with."""

    documents: list[str]
    options: Options
    params: passage_embed.Params


def serves(recipe: Recipe) -> bool:
    """What passages can be embedded with."""
    return passage_embed.serves(recipe)


def plan(recipe: Recipe, tokenizer: Tokenizer, given: Any, options: Options) -> Planned:
    """One query read as a query, documents read in passages."""
    if not isinstance(given, dict) or set(given) != {"query", "documents"}:
        raise BadInput("The input is no object with `query` and `documents`.", param="input")
    query, documents = given["query"], given["documents"]
    if not isinstance(query, str) or not isinstance(documents, list) or not documents:
        raise BadInput("`query` is a text, and `documents` a list of at least one.", param="input")
    if not all(isinstance(document, str) for document in documents):
        raise BadInput("Each of `documents` is a text.", param="input")
    params = passage_embed.Params(normalize=True, input_type="document", tokens=options.tokens)
    return Planned(
        [
            Group(embed.NAME, [query], embed.Params(normalize=True, input_type="query"), "query"),
            Group(passage_embed.NAME, documents, params, "document"),
        ],
        Asked(documents, options, params),
    )


def finish(recipe: Recipe, tokenizer: Tokenizer, planned: Planned, outcome: Outcome) -> list[dict[str, Any]]:
    """The best passage of each document, from the best document to the worst."""
    asked: Asked = planned.about
    query_E, *documents = outcome.rows
    found: list[dict[str, Any]] = []
    for index, (text, rows_nE) in enumerate(zip(asked.documents, documents, strict=True)):
        scores, encoded = rows_nE @ query_E, outcome.encoded[index + 1]
        places = [_place(recipe, tokenizer, text, passage, encoded, asked) for passage in range(len(scores))]
        # A passage of nothing but special tokens is none, unless the document has no other.
        best = max(range(len(scores)), key=lambda passage: (places[passage] != (0, 0), scores[passage]))
        start, end = places[best]
        found.append(
            {"document": index, "score": float(scores[best]), "start": start, "end": end, "text": text[start:end]}
        )
    found.sort(key=lambda one: -one["score"])
    return found[: asked.options.top_n or None]


def _place(
    recipe: Recipe, tokenizer: Tokenizer, text: str, passage: int, encoded: Any, asked: Asked
) -> tuple[int, int]:
    """Where a passage lies in its document, in characters."""
    prefix = asked.params.text_before(recipe)
    places, before = tokenizer.places(prefix + text, encoded)
    first = encoded.skip + passage * asked.params.tokens - before
    inside = places[max(first, 0) : max(first + asked.params.tokens, 0)]
    inside = inside[inside[:, 1] > len(prefix)] - len(prefix)
    return (max(int(inside[0, 0]), 0), int(inside[-1, 1])) if len(inside) else (0, 0)
