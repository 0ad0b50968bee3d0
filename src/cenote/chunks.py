"""Texts longer than the model: refused, or read in pieces whose rows become one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .errors import BadInput, TooLong
from .types import Chunk, Encoded, FloatArray, IntArray

_NAMED_OFFENDERS = 5


def refuse_long(lengths: Sequence[int], limit: int, model_name: str, *, uncounted: Collection[int] = ()) -> None:
    """Refuse a call if any of its inputs has more than `limit` tokens.

    Args:
        lengths: Tokens of each input of the call, in its order.
        uncounted: Positions of inputs that have more than that.
        limit: Most tokens of one input.
        model_name: The model's name, for the message.

    Raises:
        TooLong: Some are longer; it lists the positions of all of them.
    """
    offenders = [index for index, length in enumerate(lengths) if length > limit]
    if not offenders:
        return
    named = [
        f"input {index} has {'more than ' if index in uncounted else ''}{lengths[index]}"
        for index in offenders[:_NAMED_OFFENDERS]
    ]
    if len(offenders) > len(named):
        named.append(f"and {len(offenders) - len(named)} more")
    listed = ", ".join(named)
    if len(offenders) == 1:
        what = f"I{named[0][1:]} tokens, too many for {model_name}."
    else:
        what = f"{len(offenders)} of {len(lengths)} inputs have too many tokens for {model_name}: {listed}."
    raise TooLong(
        what,
        offenders=offenders,
        allowed=f"This model's maximum context length is {limit} tokens.",
        fix="Please reduce the length of the input prompt, or ask for it to be cut.",
    )


def no_room(index: int, limit: int, model_name: str) -> TooLong:
    """What is raised where the special tokens of an input alone are more than `limit`."""
    return TooLong(
        f"Input {index} cannot be cut to {limit} tokens.",
        offenders=[index],
        allowed=f"The special tokens that {model_name} needs, and what else stays whole, are more than that.",
        fix="Raise the limit.",
    )


@dataclass(frozen=True, slots=True)
class Frame:
    """Special tokens around a text, or a prompt: what each piece repeats.

    Args:
        before, after: Token ids.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def around(self, ids: IntArray) -> tuple[int, int]:
        """How many tokens of `ids` are this frame, before and after the text; none where it does not stand there."""
        num_before, num_after = len(self.before), len(self.after)
        inside = len(ids) - num_after
        stands = tuple(ids[:num_before]) == self.before and tuple(ids[inside:]) == self.after
        return (num_before, num_after) if stands and num_before <= inside else (0, 0)

    def put_around(self, ids: IntArray) -> IntArray:
        """`ids` inside this frame; as they are where it stands there already."""
        if any(self.around(ids)):
            return ids
        return np.array([*self.before, *ids, *self.after], np.int32)


def split(whole: Encoded, before: int, after: int, limit: int, overlap: int) -> Encoded:
    """The same input, with pieces of at most `limit` tokens where it has more.

    Args:
        before, after: Tokens at its start and end that each piece repeats.
        overlap: Tokens of its own that a piece shares with the one before.

    Raises:
        BadInput: Nothing of the text would fit in a piece beside what is repeated.
    """
    num_tokens, room = len(whole.ids), limit - before - after
    if num_tokens <= limit:
        return whole
    if not 0 <= overlap < room:
        raise BadInput(
            f"chunk_overlap={overlap}, and a piece has room for {room} tokens of the text.",
            allowed="The overlap is at least 0 and less than that room.",
            fix="Make it smaller.",
            param="chunk_overlap",
        )
    places = np.arange(num_tokens)
    head, own, tail = places[:before], places[before : num_tokens - after], places[num_tokens - after :]
    starts = range(0, max(len(own) - overlap, 1), room - overlap)
    chunks = tuple(_piece(whole, head, own[start : start + room], tail) for start in starts)
    return replace(whole, chunks=chunks)


def _piece(whole: Encoded, head: NDArray[np.intp], own: NDArray[np.intp], tail: NDArray[np.intp]) -> Chunk:
    at = np.concatenate([head, own, tail])
    segments = None if whole.segments is None else whole.segments[at]
    return Chunk(Encoded(whole.ids[at], segments, whole.skip), len(own))


def check_whole(encoded: Encoded, most: int | None, index: int, name: str) -> None:
    """Raise `TooLong` where all tokens of an input together are more than `most`."""
    if most is not None and len(encoded.ids) > most:
        raise TooLong(
            f"Input {index} has {len(encoded.ids)} tokens, too many for {name}, also in pieces.",
            offenders=[index],
            allowed=f"This model's maximum context length is {most} tokens.",
            fix="Please reduce the length of the input prompt, or ask for it to be cut.",
        )


def combined(
    rows: Sequence[FloatArray], weights: Sequence[int], shape: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """The mean of the pieces' finished rows, weighted by how many tokens of the text each has.

    Args:
        rows: Of the pieces, each `[E]` as the model gave it.
        shape: Finishes rows `[n, E]`; it will be applied to what is given back, too.

    Returns:
        `[E]`: what is missing behind finished rows that were cut is zero.
    """
    finished = shape(np.stack(rows))
    mean = np.zeros(rows[0].shape, np.float32)
    mean[: finished.shape[1]] = np.average(finished.astype(np.float64), axis=0, weights=np.asarray(weights))
    return mean
