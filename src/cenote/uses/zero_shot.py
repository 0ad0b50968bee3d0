"""Zero-shot classification: which of any labels a text entails, by a model of natural language inference.

Each label is put into a sentence, the hypothesis, and the model says whether the text entails it.
Source: Yin et al. 2019 (arXiv 1909.00161); the numbers are those of transformers' zero-shot-classification pipeline.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..activations import apply
from ..errors import BadInput, UnsupportedTask
from ..tasks import classify
from ..types import FloatArray, Pair

if TYPE_CHECKING:
    from ..recipe import Recipe

log = logging.getLogger(__name__)

TASK: Final = classify.NAME
OPTIONS: Final[Mapping[str, Any]] = {"use_activation": False, "only_first": True}
"""Options of the task: logits, and where a pair is too long the text gives and the hypothesis stays whole."""
TEMPLATE: Final = "This example is {}."


@dataclass(frozen=True)
class ZeroShot:
    """The labels of one text.

    Args:
        sequence: The text.
        labels: From likely to unlikely; equally likely ones in the order that was asked for.
        scores: Their probabilities: together 1, or each apart where several may hold.
    """

    sequence: str
    labels: list[str]
    scores: list[float]


@dataclass(frozen=True)
class Plan:
    """What runs for some texts.

    Args:
        texts: What is classified.
        labels: What they may be.
        hypotheses: A sentence with each label.
        multi_label: Whether several labels may hold.
        entailment, contradiction: Positions of these labels of the model.
    """

    texts: Sequence[str]
    labels: Sequence[str]
    hypotheses: Sequence[str]
    multi_label: bool
    entailment: int
    contradiction: int

    @property
    def pairs(self) -> list[Pair]:
        """What the model reads: for each text one pair with each hypothesis."""
        return [Pair(text, hypothesis) for text in self.texts for hypothesis in self.hypotheses]

    def named_at(self, pairs: Sequence[int]) -> Callable[[int], tuple[int, str]]:
        """What errors say of some pairs: for the number of one among `pairs` its text's position, and its words."""

        def named(number: int) -> tuple[int, str]:
            text, label = divmod(pairs[number], len(self.labels))
            return text, f"text {text} with the label {self.labels[label]!r}"

        return named


def plan(recipe: Recipe, texts: Any, labels: Any, multi_label: bool, template: Any) -> Plan:
    """Check what is asked for.

    Args:
        labels: A list, or a text with commas between them.
        template: Makes a sentence of a label, which it names `{}`.

    Raises:
        UnsupportedTask: The model is no classifier of pairs with an entailment among its labels.
        BadInput: There are no labels, or the template has no place for them.
    """
    entailment, contradiction = _entailment(recipe)
    labels = [part.strip() for part in labels.split(",") if part.strip()] if isinstance(labels, str) else labels
    if not isinstance(labels, Sequence) or not labels or not all(isinstance(label, str) for label in labels):
        what = f"The labels are {labels!r}."
        raise BadInput(what, allowed="At least one label, each a text.", param="candidate_labels")
    if not isinstance(template, str) or "{}" not in template:
        what = f"hypothesis_template={template!r} has no place for a label."
        raise BadInput(what, allowed="A sentence with {} where the label goes.", param="hypothesis_template")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            what = f"Input {index} is of type {type(text).__name__}."
            raise BadInput(what, allowed="Texts are classified.", param="inputs", index=index)
    hypotheses = [template.replace("{}", label) for label in labels]
    return Plan(texts, labels, hypotheses, multi_label, entailment, contradiction)


def finish(planned: Plan, rows_PL: Sequence[FloatArray] | FloatArray) -> list[ZeroShot]:
    """The labels of each text, from likely to unlikely.

    Args:
        rows_PL: Logits of the pairs, in their order.
    """
    return [_ranked(planned, text, row) for text, row in zip(planned.texts, scores(planned, rows_PL), strict=True)]


def scores(planned: Plan, rows_PL: Sequence[FloatArray] | FloatArray) -> FloatArray:
    """The probability of each label for each text, `[texts, labels]`, in the order of the labels."""
    num_labels = len(planned.labels)
    logits = np.asarray(rows_PL, np.float32).reshape(len(planned.texts), num_labels, -1)
    if planned.multi_label or num_labels == 1:
        both = apply(logits[..., [planned.contradiction, planned.entailment]], "softmax")
        return np.asarray(both[..., 1], np.float32)
    return np.asarray(apply(logits[..., planned.entailment], "softmax"), np.float32)


def _ranked(planned: Plan, text: str, row: FloatArray) -> ZeroShot:
    order = np.argsort(-row, kind="stable")
    return ZeroShot(text, [planned.labels[at] for at in order], row[order].tolist())


def _entailment(recipe: Recipe) -> tuple[int, int]:
    """Positions of the labels that say that a text entails a hypothesis, and that it contradicts it."""
    classifier = recipe.classifier
    if classifier is None or classifier.head != "sequence" or len(classifier.labels) < 2:
        has = "no classifier of texts" if classifier is None or classifier.head != "sequence" else "one label"
        raise UnsupportedTask(
            f"{recipe.name} has {has}, and zero-shot classification asks whether a text entails a hypothesis.",
            allowed="Models of natural language inference (NLI), which have a label for entailment and others.",
            fix="Name such a checkpoint; to rank texts by a query, call score or rerank.",
            param="model",
        )
    found = [at for at, label in enumerate(classifier.labels) if label.lower().startswith("entail")]
    if not found:
        _say_unnamed(recipe.name, classifier.labels)
    entailment = found[0] if found else len(classifier.labels) - 1
    return entailment, len(classifier.labels) - 1 if entailment == 0 else 0


@functools.cache
def _say_unnamed(name: str, labels: Sequence[str]) -> None:
    """Once for each model: what it says of hypotheses may mean something else."""
    log.warning("%s has the labels %s, none of which begins with 'entail'; the last is taken for it.", name, labels)
