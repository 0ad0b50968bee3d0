"""What makes ids: the `tokenizers` library, or a tokenizer of `transformers` written in Python."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from tokenizers import AddedToken, Encoding, Tokenizer, normalizers

from .errors import BadInput
from .tokenizer_starts import crosses_spaces
from .types import Located

Side: TypeAlias = Literal["left", "right"]
"""The end at which a too long input is cut."""

TextOrPair: TypeAlias = "str | tuple[str, str]"

_SHORT_CHARS = 2048
"""Characters of a batch up to which waking the library's own threads takes more processor time than they save."""


class Coded(Protocol):
    """One tokenised input, special tokens included."""

    @property
    def ids(self) -> list[int]: ...

    @property
    def type_ids(self) -> list[int]: ...


class Backend(Protocol):
    """What makes ids: `tokenizers`, or a tokenizer written in Python."""

    vocab_size: int
    special_ids: frozenset[int]

    @property
    def crosses_spaces(self) -> bool:
        """Whether the tokens of a text's start may depend on what comes after the next space."""

    def encode(self, batch: Sequence[TextOrPair], add_special_tokens: bool) -> Sequence[Coded]:
        """Tokenise without any limit."""

    def cut(
        self,
        item: TextOrPair,
        coded: Coded,
        limit: int,
        side: Side,
        add_special_tokens: bool,
        only_first: bool = False,
    ) -> Coded | None:
        """At most `limit` tokens of it, special tokens kept; None if those alone are more.

        Args:
            only_first: Only the first text of a pair gives; then None too where nothing of it would be left.
        """

    def cut_inside(
        self, text: str, inside: tuple[int, int], limit: int, side: Side, add_special_tokens: bool
    ) -> Coded | None:
        """At most `limit` tokens of `text`, those missing taken from the characters `inside`; None if that is not
        enough.
        """
        # Where it is not known where tokens stand: as many characters have at least as many tokens.
        before, body, after = text[: inside[0]], text[inside[0] : inside[1]], text[inside[1] :]
        while True:
            (row,) = self.encode([before + body + after], add_special_tokens)
            num_over = len(row.ids) - limit
            if num_over <= 0:
                return row
            if not body:
                return None
            body = body[:-num_over] if side == "right" else body[num_over:]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where each token of `text` starts and ends in it, in characters, without special tokens."""

    def locate(self, texts: Sequence[str], add_special_tokens: bool) -> list[Located]:
        """Tokens of whole texts and where each stands.

        Raises:
            BadInput: It does not know where its tokens are.
        """
        raise BadInput(
            "The tokenizer of this model does not know where its tokens are in a text.",
            fix="Save a tokenizer.json beside the model.",
        )

    def join(self, tokens: Sequence[str]) -> str:
        """The text that tokens, in the vocabulary's own spelling, stand for."""
        return " ".join(tokens)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str: ...

    def token(self, id: int) -> str: ...

    def id_of(self, token: str) -> int | None: ...


def _both(item: TextOrPair) -> tuple[str, str | None]:
    return (item, None) if isinstance(item, str) else item


def _is_short(batch: Sequence[TextOrPair]) -> bool:
    """Whether `batch` is one input, or so little that one thread had better read it."""
    return len(batch) == 1 or sum(len(text or "") for item in batch for text in _both(item)) <= _SHORT_CHARS


class FastBackend:
    """A tokenizer of the `tokenizers` library; never changed after this, so threads share it."""

    def __init__(self, tokenizer: Tokenizer, do_lower_case: bool = False, markers: Sequence[str] = ()) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.add_special_tokens(_split_markers(tokenizer, markers))
        if do_lower_case and not _lower_cases(tokenizer.normalizer):
            parts = [normalizers.Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer is not None else [])]
            tokenizer.normalizer = normalizers.Sequence(parts)
        self._tokenizer = tokenizer
        # Not the number of entries: a vocabulary may have holes.
        self.vocab_size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)

    @cached_property
    def crosses_spaces(self) -> bool:
        """As `Backend.crosses_spaces`; looks at the whole vocabulary, once, when the first long text comes."""
        vocabulary: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        return crosses_spaces(vocabulary.items(), lambda ids: self.decode(ids, False))

    def encode(self, batch: Sequence[TextOrPair], add_special_tokens: bool) -> Sequence[Encoding]:
        if _is_short(batch):
            return [self._tokenizer.encode(*_both(item), add_special_tokens=add_special_tokens) for item in batch]
        return self._tokenizer.encode_batch_fast(list(batch), add_special_tokens=add_special_tokens)

    def cut(
        self,
        item: TextOrPair,
        coded: Coded,
        limit: int,
        side: Side,
        add_special_tokens: bool,
        only_first: bool = False,
    ) -> Coded | None:
        # The encoding says which text each token came from (None: a special token), so the tokens to drop can be
        # dropped where they stand. `Encoding.truncate` would also build the rest, quadratically for a pair.
        assert isinstance(coded, Encoding)
        owners = coded.sequence_ids
        counts = owners.count(0), owners.count(1)
        kept = kept_of(*counts, limit - owners.count(None), only_first)
        if kept is None:
            return None
        ids, type_ids = coded.ids, coded.type_ids
        seen = [0, 0]
        keep: list[int] = []
        for position, owner in enumerate(owners):
            if owner is not None:
                rank = seen[owner]
                seen[owner] += 1
                first = 0 if side == "right" else counts[owner] - kept[owner]
                if not first <= rank < first + kept[owner]:
                    continue
            keep.append(position)
        return _Row([ids[p] for p in keep], [type_ids[p] for p in keep])

    def cut_inside(
        self, text: str, inside: tuple[int, int], limit: int, side: Side, add_special_tokens: bool
    ) -> Coded | None:
        # Unlike the batch of `encode`, this one says where each token stands.
        coded = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        first, last = inside
        gives = []
        for place, ((_, end), owner) in enumerate(zip(coded.offsets, coded.sequence_ids, strict=True)):
            # A space before a word stands in the word's own token.
            if owner is not None and first < end <= last:
                gives.append(place)
        num_over = max(0, len(coded.ids) - limit)
        if num_over > len(gives):
            return None
        gone = set(gives[len(gives) - num_over :] if side == "right" else gives[:num_over])
        keep = [place for place in range(len(coded.ids)) if place not in gone]
        return _Row([coded.ids[p] for p in keep], [coded.type_ids[p] for p in keep])

    def spans(self, text: str) -> list[tuple[int, int]]:
        """As `Backend.spans`."""
        spans: list[tuple[int, int]] = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return spans

    def locate(self, texts: Sequence[str], add_special_tokens: bool) -> list[Located]:
        """As `Backend.locate`."""
        # Unlike the batch of `encode`, this one says where each token stands.
        marks_words = bool(getattr(self._tokenizer.model, "continuing_subword_prefix", None))
        batch = self._tokenizer.encode_batch(list(texts), add_special_tokens=add_special_tokens)
        return [_located(coded, marks_words) for coded in batch]

    def join(self, tokens: Sequence[str]) -> str:
        """As `Backend.join`."""
        decoder = self._tokenizer.decoder
        return " ".join(tokens) if decoder is None else str(decoder.decode(list(tokens)))

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def id_of(self, token: str) -> int | None:
        """Number of a token, None where it is not in the vocabulary."""
        number: int | None = self._tokenizer.token_to_id(token)
        return number

    def token(self, id: int) -> str:
        return self._tokenizer.id_to_token(id) or ""


class SlowBackend(Backend):
    """A tokenizer of `transformers` written in Python; one thread at a time, as it keeps state."""

    # What its code does with a text is not known.
    crosses_spaces = True

    def __init__(self, tokenizer: Any, do_lower_case: bool = False) -> None:
        self._tokenizer = tokenizer
        self._do_lower_case = do_lower_case
        self._lock = threading.Lock()
        self.vocab_size = max(tokenizer.get_vocab().values(), default=-1) + 1
        self.special_ids = frozenset(tokenizer.all_special_ids)

    def encode(self, batch: Sequence[TextOrPair], add_special_tokens: bool) -> Sequence[Coded]:
        with self._lock:
            return [self._call(item, add_special_tokens=add_special_tokens) for item in batch]

    def cut(
        self,
        item: TextOrPair,
        coded: Coded,
        limit: int,
        side: Side,
        add_special_tokens: bool,
        only_first: bool = False,
    ) -> Coded | None:
        only_first = only_first and isinstance(item, tuple)
        with self._lock:
            if self._tokenizer.num_special_tokens_to_add(pair=isinstance(item, tuple)) * add_special_tokens > limit:
                return None
            self._tokenizer.truncation_side = side
            truncation = "only_first" if only_first else True
            row = self._call(item, add_special_tokens=add_special_tokens, truncation=truncation, max_length=limit)
            # Where the first text is too short to give enough, `transformers` cuts nothing.
            return row if len(row.ids) <= limit else None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """As `Backend.spans`.

        Raises:
            BadInput: Always: a slow tokenizer does not know where its tokens are.
        """
        raise BadInput(
            "max_tokens_per_query and max_tokens_per_doc cut texts between tokens, and the tokenizer of this model "
            "does not know where they are.",
            fix="Leave them out, or save a tokenizer.json beside the model.",
            param="max_tokens_per_doc",
        )

    def join(self, tokens: Sequence[str]) -> str:
        """As `Backend.join`."""
        with self._lock:
            return str(self._tokenizer.convert_tokens_to_string(list(tokens)))

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        with self._lock:
            return str(self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def id_of(self, token: str) -> int | None:
        """Number of a token, None where it is not in the vocabulary."""
        number: int | None = self._tokenizer.get_vocab().get(token)
        return number

    def token(self, id: int) -> str:
        with self._lock:
            return str(self._tokenizer.convert_ids_to_tokens(int(id)) or "")

    def _call(self, item: TextOrPair, **options: Any) -> _Row:
        texts: tuple[str, ...] = item if isinstance(item, tuple) else (item,)
        if self._do_lower_case:
            texts = tuple(text.lower() for text in texts)
        coded = self._tokenizer(*texts, return_token_type_ids=True, verbose=False, **options)
        return _Row(list(coded["input_ids"]), list(coded["token_type_ids"]))


@dataclass(frozen=True, slots=True)
class _Row:
    ids: list[int]
    type_ids: list[int]


def _located(coded: Encoding, marks_words: bool) -> Located:
    words = coded.word_ids
    same = [word is not None and word == before for word, before in zip(words, [None, *words], strict=False)]
    return Located(
        np.array(coded.ids, np.int32),
        coded.tokens,
        np.array(coded.offsets, np.int64).reshape(-1, 2),
        np.array(coded.special_tokens_mask, bool),
        np.array(same, bool) if marks_words else None,
    )


def kept_of(num_first: int, num_second: int, room: int, only_first: bool) -> tuple[int, int] | None:
    """How many tokens of each text of a pair stay when both together may have `room`; None where they cannot.

    Args:
        only_first: Whether the second text stays whole, and the first has at least one token; else as `share` says.
    """
    if only_first and num_second > 0:
        return (min(num_first, room - num_second), num_second) if num_second < room else None
    return share(num_first, num_second, room) if room >= 0 else None


def share(num_first: int, num_second: int, room: int) -> tuple[int, int]:
    """How many tokens of each text of a pair stay when both together may have `room`: the longer one gives first.

    The shorter text keeps at most half of the room (rounded down), the longer one takes the rest; of two texts of the
    same length the first counts as the shorter. This is `longest_first` of the `tokenizers` library.
    """
    if num_first + num_second <= room:
        return num_first, num_second
    shorter = min(num_first, num_second, room // 2)
    return (shorter, room - shorter) if num_first <= num_second else (room - shorter, shorter)


def _split_markers(tokenizer: Tokenizer, markers: Sequence[str]) -> list[AddedToken]:
    """Tokens of the vocabulary at the start of `markers` that the tokenizer would split, such as `[unused0]`."""
    found = []
    for marker in markers:
        known = [token for token in (marker, marker.split(None, 1)[0]) if tokenizer.token_to_id(token) is not None]
        if known and tokenizer.encode(known[0], add_special_tokens=False).tokens != known[:1]:
            found.append(AddedToken(known[0], normalized=False, special=True))
    return found


def _lower_cases(normalizer: Any) -> bool:
    def found(state: Any) -> bool:
        if isinstance(state, list):
            return any(found(part) for part in state)
        if not isinstance(state, dict):
            return False
        return state.get("type") == "Lowercase" or state.get("lowercase") is True or found(state.get("normalizers"))

    return normalizer is not None and found(json.loads(normalizer.__getstate__()))
