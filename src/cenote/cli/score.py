"""`cenote score` and `cenote rerank`: how well texts fit a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

import click

from ..config import MachineSettings, ModelSettings, ShellSettings
from ..errors import BadInput
from .asked import Asked, job_flags
from .bars import print_ranking
from .job import Job, State, take_up
from .options import Given, settings
from .run import loaded, run
from .scores import Ranking, scoring
from .show import progress_bar, summary
from .sources import Sources
from .target import Target

F = TypeVar("F", bound=Callable[..., Any])

_SCORE_EXAMPLES = """\b
Examples:
  cenote score --query "who eats mice?" "cats do" "cars do not"      a table with bars
  cenote score --query "who eats mice?" --input docs.txt --output scores.jsonl
  cenote score --input pairs.jsonl --query-field question --field answer > scores.jsonl
  cenote score --model CROSS_ENCODER --query "who eats mice?" "cats do" --raw

\b
JSON lines hold index, id (where the input has one), score, tokens (of query and text together) and
truncated. A larger score is a better fit: a cross-encoder's own value, usually between 0 and 1, or
the similarity of two vectors. Files, failed inputs and interrupted jobs are as in `cenote embed`.
"""
_RERANK_EXAMPLES = """\b
Examples:
  cenote rerank "who eats mice?" "cars do not" "cats do"             a ranking with bars
  cenote rerank "who eats mice?" --input docs.txt --top-n 10
  cat docs.jsonl | cenote rerank "who eats mice?" --field body --min-score 0.5 > best.jsonl
  cenote rerank "who eats mice?" --input docs.txt --model CROSS_ENCODER --max-tokens-per-doc 200

\b
JSON lines hold rank (from 1), index among the inputs, id (where the input has one), score, text,
tokens (of query and text together) and truncated. Equal scores keep the order of the inputs.
A ranking needs every score before its first line, so the texts are held in memory and an
interrupted ranking starts over.
"""


def scoring_flags(command: F) -> F:
    """Give a command the options of scoring, by the names of `uses.score.Options`, and `raw`."""
    kinds = ["bi-encoder", "cross-encoder", "late-interaction"]
    flags = (
        click.option("--score-type", type=click.Choice(kinds), help="How to score. [default: what the model is]"),
        click.option(
            "--max-tokens-per-query", type=click.IntRange(min=0), help="Cut the query to so many tokens first."
        ),
        click.option("--max-tokens-per-doc", type=click.IntRange(min=0), help="Cut each text to so many tokens first."),
        click.option("--instruction", help="What a language model that reranks is told to judge by."),
        click.option("--query-input-type", help="What the query is, where texts are read apart: chooses a prompt."),
        click.option("--document-input-type", help="The same of the texts."),
        click.option("--query-adapter", help="Name of the model's own adapter to read the query with."),
        click.option("--document-adapter", help="The same for the texts."),
        click.option("--raw", is_flag=True, help="Without the activation of a cross-encoder: logits."),
    )
    for flag in reversed(flags):
        command = flag(command)
    return command


@click.command(epilog=_SCORE_EXAMPLES)
@job_flags("table", "jsonl", "npy")
@click.option("--query", help="What every text is scored against.")
@click.option(
    "--query-field",
    metavar="NAME",
    help="Without --query: JSON field or Parquet column that holds each text's own. [default: query]",
)
@scoring_flags
@settings(ModelSettings, MachineSettings, ShellSettings)
def score(given: Given, asked: Asked, query: str | None, query_field: str | None, **params: Any) -> None:
    """Score how well texts fit a query, or pair by pair.

    With --query, every text is scored against it; texts come from where `cenote embed` takes them. Without, each
    line of a JSON lines or Parquet input holds both, in the fields --query-field and --field.
    """
    sources = asked.sources()
    if query is None:
        sources = _own_queries(sources, query_field or "query")
    elif query_field is not None:
        raise BadInput("--query and --query-field are both given.", fix="Give one of them.", param="--query-field")
    what = {"command": "score", "query": query, **params}
    run(given, sources, asked.target(sources), what, lambda model: scoring(model, query, params))


def _own_queries(sources: Sources, query_field: str) -> Sources:
    if sources.texts:
        raise BadInput(
            "There is no query for the texts given as arguments.", fix="Give it with --query.", param="--query"
        )
    return sources.paired(query_field, sources.field)


@click.command(epilog=_RERANK_EXAMPLES)
@click.argument("query")
@job_flags("table", "jsonl")
@click.option("--top-n", type=click.IntRange(min=0), help="Give only this many, the best; 0 for all. [default: all]")
@click.option("--min-score", type=float, help="Leave out texts that score below.")
@scoring_flags
@settings(ModelSettings, MachineSettings, ShellSettings)
def rerank(given: Given, asked: Asked, query: str, top_n: int | None, min_score: float | None, **params: Any) -> None:
    """Rank texts by how well they fit QUERY, the best first.

    Texts come from where `cenote embed` takes them. A cross-encoder ranks best; any embedding model can rank.
    """
    from ..uses.score import check_ranking

    check_ranking(query, top_n, min_score)
    sources = asked.sources()
    target = asked.target(sources)
    state = State({})
    if target.output is not None:
        take_up(target.output, {}, can_resume=False, force=target.force)
    scored = _scored(given, sources, target, state, query, params)
    ranked = scored.best(top_n, min_score)
    if target.form == "table":
        print_ranking(query, ranked, scored.results, whole=top_n is not None)
    else:
        scored.save(ranked, target.output)
    if not given.settings(ShellSettings).quiet:
        click.echo(summary(state, resumed_at=0), err=True)


def _scored(
    given: Given, sources: Sources, target: Target, state: State, query: str, params: Mapping[str, Any]
) -> Ranking:
    records = sources.read()
    ranking = Ranking()
    with ExitStack() as stack:
        reading = scoring(stack.enter_context(loaded(given)), query, params, num_columns=2)
        failed = target.open_errors(state)
        if failed is not None:
            stack.callback(failed.close)
        move = stack.enter_context(progress_bar(state, sources.total_units, quiet=given.settings(ShellSettings).quiet))
        Job(reading, ranking, reading.num_columns, state, None, failed, move).run(records)
    return ranking
