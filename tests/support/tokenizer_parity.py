"""Our tokenizer beside `AutoTokenizer`, and the inputs on which they are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer

from cenote.checkpoint import Checkpoint
from cenote.tokenizer import Tokenizer
from cenote.tokenizer_backends import Side
from cenote.types import Encoded, Input, Pair

NO_LIMIT = 1_000_000

TEXTS = (
    "",
    " ",
    "a",
    "The truth value of an object, and what it says about it.",
    "  two  spaces,\ttabs\nand lines \r\n ",
    "naïve café ÜNÏCÖDÉ ßtraße İstanbul ΟΔΟΣ",
    "東京に行く привет мир 안녕하세요 مرحبا",
    "🙂👩‍👩‍👧 e\u0301 \u200b\ufeff \x00 \ufffd ﬁ \uff21\uff42 ½",
    "[SEP] </s> <s> [CLS] <mask> <unk> <|endoftext|>",
    "x" * 150,
)

PAIRS = (
    ("what is a truth value", "The truth value of an object, and what it says about it."),
    ("The truth value of an object, and what it says about it.", "what"),
    ("one two three four five", "six seven eight nine ten"),
    ("", "something"),
    ("something", ""),
    ("東京 🙂", "ÜNÏCÖDÉ [SEP] </s>"),
)

Expected = tuple[list[int], list[int]]


class Both:
    """Our tokenizer and the reference, loaded from one folder."""

    def __init__(self, folder: Path) -> None:
        self.ours = Tokenizer.load(Checkpoint(folder.name, folder))
        self.reference: Any = AutoTokenizer.from_pretrained(folder)

    def expected(self, item: str | tuple[str, str], limit: int = NO_LIMIT, side: Side = "right") -> Expected:
        self.reference.truncation_side = side
        texts = [[text] for text in ((item,) if isinstance(item, str) else item)]
        rows = self.reference(*texts, truncation=True, max_length=limit)
        ids = rows["input_ids"][0]
        return ids, rows["token_type_ids"][0] if "token_type_ids" in rows else [0] * len(ids)

    def num_special(self, item: str | tuple[str, str]) -> int:
        return int(self.reference.num_special_tokens_to_add(isinstance(item, tuple)))


def as_input(item: str | tuple[str, str]) -> Input:
    return item if isinstance(item, str) else Pair(*item)


def plain(encoded: Encoded) -> Expected:
    """Ids and segment ids as lists, after a check of what holds for every result."""
    assert encoded.ids.dtype == np.int32
    if encoded.segments is None:
        return encoded.ids.tolist(), [0] * len(encoded.ids)
    assert encoded.segments.dtype == np.int32
    assert encoded.segments.any(), "all-zero segment ids are given as None"
    return encoded.ids.tolist(), encoded.segments.tolist()


def load(folder: Path, **options: Any) -> Tokenizer:
    return Tokenizer.load(Checkpoint(folder.name, folder), **options)
