"""How much of a long text is enough, where only its first tokens are wanted.

Tokenising a whole document that is then cut to a few hundred tokens would cost as much as all that is thrown away. The
start of a text that ends before a space has the same tokens as the whole text has there, provided that no token of the
vocabulary reaches over such a space; `crosses_spaces` looks at every one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tokenizers import Encoding

if TYPE_CHECKING:
    from .tokenizer_backends import Coded, TextOrPair

CHARS_PER_TOKEN: Final = 8
"""How far into a text the first look goes, for each token that is wanted; prose has about 4.5."""
LEAST_CHARS: Final = 1024
"""Shorter texts are always tokenised whole."""
MARGIN: Final = 8
"""Tokens that a start must have beyond those that are wanted."""

_WORD_END = re.compile(r"(?<=\S) ")
# A space, and what sentencepiece and byte-level vocabularies write for one.
_MAY_CROSS = re.compile(r"[^ ▁Ġ][ ▁Ġ]")


def start_of(text: str, num_chars: int) -> str:
    """The start of `text` up to the first end of a word at or after `num_chars`; all of it where there is none."""
    if len(text) <= num_chars:
        return text
    end = _WORD_END.search(text, num_chars)
    return text if end is None else text[: end.start()]


def start_of_source(source: TextOrPair, num_chars: int) -> TextOrPair:
    """`source` itself, or a start of it; of a pair only of the one text that is long."""
    if isinstance(source, str):
        return start_of(source, num_chars)
    first, second = (start_of(text, num_chars) for text in source)
    # How two long texts share the room depends on which is the longer one, so both must be read.
    if (first is source[0]) == (second is source[1]):
        return source
    return first, second


def is_enough(source: TextOrPair, start: TextOrPair, row: Coded, most: int) -> bool:
    """Whether `row`, the tokens of `start`, begins with all that a cut to `most` tokens would leave of `source`."""
    if isinstance(start, str):
        return len(row.ids) >= most + MARGIN
    assert isinstance(row, Encoding)
    counts = row.sequence_ids.count(0), row.sequence_ids.count(1)
    long, other = counts if len(start[0]) < len(source[0]) else counts[::-1]
    return long >= max(most, other) + MARGIN


def crosses_spaces(vocabulary: Iterable[tuple[str, int]], decode: Callable[[list[int]], str]) -> bool:
    """Whether a token reaches over the space behind a word.

    Args:
        vocabulary: Spellings and ids of all tokens, added ones included.
        decode: Ids to the text they stand for; asked only about spellings that look as if they did.
    """
    return any(_WORD_END.search(decode([number])) for token, number in vocabulary if _MAY_CROSS.search(token))
