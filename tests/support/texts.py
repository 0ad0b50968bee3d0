"""Real English text from the standard library, and the texts that break tokenizers; the same on every run."""

from __future__ import annotations

import functools
import pydoc_data.topics
import re

SHORT_CHARS = range(20, 161)
PARAGRAPH_CHARS = 600


@functools.cache
def corpus() -> str:
    """The language reference as `pydoc` carries it: about 465,000 characters of prose and code."""
    topics: dict[str, str] = pydoc_data.topics.topics
    return "\n\n".join(topics[name] for name in sorted(topics))


@functools.cache
def _sentences() -> tuple[str, ...]:
    blocks = (" ".join(block.split()) for block in corpus().split("\n\n"))
    sentences = (sentence for block in blocks for sentence in re.split(r"(?<=[.!?])\s+", block))
    return tuple(dict.fromkeys(sentence for sentence in sentences if re.match(r"[A-Z].*\w", sentence)))


@functools.cache
def _paragraphs() -> tuple[str, ...]:
    paragraphs: list[str] = []
    parts: list[str] = []
    for sentence in _sentences():
        parts.append(sentence)
        if sum(map(len, parts)) >= PARAGRAPH_CHARS:
            paragraphs.append(" ".join(parts))
            parts = []
    return tuple(paragraphs)


def short_texts(n: int) -> list[str]:
    """`n` different sentences of 20 to 160 characters, spread over the whole corpus.

    Raises:
        ValueError: There are not so many.
    """
    return _spread([sentence for sentence in _sentences() if len(sentence) in SHORT_CHARS], n)


def paragraphs(n: int) -> list[str]:
    """`n` different runs of sentences of 600 characters or a little more, spread over the whole corpus.

    Raises:
        ValueError: There are not so many.
    """
    return _spread(_paragraphs(), n)


def _spread(pool: list[str] | tuple[str, ...], n: int) -> list[str]:
    if n > len(pool):
        raise ValueError(f"{n} texts were asked for and {len(pool)} exist; ask for fewer.")
    return [pool[i * len(pool) // n] for i in range(n)]


def edge_texts() -> list[str]:
    """Texts that go wrong where code assumes plain English: empty, blank, emoji, CJK, combining marks, controls, long.

    The last one is far longer than any tiny model reads.
    """
    return [
        "",
        " ",
        "\n\t  \r\n",
        "a",
        ".",
        "\N{FAMILY}\N{ZERO WIDTH JOINER}\N{WOMAN} \N{REGIONAL INDICATOR SYMBOL LETTER D}"
        "\N{REGIONAL INDICATOR SYMBOL LETTER E} \N{THUMBS UP SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-5}",
        "東京都に住んでいます。你好、世界。 안녕하세요",
        "e\N{COMBINING ACUTE ACCENT} \N{LATIN SMALL LETTER E WITH ACUTE} Z\N{COMBINING DIAERESIS}\N{COMBINING CEDILLA}",
        "İstanbul \N{LATIN SMALL LETTER DOTLESS I}s naïve \N{LATIN SMALL LIGATURE FFI}",
        "\N{FULLWIDTH LATIN CAPITAL LETTER A}\N{SUPERSCRIPT TWO} ß ẞ \N{GREEK SMALL LETTER FINAL SIGMA}",
        "مرحبا بالعالم שלום עולם हिन्दी ไทย",
        "zero\N{ZERO WIDTH SPACE}width\N{NO-BREAK SPACE}non\N{SOFT HYPHEN}break\ufeff\x00\x07end",
        "UPPER lower MiXeD  two  spaces\ttab\nline",
        "[CLS] [SEP] [MASK] [PAD] <s> </s> <pad> <mask> <unk>",
        "x" * 300,
        "http://example.com/a?b=c&d=%20#e user@example.com 3.14159e-10 C:\\dir\\file.txt",
        " ".join(_paragraphs()[:8]),
    ]
