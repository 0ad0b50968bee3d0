"""Scores of pairs: by a cross-encoder, by the similarity of two vectors, sparse or not, or by late interaction.

One task answers all pairs; each distinct query and each distinct document of a bi-encoder runs once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from .. import pairing, prompting
from ..activations import INCREASING, activate
from ..errors import BadInput, UnsupportedTask
from ..outputs import RerankResult
from ..tasks import classify, embed, find, hybrid, sparse, token_embed
from ..types import FloatArray, Input, InputType, Outcome, Pair
from . import Group, listwise, mixing
from .similarity import LATE_SIMILARITIES, SIMILARITIES, of_sparse

if TYPE_CHECKING:
    from ..recipe import Recipe
    from ..tokenizer import Tokenizer

ScoreType = Literal["bi-encoder", "cross-encoder", "late-interaction", "sparse", "hybrid"]
_TASKS: dict[ScoreType, str] = {
    "bi-encoder": "embed",
    "cross-encoder": "classify",
    "late-interaction": "token_embed",
    "sparse": "sparse",
    "hybrid": "hybrid",
}


@dataclass(frozen=True)
class Options:
    """How pairs are scored.

    Args:
        use_activation: Whether a cross-encoder's activation is applied, or a bi-encoder's vectors are normalised; None
            as the checkpoint says.
        dimensions: A bi-encoder's vectors are cut to this size first.
        max_tokens_per_query, max_tokens_per_doc: Texts are cut to so many tokens before they are paired; 0 for
            no cut.
        score_type: Overrides what the checkpoint is.
        weights: Of the parts of a hybrid score: those by vectors of texts, by sparse vectors and by vectors of tokens;
            the score is their weighted mean. None for equal ones.
        template: Makes one text of a pair for a cross-encoder, from messages of the roles `query` and `document`; wins
            over the checkpoint's own.
        template_kwargs: Variables of the template.
        instruction: What a template tells the model to judge by.
        add_special_tokens: Whether the tokenizer adds its special tokens.
        query_input_type, document_input_type: What the texts of each side are, where the model reads them apart, which
            chooses prompts, adapters and routes as in `tasks.embed.Params`. None for `query` and `document` where the
            model has ways of its own to read these, else for texts of no type.
        query_adapter, document_adapter: Names of the checkpoint's adapters to read each side with.
    """

    use_activation: bool | None = None
    dimensions: int | None = None
    max_tokens_per_query: int = 0
    max_tokens_per_doc: int = 0
    score_type: ScoreType | None = None
    weights: Sequence[float] | None = None
    template: str | None = None
    template_kwargs: dict[str, Any] | None = None
    instruction: str | None = None
    add_special_tokens: bool = True
    query_input_type: str | None = None
    document_input_type: str | None = None
    query_adapter: str | None = None
    document_adapter: str | None = None

    def of_side(self, side: InputType) -> dict[str, str]:
        """What is said of one side, by the names of a task's options; raises `BadInput` where that is no name."""
        said = {}
        for option in ("input_type", "adapter"):
            name = f"{side}_{option}"
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise BadInput(f"{name}={value!r}.", allowed="It is a name.", param=name)
            if value is not None:
                said[option] = value
        return said


@dataclass(frozen=True)
class Plan:
    """What runs for some pairs: inputs of one task, and which of them make each pair.

    Args:
        groups: What runs.
        first, second: Positions among the inputs of all groups for each pair; equal where one input is the pair.
        score_type: How rows become scores.
        use_activation, weights: As in `Options`.
        place: For each pair which document of its input it is, where inputs are whole lists; () where they are not.
    """

    groups: Sequence[Group]
    first: Sequence[int]
    second: Sequence[int]
    score_type: ScoreType
    use_activation: bool | None
    weights: Sequence[float] | None = None
    place: Sequence[int] = ()

    @property
    def num_pairs(self) -> int:
        """How many scores come out."""
        return len(self.first)

    @property
    def num_inputs(self) -> int:
        """How many texts or pairs the model reads."""
        return sum(len(group.inputs) for group in self.groups)


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of pairs.

    Args:
        scores: float32 `[N]`, as they are shown.
        order: What they are ranked by, float32 `[N]`: the calibrated logits of a cross-encoder, which keep apart what
            an activation rounds together; else the scores.
    """

    scores: FloatArray
    order: FloatArray

    def ranked(self) -> list[int]:
        """Positions from best to worst; ties in input order."""
        ranking: list[int] = np.argsort(-self.order, kind="stable").tolist()
        return ranking


def score_type(recipe: Recipe, wanted: Any = None) -> ScoreType:
    """How a checkpoint scores: by its own nature, unless `wanted` names another way.

    Raises:
        UnsupportedTask: It cannot score in that way, or at all.
        BadInput: There is no such way.
    """
    if wanted is not None:
        if not isinstance(wanted, str) or wanted not in _TASKS:
            raise BadInput(f"score_type={wanted!r}.", allowed=f"It is {', '.join(_TASKS)}.", param="score_type")
        if not find(_TASKS[wanted]).serves(recipe):
            allowed = f"Its tasks are {recipe.tasks}."
            raise UnsupportedTask(f"{recipe.name} is no {wanted}.", allowed=allowed, param="score_type")
        if wanted != "cross-encoder":
            return wanted
    classifier = recipe.classifier
    if classifier is not None and classifier.head == "sequence":
        if len(classifier.labels) != 1:
            what = f"{recipe.name} has {len(classifier.labels)} labels."
            allowed = "Scoring API is only enabled for num_labels == 1."
            raise UnsupportedTask(what, allowed=allowed, fix="Classify pairs instead.", param="model")
        return "cross-encoder"
    if recipe.late_interaction is not None:
        return "late-interaction"
    is_sparse = recipe.sparse is not None and recipe.sparse.is_main
    if "embed" in recipe.tasks and not is_sparse:
        return "bi-encoder"
    if is_sparse:
        return "sparse"
    raise UnsupportedTask(f"This model does not support the Scoring API. {recipe.name} serves {recipe.tasks}.")


def can_score(recipe: Recipe) -> bool:
    """Whether a checkpoint can score in any way."""
    try:
        score_type(recipe)
    except UnsupportedTask:
        return False
    return True


def plan(recipe: Recipe, tokenizer: Tokenizer, data_1: Any, data_2: Any, options: Options) -> Plan:
    """Pairs of 1 and 1, 1 and N, or N and N texts.

    Raises:
        BadInput: The numbers do not fit, something is no text, or an option is not allowed.
        UnsupportedTask: The checkpoint cannot score.
    """
    how = score_type(recipe, options.score_type)
    queries, documents = _texts(data_1, "data_1"), _texts(data_2, "data_2")
    if len(queries) > 1 and len(queries) != len(documents):
        what = f"Input lengths must be either 1:1, 1:N or N:N, not {len(queries)}:{len(documents)}."
        raise BadInput(what, param="data_1")
    for texts, name, side in ((queries, "text", "data_1"), (documents, "text_pair", "data_2")):
        if not texts:
            raise BadInput(f"At least one {name} element must be given", param=side)
    queries = _cut(queries, options.max_tokens_per_query, "max_tokens_per_query", recipe, tokenizer)
    documents = _cut(documents, options.max_tokens_per_doc, "max_tokens_per_doc", recipe, tokenizer)
    if how == "cross-encoder":
        return _paired(recipe, tokenizer, queries, documents, options)
    lists = listwise.serves(recipe, how)
    instruction = None if lists else options.instruction
    for name, value in (("chat_template", options.template), ("instruction", instruction)):
        if value is not None:
            what = f"{name} was given, but {recipe.name} scores as a {how}."
            raise BadInput(what, allowed="A template joins the pairs of a cross-encoder.", param=name)
    if lists:
        return _listed(queries, documents, options)
    first = [0] * len(documents) if len(queries) == 1 else list(range(len(queries)))
    second = [len(queries) + position for position in range(len(documents))]
    params = _params(how, options)
    sides: list[tuple[list[str], InputType]] = [(queries, "query"), (documents, "document")]
    groups = [
        Group(_TASKS[how], texts, _side_params(params, side, recipe, how, options), side) for texts, side in sides
    ]
    return Plan(groups, first, second, how, options.use_activation, mixing.weights(how, options.weights))


def finish(recipe: Recipe, planned: Plan, outcome: Outcome) -> Scores:
    """Rows of the planned inputs to scores of the pairs."""
    rows = outcome.rows
    if planned.score_type == "cross-encoder":
        assert recipe.classifier is not None
        logits = np.asarray(rows, np.float32)
        shown = activate(logits, recipe.classifier, planned.use_activation)[:, 0]
        # What does not grow with the logits is ranked as it is shown.
        increases = recipe.classifier.activation in INCREASING
        order = activate(logits, recipe.classifier, use_activation=False)[:, 0] if increases else shown
        return Scores(shown, order)
    if planned.score_type == "bi-encoder":
        array = rows if isinstance(rows, np.ndarray) else np.stack(rows)
        scores = SIMILARITIES[recipe.similarity](array[planned.first], array[planned.second])
        return Scores(scores, scores)
    pairs = zip(planned.first, planned.second, strict=True)
    if planned.score_type == "sparse":
        assert recipe.sparse is not None
        name = recipe.sparse.similarity
        scores = np.array([of_sparse(rows[a], rows[b], name) for a, b in pairs], np.float32)
        return Scores(scores, scores)
    if planned.score_type == "hybrid":
        apart = [hybrid.parts(row) for row in rows]
        scores = np.array([mixing.mixed(apart[a], apart[b], planned.weights) for a, b in pairs], np.float32)
        return Scores(scores, scores)
    if planned.place:
        scores = listwise.scores(list(rows), planned.first, planned.place)
        return Scores(scores, scores)
    # What scores tokens beside whole texts was trained with means over the tokens of queries.
    usual = "maxsim" if recipe.multi_vector is None else "meanmaxsim"
    similarity = LATE_SIMILARITIES[recipe.similarity if recipe.late_interaction else usual]
    scores = np.array([similarity(rows[a], rows[b]) for a, b in pairs], np.float32)
    return Scores(scores, scores)


def check_ranking(query: Any, top_n: int | None, min_score: float | None) -> None:
    """Raise `BadInput` where `query` is not one text, `top_n` no number of documents, or `min_score` no number."""
    if not isinstance(query, str):
        what = f"The query is of type {type(query).__name__}."
        raise BadInput(what, allowed="A ranking has one query, a text.", fix="Call score for pairs.", param="query")
    if top_n is not None and (not _is_whole(top_n) or top_n < 0):
        allowed = "It is a whole number of at least 0, where 0 keeps all."
        raise BadInput(f"top_n={top_n!r}.", allowed=allowed, param="top_n")
    is_number = isinstance(min_score, (int, float, np.number)) and not isinstance(min_score, bool)
    if min_score is not None and (not is_number or np.isnan(min_score)):
        raise BadInput(f"min_score={min_score!r}.", allowed="It is a number.", param="min_score")


def ranking(
    scores: Scores, documents: str | Sequence[str], top_n: int | None = None, min_score: float | None = None
) -> list[RerankResult]:
    """Documents from best to worst.

    Args:
        top_n: How many to keep; None or 0 for all.
        min_score: Leave out what scores below it.
    """
    texts = _texts(documents, "documents")
    shown = scores.scores.tolist()
    order = [index for index in scores.ranked() if min_score is None or shown[index] >= min_score]
    return [RerankResult(index, shown[index], texts[index]) for index in order[: top_n or None]]


def tokens_of(planned: Plan, outcome: Outcome, pair: int, pad_id: int | None) -> list[int]:
    """Ids that the model read for one pair; between two texts that it read apart stands a padding token, if any."""
    first: list[int] = outcome.encoded[planned.first[pair]].ids.tolist()
    if planned.first[pair] == planned.second[pair]:
        return first
    between = [] if pad_id is None else [pad_id]
    return [*first, *between, *outcome.encoded[planned.second[pair]].ids.tolist()]


def _params(how: ScoreType, options: Options) -> embed.Params | sparse.Params:
    if how == "hybrid" and options.use_activation is not None:
        raise BadInput("use_activation was given for a hybrid score.", fix="Leave it out.", param="use_activation")
    if how != "sparse":
        kind: type[embed.Params] = token_embed.Params if how == "late-interaction" else embed.Params
        return kind(
            normalize=options.use_activation,
            dimensions=options.dimensions,
            add_special_tokens=options.add_special_tokens,
        )
    for name in ("use_activation", "dimensions"):
        if getattr(options, name) is not None:
            raise BadInput(f"{name} was given, but sparse vectors have none.", fix="Leave it out.", param=name)
    return sparse.Params(add_special_tokens=options.add_special_tokens)


def _side_params(
    params: embed.Params | sparse.Params, side: InputType, recipe: Recipe, how: ScoreType, options: Options
) -> embed.Params | sparse.Params:
    """Options of one side: what the caller says of it, else that it is what it is, where the model cares."""
    said: dict[str, Any] = options.of_side(side)
    if how == "sparse" and "adapter" in said:
        what = f"{side}_adapter was given, but sparse vectors are made without adapters."
        raise BadInput(what, fix="Leave it out.", param=f"{side}_adapter")
    has_sides = (
        recipe.late_interaction is not None
        or recipe.routing is not None
        or (how == "sparse" and recipe.sparse and recipe.sparse.words)
        or (how != "sparse" and all(prompting.adapter(recipe, one) for one in ("query", "document")))
    )
    if has_sides and not ("adapter" in said and recipe.routing is None and recipe.late_interaction is None):
        said = {"input_type": side, **said}
    return replace(params, **said)


def _paired(recipe: Recipe, tokenizer: Tokenizer, queries: list[str], documents: list[str], options: Options) -> Plan:
    queries = queries * len(documents) if len(queries) == 1 else queries
    pairs = [Pair(query, document) for query, document in zip(queries, documents, strict=True)]
    _check_no_sides(options, "a cross-encoder reads the texts of a pair together")
    if options.dimensions is not None:
        what = "dimensions was given, but a cross-encoder has no vectors."
        raise BadInput(what, fix="Leave it out.", param="dimensions")
    joiner = pairing.joiner(
        recipe,
        tokenizer,
        template=options.template,
        variables=options.template_kwargs,
        instruction=options.instruction,
    )
    inputs: list[Input] = [*pairs] if joiner is None else [joiner.join(pair) for pair in pairs]
    each = range(len(inputs))
    raw = classify.Params(raw_logits=True, add_special_tokens=options.add_special_tokens)
    return Plan([Group(classify.NAME, inputs, raw)], each, each, "cross-encoder", options.use_activation)


def _check_no_sides(options: Options, why: str) -> None:
    for side in ("query", "document"):
        for option in options.of_side(side):
            what = f"{side}_{option} was given, but {why}."
            raise BadInput(what, fix="Leave it out.", param=f"{side}_{option}")


def _listed(queries: list[str], documents: list[str], options: Options) -> Plan:
    """One prompt for a query and all its documents, or for each pair."""
    _check_no_sides(options, "the model reads a query and its documents together")
    lists = [documents] if len(queries) == 1 else [[document] for document in documents]
    told = listwise.instruction(options.instruction, options.template_kwargs or {})
    inputs: list[Input] = [listwise.prompt(query, own, told) for query, own in zip(queries, lists, strict=True)]
    first = [number for number, own in enumerate(lists) for _ in own]
    place = [number for own in lists for number in range(len(own))]
    how: ScoreType = "late-interaction"
    group = Group(_TASKS[how], inputs, _params(how, options))
    return Plan([group], first, first, how, options.use_activation, place=place)


def _texts(given: Any, param: str) -> list[str]:
    given = given.tolist() if isinstance(given, np.ndarray) else given
    texts = [given] if isinstance(given, (str, dict)) else given
    if not isinstance(texts, (list, tuple)):
        raise BadInput(
            f"{param} is of type {type(given).__name__}.", allowed="A text, or a list of texts.", param=param
        )
    for position, text in enumerate(texts):
        if isinstance(text, dict):
            what = f"MultiModalParam is not supported: element {position} of {param} is a dict."
            raise BadInput(what, allowed="Texts.", param=param, index=position)
        if not isinstance(text, str):
            what = f"Element {position} of {param} is of type {type(text).__name__}."
            raise BadInput(what, allowed="Texts.", param=param, index=position)
    return cast(list[str], list(texts))


def _cut(texts: list[str], most: int, param: str, recipe: Recipe, tokenizer: Tokenizer) -> list[str]:
    if not _is_whole(most) or most < 0:
        raise BadInput(f"{param} must be a non-negative integer, not {most!r}.", param=param)
    if most and recipe.routing is not None:
        what = f"{param}={most}, but queries and documents of {recipe.name} have tokens of their own."
        raise BadInput(what, fix="Leave it out.", param=param)
    if most >= recipe.max_len:
        raise BadInput(f"{param} ({most}) must be less than max_model_len ({recipe.max_len}).", param=param)
    return [tokenizer.cut_text(text, most, index) for index, text in enumerate(texts)] if most else texts


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
