"""Rankings by a model that reads all documents in one prompt: jina-reranker-v3 (Wang et al. 2025, arXiv 2509.25085).

A token after each document, and one after the query that stands last, have vectors; a score is the cosine of two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadInput
from ..modules.late_interaction import LISTED
from ..types import FloatArray, Framed
from .similarity import cosine

if TYPE_CHECKING:
    from ..recipe import Recipe

_SYSTEM = (
    "You are a search relevance expert who can determine a ranking of the passages based on how relevant they are to "
    "the query. If the query is a question, how relevant a passage is depends on how well it answers the question. If "
    "not, try to analyze the intent of the query and assess how well each passage satisfies the intent. If an "
    "instruction is provided, you should follow the instruction when determining the ranking."
)


def serves(recipe: Recipe, how: str) -> bool:
    """Whether a query and all its documents are one prompt, where scores are of the kind `how`."""
    return how == "late-interaction" and recipe.late_interaction is not None and recipe.late_interaction.ranks_lists


def instruction(given: str | None, variables: Mapping[str, Any]) -> str | None:
    """What the model is to judge by; raises `BadInput` where there are other variables, which no prompt would show."""
    if others := sorted(set(variables) - {"instruction"}):
        raise BadInput(f"template_kwargs has {others}.", allowed="It has instruction.", param="template_kwargs")
    told: str | None = given or variables.get("instruction")
    return told


def prompt(query: str, documents: Sequence[str], told: str | None) -> Framed:
    """One query and its documents, as the model was trained to read them; never cut, for its last token is read.

    Source: the code of the checkpoint, which takes its two tokens out of texts too.
    """
    of_document, of_query = LISTED
    query, *documents = (_without(text, LISTED) for text in (query, *documents))
    passages = (
        f'<passage id="{number}">\n{document}{of_document}\n</passage>\n' for number, document in enumerate(documents)
    )
    judged_by = f"<instruct>\n{told}\n</instruct>\n" if told else ""
    whole = (
        f"<|im_start|>system\n{_SYSTEM}<|im_end|>\n<|im_start|>user\n"
        f"I will provide you with {len(documents)} passages, each indicated by a numerical identifier. "
        f"Rank the passages based on their relevance to query: {query}\n{judged_by}{''.join(passages)}"
        f"<query>\n{query}{of_query}\n</query><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    return Framed(whole, "", "", is_complete=True)


def scores(matrices: Sequence[FloatArray], first: Sequence[int], place: Sequence[int]) -> FloatArray:
    """Scores of pairs, float32 `[N]`.

    Args:
        matrices: Rows of each prompt: those of its documents, in order, then that of its query.
        first, place: For each pair its prompt, and which document of that it is.

    Raises:
        BadInput: A prompt lost some of its tokens.
    """
    for number, matrix in enumerate(matrices):
        asked = max((at for prompt, at in zip(first, place, strict=True) if prompt == number), default=-1)
        if len(matrix) < asked + 2:
            what = f"The prompt of query {number} has {len(matrix)} vectors, for {asked + 1} documents and a query."
            raise BadInput(what, fix="Send fewer or shorter documents, and nothing that splits them.", param="data_2")
    documents = [matrices[prompt][at] for prompt, at in zip(first, place, strict=True)]
    return cosine(np.stack(documents), np.stack([matrices[prompt][-1] for prompt in first]))


def _without(text: str, tokens: Sequence[str]) -> str:
    for token in tokens:
        text = text.replace(token, "")
    return text
