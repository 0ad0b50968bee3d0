"""How a call is tokenised: in pieces, so that the model starts before its last text is read and calls take turns."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from .chunks import check_whole, refuse_long
from .errors import BadInput, CenoteError, NoInputs, TooLong
from .types import Encoded, FloatArray, Input, Length, Pair, ReadKey, Tokens

if TYPE_CHECKING:
    from .recipe import Recipe
    from .tasks import Task
    from .tokenizer import Tokenizer

MAX_INPUTS = 64
MAX_BYTES = 64 * 1024
_ADD_AT_ONCE = 128
_LET_IN_S = 1e-4
_BYTES_PER_TOKEN = 4
FEW_INPUTS = 32
FEW_BYTES = 512 * _BYTES_PER_TOKEN
_INPUT = re.compile(r"\b([Ii])nput (\d+)|\binputs(?= have)")  # as messages name them
_PLURAL = {"query": "queries"}

Named: TypeAlias = Callable[[int], tuple[int, str]]
"""Position of one input of a call -> the position that its caller knows, and the words for it."""


@dataclass(slots=True)
class Piece:
    """Consecutive inputs of a call after tokenising.

    Args:
        start: Position of the first one in the call.
        encoded: One per input, cut to the limit; None where the input has an error.
        errors: Position in the call -> what is wrong with that input.
    """

    start: int
    encoded: list[Encoded | None]
    errors: dict[int, CenoteError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reader:
    """How the inputs of one call become tokens.

    Args:
        key: How the hidden states of its inputs are read.
        recipe, tokenizer: Those of the route that its inputs take.
        length: What happens to inputs that are too long.
        keep_errors: Whether inputs with errors are noted and passed over; else the first one is raised.
    """

    task: Task
    key: ReadKey
    recipe: Recipe
    tokenizer: Tokenizer
    params: Any
    length: Length
    keep_errors: bool

    @classmethod
    def of(
        cls,
        task: Task,
        recipe: Recipe,
        tokenizers: Mapping[str, Tokenizer],
        params: Any,
        length: Length,
        keep_errors: bool,
    ) -> Reader:
        """The reader of a call with the options `params` to a model with these tokenizers, one for each route.

        Its `length` is as it counts for the task: only the vector of a text can be made of its pieces'.

        Raises:
            BadInput: The model has no route for what is asked.
        """
        key = task.read_key(recipe, params)
        if task.NAME != "embed" and length.on_long == "chunk":
            length = Length("refuse", length.side)
        elif task.NAME == "embed" and length.on_long == "refuse" and recipe.chunks and not length.explicit:
            length = replace(length, on_long="chunk")
        return cls(task, key, recipe.by_route[key.route], tokenizers[key.route], params, length, keep_errors)

    @property
    def limit(self) -> int:
        """Most tokens of what the model reads at once."""
        if self.length.on_long == "chunk":
            return self.recipe.max_len
        return min(self.length.limit or self.recipe.max_len, self.recipe.max_len)

    @property
    def refuses_call(self) -> bool:
        """Whether one input that is too long refuses the whole call."""
        return self.length.on_long == "refuse" and not self.keep_errors

    def estimate(self, inputs: Sequence[Input]) -> int:
        """About how many tokens `inputs` have, without tokenising them."""
        most = self.limit if self.length.on_long == "cut" else None
        counts = [_num_bytes(item) // _BYTES_PER_TOKEN + 1 for item in inputs]
        return sum(counts) if most is None else sum([min(count, most) for count in counts])

    def shape(self, rows: FloatArray) -> FloatArray:
        """Rows as the model gave them, with the options of the call applied."""
        return self.task.shape(self.recipe, rows, self.params)

    def read(self, start: int, inputs: Sequence[Input]) -> Piece:
        """Tokenise inputs `start`, ... of the call.

        Everything is cut to the limit; `Encoded.num_cut` tells what was too long, and whether that matters is decided
        once all lengths are known (`refuse_long_ones`), so that one message can name every offender.

        Raises:
            BadInput: An input is not allowed, and errors are not kept; it names the position in the call.
        """
        try:
            piece = Piece(start, list(self._encode(inputs)))
        except BadInput as error:
            if not self.keep_errors:
                raise error if error.index is None else moved(error, start + error.index) from error
            piece = self._read_singly(start, inputs)
        if self.length.on_long == "refuse" and self.keep_errors:
            self._note_long_ones(piece)
        return piece

    def refuse_long_ones(self, encoded: Sequence[Encoded | None]) -> None:
        """Raise `TooLong` naming all inputs of the call that were cut, if there are any."""
        if any(item is not None and _is_too_long(item) for item in encoded):
            uncounted = {index for index, item in enumerate(encoded) if item is not None and not item.counted}
            lengths = [_full_length(item) for item in encoded]
            refuse_long(lengths, self.limit, self.recipe.name, uncounted=uncounted)

    def _encode(self, inputs: Sequence[Input]) -> list[Encoded]:
        chunks = self.length.on_long == "chunk"
        length = replace(self.length, on_long="chunk" if chunks else "cut", limit=self.limit)
        encoded = self.task.encode(self.recipe, self.tokenizer, inputs, self.params, length)
        if chunks:
            for index, item in enumerate(encoded):
                check_whole(item, self.length.limit, index, self.recipe.name)
        return encoded

    def _read_singly(self, start: int, inputs: Sequence[Input]) -> Piece:
        piece = Piece(start, [None] * len(inputs))
        for offset, item in enumerate(inputs):
            try:
                (piece.encoded[offset],) = self._encode([item])
            except BadInput as error:
                piece.errors[start + offset] = moved(error, start + offset)
        return piece

    def _note_long_ones(self, piece: Piece) -> None:
        for offset, item in enumerate(piece.encoded):
            if item is None or not _is_too_long(item):
                continue
            try:
                uncounted = () if item.counted else (0,)
                refuse_long([_full_length(item)], self.limit, self.recipe.name, uncounted=uncounted)
            except TooLong as error:
                piece.errors[piece.start + offset] = moved(error, piece.start + offset)
                piece.encoded[offset] = None


def refuse_none(inputs: Sequence[Input]) -> None:
    """Raise `NoInputs` where there are none."""
    if len(inputs) == 0:
        raise NoInputs("The call has no inputs.", allowed="It takes one or more.", param="inputs")


def refuse_large(num_tokens: int, num_inputs: int, most: int) -> None:
    """Raise `BadInput` where a call has more than `most` tokens by its estimate; 0 is no limit."""
    if most and num_tokens > most:
        raise BadInput(
            f"The call has about {num_tokens} tokens in {num_inputs} inputs.",
            allowed=f"max_call_tokens is {most}.",
            fix="Send fewer inputs at once.",
            param="inputs",
        )


def are_few(inputs: Sequence[Input]) -> bool:
    """Whether `inputs` are so few and short that reading and running them takes about as long as one small batch."""
    if len(inputs) > FEW_INPUTS:
        return False
    return sum(map(_num_bytes, inputs)) <= FEW_BYTES


def cut(inputs: Sequence[Input]) -> Iterator[slice]:
    """Where pieces of `inputs` begin and end: `MAX_INPUTS` each, fewer where they are long."""
    start = num_bytes = 0
    for stop, item in enumerate(inputs):
        if stop > start and (stop - start == MAX_INPUTS or num_bytes >= MAX_BYTES):
            yield slice(start, stop)
            start, num_bytes = stop, 0
        num_bytes += _num_bytes(item)
    yield slice(start, len(inputs))


def in_turns(num_inputs: int) -> Iterator[slice]:
    """Parts of a call that is read, each to be added under one hold of the lock, with a pause before the next.

    A thread that gives a lock back and asks for it at once has it again before those that wait for it.
    """
    for start in range(0, num_inputs, _ADD_AT_ONCE):
        if start:
            time.sleep(_LET_IN_S)
        yield slice(start, min(start + _ADD_AT_ONCE, num_inputs))


def moved(error: CenoteError, index: int) -> CenoteError:
    """The same error for the input at `index`; its message names the new position where it named the old one."""
    twin = _reworded(error, error.what.replace(f"nput {error.index}", f"nput {index}", 1), index)
    if isinstance(twin, TooLong):
        twin.offenders = (index,)
    return twin


def placed(error: CenoteError, named: Named, called: str = "input") -> CenoteError:
    """The same error in the words of a caller whose inputs are others than those of the call.

    Args:
        called: What the caller calls one of them, such as "query".
    """
    if error.index is None:
        return error

    def words(found: re.Match[str]) -> str:
        if found[2] is None:
            return _PLURAL.get(called, f"{called}s")
        _, name = named(int(found[2]))
        return name[0].upper() + name[1:] if found[1] == "I" else name

    twin = _reworded(error, _INPUT.sub(words, error.what), named(error.index)[0])
    if isinstance(twin, TooLong):
        twin.offenders = tuple(dict.fromkeys(named(offender)[0] for offender in twin.offenders))
    return twin


def _reworded(error: CenoteError, what: str, index: int) -> CenoteError:
    twin = copy.copy(error)
    twin.what, twin.index = what, index
    twin.args = (" ".join(part for part in (what, error.allowed, error.fix) if part),)
    twin.__cause__ = error.__cause__
    return twin


def _num_bytes(item: Input) -> int:
    if isinstance(item, str):
        # Beyond ASCII most text takes two or three bytes a character; counting them would mean encoding it.
        return len(item) if item.isascii() else 3 * len(item)
    if isinstance(item, Tokens):
        return _BYTES_PER_TOKEN * len(item.ids)
    if isinstance(item, Pair):
        return _num_bytes(item.text) + _num_bytes(item.text_pair)
    return _num_bytes(item.before) + _num_bytes(item.text) + _num_bytes(item.after)


def _is_too_long(item: Encoded) -> bool:
    return item.num_cut > 0 and not item.at_width


def _full_length(item: Encoded | None) -> int:
    return len(item.ids) + item.num_cut if item is not None and _is_too_long(item) else 0
