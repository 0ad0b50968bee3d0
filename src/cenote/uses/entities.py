"""Entities: stretches of a text and their labels, as transformers' token-classification pipeline makes them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import numpy as np

from .. import chunks
from ..activations import apply
from ..errors import BadInput, UnsupportedTask
from ..tasks import token_classify
from ..types import Encoded, FloatArray, IntArray, Length, Located, Tokens

if TYPE_CHECKING:
    from ..recipe import Recipe
    from ..tokenizer import Tokenizer

TASK: Final = token_classify.NAME
PARAMS: Final = token_classify.Params(use_activation=False)
"""How tokens are read: calibrated logits, of which the softmax is taken here whatever the checkpoint's activation."""

Aggregation: TypeAlias = Literal["none", "simple", "first", "average", "max"]
_SPLIT: Final = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Entity:
    """A stretch of a text and its label.

    Args:
        label: Without its prefix `B-` or `I-`; with it where tokens are not aggregated.
        score: Probability of the label; the mean over what was joined.
        word: The tokens as the tokenizer writes them, so in lower case where that lower-cases.
        start, end: Where it stands in the text, in characters.
        index: Position of the token in what the model read, where tokens are not aggregated; else None.
    """

    label: str
    score: float
    word: str
    start: int
    end: int
    index: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The same under the names that transformers gives them."""
        said: dict[str, Any] = {"entity_group" if self.index is None else "entity": self.label, "score": self.score}
        if self.index is not None:
            said["index"] = self.index
        return {**said, "word": self.word, "start": self.start, "end": self.end}


@dataclass(frozen=True)
class Options:
    """How tokens become entities.

    Args:
        aggregation: `none` for one entity per token; `simple` joins neighbours by their `B-` and `I-`; `first`,
            `average` and `max` first give each word one label: of its first token, of its tokens' mean, or of its
            surest token.
        ignore_labels: Labels that are left out.
    """

    aggregation: Aggregation = "simple"
    ignore_labels: Sequence[str] = ("O",)

    def __post_init__(self) -> None:
        if self.aggregation not in get_args(Aggregation):
            allowed = f"It is {', '.join(get_args(Aggregation))}."
            raise BadInput(f"aggregation={self.aggregation!r}.", allowed=allowed, param="aggregation")
        if isinstance(self.ignore_labels, str):
            raise BadInput("ignore_labels is a text.", allowed="It is a list of labels.", param="ignore_labels")


@dataclass(frozen=True)
class Plan:
    """What runs for some texts: each is one sequence, or several windows of one that is longer than the model.

    Args:
        texts: What is looked through.
        located: Their tokens.
        windows: For each sequence the position of its text, and of its tokens among the text's.
        options: How tokens become entities.
    """

    texts: Sequence[str]
    located: Sequence[Located]
    windows: Sequence[tuple[int, IntArray]]
    options: Options

    @property
    def inputs(self) -> list[Tokens]:
        """What the model reads."""
        return [Tokens(self.located[text].ids[at]) for text, at in self.windows]

    @property
    def text_of_window(self) -> list[int]:
        """For each input of the model the position of its text."""
        return [text for text, _ in self.windows]

    def encoded(self) -> list[Encoded]:
        """For each text all that the model reads of it."""
        read: list[list[IntArray]] = [[] for _ in self.texts]
        for text, at in self.windows:
            read[text].append(at)
        found = []
        for located, parts in zip(self.located, read, strict=True):
            at = np.concatenate(parts)
            num_cut = len(located.ids) - len(np.unique(at))
            found.append(Encoded(located.ids[at], num_cut=num_cut))
        return found


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Tokens that have one label together: a token, a word, or an entity.

    Args:
        row_L: Probabilities of the labels.
        continues: Whether it goes on with the word before it.
    """

    tokens: tuple[str, ...]
    row_L: FloatArray
    start: int
    end: int
    index: int
    continues: bool = False

    @property
    def best(self) -> int:
        """Position of the likeliest label."""
        return int(self.row_L.argmax())

    @property
    def score(self) -> float:
        """Its probability."""
        return float(self.row_L.max())


def check(recipe: Recipe) -> tuple[str, ...]:
    """The labels of a checkpoint that labels tokens.

    Raises:
        UnsupportedTask: It does not.
    """
    classifier = recipe.classifier
    if classifier is None or classifier.head != "token" or classifier.step_tag_id is not None:
        raise UnsupportedTask(
            f"{recipe.name} finds no entities.",
            allowed="A *ForTokenClassification does.",
            fix=f"Name such a checkpoint, or read this one as {' or '.join(recipe.tasks)}.",
            param="model",
        )
    return classifier.labels


def plan(
    recipe: Recipe, tokenizer: Tokenizer, texts: Any, options: Options, length: Length, special: bool = True
) -> Plan:
    """Tokenise texts, and lay windows over those that are longer than the model.

    Args:
        length: With `chunk`, a longer text is read in windows that share `overlap` tokens.
        special: Whether the tokenizer adds its special tokens.

    Raises:
        UnsupportedTask: The checkpoint labels no tokens.
        BadInput: Something is no text, tokens are to be given one by one out of windows, or the tokenizer does not
            know where its tokens are.
        TooLong: A text is longer than the model and is to be refused.
    """
    check(recipe)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            what = f"Input {index} is of type {type(text).__name__}."
            raise BadInput(what, allowed="Entities are found in texts.", param="inputs", index=index)
    if length.on_long == "chunk" and options.aggregation == "none":
        what = "A text is to be read in windows, and aggregation='none' gives out every token of each."
        raise BadInput(what, allowed="Windows are joined by entities.", fix="Aggregate them.", param="stride")
    located = tokenizer.locate(texts, special, recipe.name)
    chunked = length.on_long == "chunk"
    limit = recipe.max_len if length.limit is None or chunked else min(length.limit, recipe.max_len)
    if length.on_long == "refuse":
        chunks.refuse_long([len(item.ids) for item in located], limit, recipe.name)
    windows = []
    for index, item in enumerate(located):
        if chunked:
            chunks.check_whole(Encoded(item.ids), length.limit, index, recipe.name)
        overlap = recipe.chunk_overlap if length.overlap is None else length.overlap
        windows += [(index, at) for at in _windows(item, limit, length, overlap, index, recipe.name)]
    return Plan(texts, located, windows, options)


def _windows(item: Located, limit: int, length: Length, overlap: int, index: int, name: str) -> list[IntArray]:
    """Positions of the tokens that the model reads at once: all, those left by a cut, or window by window."""
    places = np.arange(len(item.ids), dtype=np.int32)
    num_over = len(places) - limit
    if num_over <= 0:
        return [places]
    own = np.flatnonzero(~item.special)
    if not len(own) or len(own) <= num_over:
        raise chunks.no_room(index, limit, name)
    before, after = int(own[0]), len(places) - 1 - int(own[-1])
    if length.on_long == "chunk":
        pieces = chunks.split(Encoded(places), before, after, limit, overlap).chunks
        return [piece.encoded.ids for piece in pieces]
    gone = own[-num_over:] if length.side == "right" else own[:num_over]
    return [np.delete(places, gone)]


def finish(
    recipe: Recipe, tokenizer: Tokenizer, planned: Plan, rows: Sequence[FloatArray] | FloatArray
) -> list[list[Entity]]:
    """The entities of each text, in its order.

    Args:
        rows: Logits of the tokens of each window, `[n, L]`.
    """
    labels = check(recipe)
    found: list[list[Entity]] = [[] for _ in planned.texts]
    counts = [0] * len(planned.texts)
    for (text, at), row_TL in zip(planned.windows, rows, strict=True):
        item, options = planned.located[text], planned.options
        probabilities_TL = np.asarray(apply(row_TL, "softmax"), np.float32)
        stretches = _stretches(planned.texts[text], item, at, probabilities_TL, tokenizer)
        entities = _entities(stretches, labels, options.aggregation, tokenizer)
        found[text] += [entity for entity in entities if entity.label not in options.ignore_labels]
        counts[text] += 1
    return [_merged(entities) if count > 1 else entities for entities, count in zip(found, counts, strict=True)]


def _stretches(text: str, item: Located, at: IntArray, row_TL: FloatArray, tokenizer: Tokenizer) -> list[_Stretch]:
    """The tokens of a window, special ones left out."""
    spans = _whole_characters(text, item)
    found: list[_Stretch] = []
    for index, place in enumerate(at.tolist()):
        if item.special[place]:
            continue
        start, end = spans[place]
        unknown = item.ids[place] == tokenizer.unknown_id
        token = text[start:end] if unknown else item.tokens[place]
        stretch = _Stretch((token,), row_TL[index], start, end, index)
        if found and not unknown:
            told = item.continues
            joined = bool(told[place]) if told is not None else _goes_on(text, found[-1], stretch, tokenizer)
            stretch = replace(stretch, continues=joined)
        found.append(stretch)
    return found


def _whole_characters(text: str, item: Located) -> list[tuple[int, int]]:
    """Where tokens stand; marks that a normaliser took away or composed belong to the token before them."""
    spans: list[tuple[int, int]] = item.spans.tolist()
    if text.isascii():
        return spans
    own = np.flatnonzero(~item.special).tolist()
    for place, following in zip(own, [*own[1:], None], strict=True):
        start, end = spans[place]
        stop = len(text) if following is None else spans[following][0]
        while start < end < stop and unicodedata.category(text[end]).startswith("M"):
            end += 1
        spans[place] = start, end
    return spans


def _goes_on(text: str, before: _Stretch, this: _Stretch, tokenizer: Tokenizer) -> bool:
    """Whether a token goes on with the word of the one before, where the vocabulary does not tell.

    Words are what spaces part, and a character that is several tokens is one word.
    """
    if this.start < before.end and tokenizer.join(before.tokens).endswith(_SPLIT):
        return True
    return this.start > 0 and not any(char.isspace() for char in text[this.start - 1 : this.start + 1])


def _entities(
    stretches: Sequence[_Stretch], labels: Sequence[str], how: Aggregation, tokenizer: Tokenizer
) -> list[Entity]:
    if how == "none":
        return [Entity(labels[one.best], one.score, one.tokens[0], one.start, one.end, one.index) for one in stretches]
    if how != "simple":
        stretches = _words(stretches, how)
    groups: list[list[_Stretch]] = []
    last = ""
    for one in stretches:
        begins, tag = _tag(labels[one.best])
        if groups and tag == last and not begins:
            groups[-1].append(one)
        else:
            groups.append([one])
        last = tag
    return [_entity(group, labels, tokenizer) for group in groups]


def _words(stretches: Sequence[_Stretch], how: Aggregation) -> list[_Stretch]:
    """Each word as one stretch."""
    words: list[list[_Stretch]] = []
    for one in stretches:
        if words and one.continues:
            words[-1].append(one)
        else:
            words.append([one])
    found = []
    for word in words:
        rows = np.stack([one.row_L for one in word])
        rows = {"first": rows[:1], "average": rows, "max": rows[[rows.max(axis=1).argmax()]]}[how]
        tokens = tuple(token for one in word for token in one.tokens)
        found.append(replace(word[0], tokens=tokens, row_L=rows.mean(axis=0), end=word[-1].end))
    return found


def _tag(label: str) -> tuple[bool, str]:
    """Whether a label begins an entity, and the label without its prefix; one without a prefix continues."""
    return label.startswith("B-"), label[2:] if label.startswith(("B-", "I-")) else label


def _entity(group: Sequence[_Stretch], labels: Sequence[str], tokenizer: Tokenizer) -> Entity:
    # The label is cut after its first hyphen, whatever stands before it, as the reference does.
    label = labels[group[0].best].split("-", 1)[-1]
    score = float(np.mean([one.score for one in group], dtype=np.float32))
    word = tokenizer.join([token for one in group for token in one.tokens])
    return Entity(label, score, word, group[0].start, group[-1].end)


def _merged(entities: Sequence[Entity]) -> list[Entity]:
    """Entities of overlapping windows: of two that overlap the longer one stays, of equally long ones the surer."""
    merged: list[Entity] = []
    for entity in sorted(entities, key=lambda one: one.start):
        last = merged[-1] if merged else None
        if last is None or not last.start <= entity.start < last.end:
            merged.append(entity)
        elif (entity.end - entity.start, entity.score) > (last.end - last.start, last.score):
            merged[-1] = entity
    return merged
