"""What is asked: texts as JSON strings, made so cheaply that making them does not disturb what is measured."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pydoc_data.topics import topics
from typing import Protocol

import numpy as np
import orjson

from ..errors import BadInput, ConfigError

_SPACE = ord(" ")
_MOST_CHARS = 24


class Texts(Protocol):
    """Texts without end, the same ones for the same seed."""

    def draw(self, count: int) -> list[bytes]:
        """The next `count` texts, each a string of JSON with its quotation marks."""

    def described(self) -> str:
        """What they are, in a few words."""


class Prose:
    """Stretches of English prose, the manual that every Python carries, from places chosen at random.

    Args:
        fewest, most: How many words a text has; each number between is as likely.
        seed: Decides places and lengths.

    Raises:
        ConfigError: There are no such lengths.
    """

    def __init__(self, fewest: int, most: int, seed: int) -> None:
        # Encoded once as a whole: what lies between two spaces is then a piece of a JSON string by itself.
        self._json = orjson.dumps(" ".join(words()))[1:-1]
        spaces = np.flatnonzero(np.frombuffer(self._json, np.uint8) == _SPACE)
        self._starts: list[int] = [0, *(spaces + 1).tolist()]
        if not 1 <= fewest <= most <= len(self._starts) // 2:
            raise ConfigError(
                f"Texts of {fewest} to {most} words.",
                allowed=f"The prose gives texts of 1 to {len(self._starts) // 2:,} words.",
                param="--words",
            )
        self._fewest, self._most = fewest, most
        self._random = random.Random(seed)

    def draw(self, count: int) -> list[bytes]:
        """See `Texts`."""
        return [self._one() for _ in range(count)]

    def _one(self) -> bytes:
        num_words = self._random.randint(self._fewest, self._most)
        first = self._random.randrange(len(self._starts) - num_words)
        return b'"%b"' % self._json[self._starts[first] : self._starts[first + num_words] - 1]

    def described(self) -> str:
        """See `Texts`."""
        span = f"{self._fewest}" if self._fewest == self._most else f"{self._fewest} to {self._most}"
        return f"English prose, {span} words a text"


def words() -> list[str]:
    """All words of the manual, without the rules of its tables, of which each would be many tokens."""
    found = (word for name in sorted(topics) for word in topics[name].split())
    return [word for word in found if any(map(str.isalnum, word)) and len(word) <= _MOST_CHARS]


class Listed:
    """Given texts in an order chosen at random, all of them before any comes again.

    Args:
        texts: One or more.
        source: Where they are from.
        seed: Decides the order.

    Raises:
        BadInput: There are none.
    """

    def __init__(self, texts: Sequence[str], source: str, seed: int) -> None:
        if not texts:
            raise BadInput(f"{source} has no texts.", allowed="One or more.", param="--input")
        self._texts = [orjson.dumps(text) for text in texts]
        self._source = source
        random.Random(seed).shuffle(self._texts)
        self._next = 0

    def draw(self, count: int) -> list[bytes]:
        """See `Texts`."""
        first, self._next = self._next, (self._next + count) % len(self._texts)
        return [self._texts[(first + place) % len(self._texts)] for place in range(count)]

    def described(self) -> str:
        """See `Texts`."""
        return f"{len(self._texts):,} texts of {self._source}"
