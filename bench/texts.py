"""The workloads: real English prose that every Python carries, the topics of `pydoc_data`.

They differ between minor versions of Python, so a result names the digest of its texts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pydoc_data.topics import topics
from typing import TypeAlias

CountTokens: TypeAlias = Callable[[Sequence[str]], list[int]]
"""Texts -> the number of tokens of each, special tokens included."""

SHORT_TOKENS = (6, 24)
PARAGRAPH_TOKENS = (128, 250)

_BLANK_LINE = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z\"(])")
_HEADING_RULE = re.compile(r"^[*=~^-]{3,}\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Workload:
    """Texts of one kind.

    Args:
        name: `short` or `paragraphs`.
        texts: The texts, in a fixed order.
        num_tokens: Tokens of each text under the model's tokenizer, special tokens included.
    """

    name: str
    texts: tuple[str, ...]
    num_tokens: tuple[int, ...]

    @property
    def total_tokens(self) -> int:
        return sum(self.num_tokens)

    @property
    def digest(self) -> str:
        """First 16 hexadecimal digits of the sha256 of the texts."""
        return hashlib.sha256("\0".join(self.texts).encode()).hexdigest()[:16]

    def describe(self) -> str:
        """One line: how many texts, and their lengths in tokens."""
        mean = self.total_tokens / len(self.texts)
        span = f"{min(self.num_tokens)}-{max(self.num_tokens)}"
        return f"{self.name}: {len(self.texts):,} texts, {mean:.1f} tokens on average ({span}), digest {self.digest}"


def build(name: str, num_texts: int, count: CountTokens, source: Mapping[str, str] = topics) -> Workload:
    """Choose `num_texts` texts of the workload `name`, spread evenly over all that qualify.

    Raises:
        ValueError: Fewer texts qualify, or there is no workload of that name.
    """
    makers = {"short": _short, "paragraphs": _paragraphs}
    if name not in makers:
        raise ValueError(f"no workload {name!r}; there are {', '.join(makers)}")
    chosen = makers[name](count, source)
    if len(chosen) < num_texts:
        raise ValueError(f"{name}: {num_texts} texts were asked for and {len(chosen)} qualify; ask for fewer")
    # Evenly spaced, since neighbours come from one topic and share their vocabulary.
    picked = [chosen[i * len(chosen) // num_texts] for i in range(num_texts)]
    return Workload(name, tuple(picked), tuple(count(picked)))


def _short(count: CountTokens, source: Mapping[str, str]) -> list[str]:
    sentences = list(
        dict.fromkeys(s for block in _blocks(source) for s in _SENTENCE_END.split(" ".join(block.split())))
    )
    low, high = SHORT_TOKENS
    return [s for s, n in zip(sentences, count(sentences), strict=True) if low <= n <= high]


def _paragraphs(count: CountTokens, source: Mapping[str, str]) -> list[str]:
    """Blocks of one topic, joined until they are long enough; those past the upper bound are left out."""
    low, high = PARAGRAPH_TOKENS
    found: list[str] = []
    for topic in sorted(source):
        blocks = [" ".join(block.split()) for block in _blocks({topic: source[topic]})]
        for paragraph in _joined(blocks, count(blocks), low):
            if low <= count([paragraph])[0] <= high:
                found.append(paragraph)
    return list(dict.fromkeys(found))


def _joined(blocks: Sequence[str], lengths: Sequence[int], least: int) -> Iterator[str]:
    parts: list[str] = []
    total = 0
    for block, length in zip(blocks, lengths, strict=True):
        parts.append(block)
        total += length
        if total >= least:
            yield " ".join(parts)
            parts, total = [], 0


def _blocks(source: Mapping[str, str]) -> Iterator[str]:
    """Blocks between blank lines, without headings, in the order of the topics' names."""
    for topic in sorted(source):
        for block in _BLANK_LINE.split(source[topic]):
            if block.strip() and not _HEADING_RULE.search(block):
                yield block
