"""A model read as scores of pairs, chunk by chunk, and the ranking made of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import CenoteError
from ..types import Encoded, FloatArray, Input, Outcome, Pair
from .bars import print_scores
from .run import Loaded
from .sinks import Result, Rows, TableSink, json_line

if TYPE_CHECKING:
    from ..outputs import RerankResult
    from ..recipe import Recipe
    from ..started import Started
    from ..uses.score import Options, Plan


@dataclass(frozen=True)
class Scoring:
    """A model read as one score per input.

    Args:
        query: What single texts are scored against; None where inputs are pairs.
        num_columns: 1 for the score alone, 2 with what it is ranked by beside it.
    """

    model: Loaded
    query: str | None
    options: Options
    num_columns: int

    def submit(self, inputs: Sequence[Input]) -> ScoredPairs:
        """Start scoring."""
        from ..started import Started, parts_of
        from ..uses import score

        llm = self.model.llm
        queries = self.query if self.query is not None else [item.text for item in inputs if isinstance(item, Pair)]
        documents = [item.text_pair if isinstance(item, Pair) else item for item in inputs]
        planned = score.plan(llm.recipe, llm.engine.tokenizer, queries, documents, self.options)
        parts = parts_of(planned.groups, self.model.submit)
        # Here a pair is an input, so errors of its texts are named after it.
        started = Started.of(replace(part, called="input") for part in parts)
        return ScoredPairs(llm.recipe, planned, started, self.num_columns)

    def answer(self, row_D: FloatArray) -> dict[str, Any]:
        """The score."""
        return {"score": row_D[0]}

    def show(self, kept: TableSink) -> None:
        """A table with a bar for each score."""
        print_scores(kept, self.query)


def scoring(model: Loaded, query: str | None, params: Mapping[str, Any], num_columns: int = 1) -> Scoring:
    """The reading of a model that a command's flags ask for.

    Args:
        params: Fields of `uses.score.Options` and `raw`; None counts as not given.

    Raises:
        BadInput: The model cannot score in this way, or not so many tokens can be kept.
    """
    from ..uses import score

    given = {name: value for name, value in params.items() if value is not None and name != "raw"}
    options = score.Options(**given, use_activation=False if params["raw"] else None)
    # One pair planned ahead: what is not allowed is refused before anything is written.
    score.plan(model.llm.recipe, model.llm.engine.tokenizer, "a", "a", options)
    return Scoring(model, query, options, num_columns)


@dataclass(frozen=True)
class ScoredPairs:
    """A chunk of pairs that is being scored."""

    recipe: Recipe
    planned: Plan
    started: Started
    num_columns: int

    def cancel(self) -> None:
        """Give it up."""
        self.started.cancel()

    def result(self) -> Outcome:
        """Wait for the end: one row per pair, an error where one of its texts has one."""
        from ..uses import score

        outcome = self.started.finish(keep_errors=True)
        errors = self._errors(outcome)
        good = [pair for pair in range(self.planned.num_pairs) if pair not in errors]
        rows_ND = np.full((self.planned.num_pairs, self.num_columns), np.nan, np.float32)
        if good:
            # A good pair stands in for those that failed, which have no rows to compare; what it scores is dropped.
            places = [good[0] if pair in errors else pair for pair in range(self.planned.num_pairs)]
            first, second = ([side[at] for at in places] for side in (self.planned.first, self.planned.second))
            place = [self.planned.place[at] for at in places] if self.planned.place else ()
            planned = replace(self.planned, first=first, second=second, place=place)
            scores = score.finish(self.recipe, planned, outcome)
            rows_ND[good] = np.stack([scores.scores, scores.order], axis=1)[good, : self.num_columns]
        return Outcome(rows_ND, self._encoded(outcome), errors)

    def _sides(self) -> list[tuple[int, ...]]:
        """Positions of each pair's inputs, one where the model reads it in one piece."""
        both = zip(self.planned.first, self.planned.second, strict=True)
        return [(first,) if first == second else (first, second) for first, second in both]

    def _errors(self, outcome: Outcome) -> dict[int, CenoteError]:
        from ..pieces import moved

        errors: dict[int, CenoteError] = {}
        for pair, sides in enumerate(self._sides()):
            for side in sides:
                if side in outcome.errors:
                    errors.setdefault(pair, moved(outcome.errors[side], pair))
        return errors

    def _encoded(self, outcome: Outcome) -> list[Encoded]:
        pairs = [[outcome.encoded[side] for side in sides] for sides in self._sides()]
        return [
            Encoded(np.concatenate([item.ids for item in pair]), num_cut=sum(item.num_cut for item in pair))
            for pair in pairs
        ]


@dataclass(slots=True)
class Ranking:
    """Keeps every scored text, for there is no best one before the last is seen.

    Args:
        results: Inputs that have a score, in their order.
        rows: What came with them: score, and what it is ranked by.
    """

    results: list[Result] = field(default_factory=list)
    rows: list[FloatArray] = field(default_factory=list)

    def write(self, results: Sequence[Result], rows_ND: Rows) -> None:
        """Keep what has a score."""
        for result, row_D in zip(results, rows_ND, strict=True):
            if result.error is None:
                self.results.append(result)
                self.rows.append(row_D)

    def flush(self) -> int:
        """Nothing is written yet."""
        return 0

    def close(self) -> None:
        """Nothing is open."""

    def best(self, top_n: int | None, min_score: float | None) -> list[RerankResult]:
        """From best to worst; `index` is a position in `results`."""
        from ..uses.score import Scores, ranking

        rows_N2 = np.array(self.rows, np.float32).reshape(-1, 2)
        texts = [result.record.text or "" for result in self.results]
        return ranking(Scores(rows_N2[:, 0], rows_N2[:, 1]), texts, top_n, min_score)

    def save(self, ranked: Sequence[RerankResult], output: Path | None) -> None:
        """Write JSON lines, the best first, to a file or to stdout."""
        with ExitStack() as stack:
            file = sys.stdout.buffer if output is None else stack.enter_context(output.open("wb"))
            for rank, document in enumerate(ranked, 1):
                answer = {"rank": rank, "score": np.float32(document.score), "text": document.document}
                file.write(json_line(self.results[document.index], answer))
            file.flush()
