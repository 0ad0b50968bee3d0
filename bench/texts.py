"""The workloads: real English prose that every Python carries, the topics of `pydoc_data`.

They differ between minor versions of Python, so a result names the digest of its texts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from random import Random
from typing import TypeAlias

from .subjects import Task

CountTokens: TypeAlias = Callable[[Sequence[str | tuple[str, str]]], list[int]]
"""Texts or pairs of texts -> the number of tokens of each, special tokens included."""

SHORT_TOKENS = (6, 24)
PARAGRAPH_TOKENS = (128, 250)
DOCUMENT_TOKENS = 120
"""Of a document to rank, without special tokens."""

QUERY = "How do I define a class whose instances can be compared with each other?"
"""What the documents are ranked by."""

TASKS: dict[str, Task] = {"short": "embed", "paragraphs": "embed", "rerank": "rerank"}
"""Workloads of the comparison with peers -> what a model is asked for."""

_BLANK_LINE = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z\"(])")
_HEADING_RULE = re.compile(r"^[*=~^-]{3,}\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Workload:
    """Texts of one kind.

    Args:
        name: What tables call it.
        texts: The texts, in a fixed order.
        num_tokens: Tokens of each text, or of its pair with the query, under the model's tokenizer, special tokens
            included.
        query: What the texts are ranked by, None where they are embedded.
    """

    name: str
    texts: tuple[str, ...]
    num_tokens: tuple[int, ...]
    query: str | None = None

    @property
    def task(self) -> Task:
        """What a model is asked for."""
        return "embed" if self.query is None else "rerank"

    @property
    def total_tokens(self) -> int:
        return sum(self.num_tokens)

    @property
    def digest(self) -> str:
        """First 16 hexadecimal digits of the sha256 of the texts, after the query if there is one."""
        texts = self.texts if self.query is None else (self.query, *self.texts)
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]

    def describe(self) -> str:
        """One line: how many texts or pairs, and their lengths in tokens."""
        count, of = f"{len(self.texts):,} texts", ""
        if self.query is not None:
            count, of = f"1 query x {len(self.texts):,} documents", " per pair"
        mean = self.total_tokens / len(self.texts)
        span = f"{min(self.num_tokens)}-{max(self.num_tokens)}"
        return f"{self.name}: {count}, {mean:.1f} tokens{of} on average ({span}), digest {self.digest}"


def build(name: str, num_texts: int, count: CountTokens, source: Mapping[str, str] = topics) -> Workload:
    """Choose `num_texts` texts of the workload `name`, spread evenly over all that qualify.

    Raises:
        ValueError: Fewer texts qualify, or there is no workload of that name.
    """
    if name not in TASKS:
        raise ValueError(f"no workload {name!r}; there are {', '.join(TASKS)}")
    if name == "rerank":
        (num_special,) = count([""])
        return ranked(name, QUERY, exact(DOCUMENT_TOKENS + num_special, num_texts, count, source), count)
    chosen = (_short if name == "short" else _paragraphs)(count, source)
    return embedded(name, _spread(chosen, num_texts, name), count)


def embedded(name: str, texts: Sequence[str], count: CountTokens) -> Workload:
    """The workload `name`: a vector of each of the texts."""
    return Workload(name, tuple(texts), tuple(count(texts)))


def ranked(name: str, query: str, documents: Sequence[str], count: CountTokens) -> Workload:
    """The workload `name`: a score of each of the documents with the query."""
    return Workload(name, tuple(documents), tuple(count([(query, document) for document in documents])), query)


def exact(num_tokens: int, num_texts: int, count: CountTokens, source: Mapping[str, str] = topics) -> tuple[str, ...]:
    """Words of one topic in a row, cut where they have `num_tokens`, special ones included; distinct texts.

    Runs in which no word ends there are left out, and the texts are spread evenly over the others.

    Raises:
        ValueError: There are fewer.
    """
    (num_special,) = count([""])
    found: list[str] = []
    for topic in sorted(source):
        words = [word for block in _blocks({topic: source[topic]}) for word in block.split()]
        lengths = [n - num_special for n in count(words)]
        found += _joined(words, lengths, num_tokens - num_special)
    counted = zip(found, count(found), strict=True)
    fitting = list(dict.fromkeys(text for text, n in counted if n == num_tokens))
    return _spread(fitting, num_texts, f"of {num_tokens} tokens")


def random_words(words: Sequence[str], lengths: Iterable[int], seed: int) -> list[str]:
    """A text of so many random words for each of the lengths."""
    random = Random(seed)
    return [" ".join(random.choices(words, k=length)) for length in lengths]


def single_token_words(tokenizer: Path) -> list[str]:
    """Words of letters that are one token each in the WordPiece vocabulary `vocab.txt` of a tokenizer's folder."""
    words = (tokenizer / "vocab.txt").read_text(encoding="utf-8").split("\n")
    return [word for word in words if len(word) > 2 and word.isascii() and word.isalpha()]


def token_counter(model: Path) -> CountTokens:
    """Counts tokens by the model's own tokenizer, without the truncation and padding that its file stores."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda texts: [len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts))]


def _spread(texts: Sequence[str], num_texts: int, name: str) -> tuple[str, ...]:
    """So many of the texts, evenly spaced, since neighbours come from one topic and share their vocabulary."""
    if len(texts) < num_texts:
        raise ValueError(f"{name}: {num_texts} texts were asked for and {len(texts)} qualify; ask for fewer")
    return tuple(texts[i * len(texts) // num_texts] for i in range(num_texts))


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
