"""Scores that are mixed of three: by vectors of texts, by sparse vectors and by vectors of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..errors import BadInput
from ..tasks import hybrid
from .similarity import SIMILARITIES, mean_max_sim, of_sparse

_NUM_PARTS: Final = 3


def weights(how: str, given: Any) -> Sequence[float] | None:
    """What a request gives as the weights of the parts of a score; None for equal ones.

    Args:
        how: The kind of score.

    Raises:
        BadInput: The score has no parts, or these are no weights of three.
    """
    if given is None:
        return None
    if how != "hybrid":
        raise BadInput(f"weights was given, but the score is that of a {how}.", fix="Leave it out.", param="weights")
    numbers = [float(one) for one in given if isinstance(one, (int, float)) and not isinstance(one, bool) and one >= 0]
    if len(numbers) != _NUM_PARTS or len(given) != _NUM_PARTS or not 0 < sum(numbers) < float("inf"):
        allowed = "Three numbers of at least 0, not all 0: of dense, sparse and token vectors."
        raise BadInput(f"weights={given!r}.", allowed=allowed, param="weights")
    return numbers


def mixed(query: hybrid.Parts, document: hybrid.Parts, weights: Sequence[float] | None) -> float:
    """The weighted mean of three scores, as the makers of BGE-M3 mix them."""
    parts = (
        float(SIMILARITIES["dot"](query.vector_E[None], document.vector_E[None])[0]),
        of_sparse(query.pairs_n2, document.pairs_n2, "dot"),
        mean_max_sim(query.tokens_ND, document.tokens_ND),
    )
    return float(np.average(parts, weights=weights))
