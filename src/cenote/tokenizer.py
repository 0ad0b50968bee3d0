"""Texts to ids: special tokens, segment ids, and what happens to an input that is too long.

A `Tokenizer` holds no state that a call changes, so threads share it and each call brings its own limit. The reference
is `transformers.AutoTokenizer`: same ids, same segment ids, same tokens left after a cut.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import chunks
from .checkpoint import Checkpoint
from .chunks import no_room, refuse_long
from .config import OnLong
from .errors import BadInput
from .tokenizer_backends import Backend, Coded, Side, TextOrPair
from .tokenizer_files import TokenizerFiles, read_files
from .tokenizer_starts import CHARS_PER_TOKEN, LEAST_CHARS, MARGIN, is_enough, start_of, start_of_source
from .types import Encoded, Framed, Input, IntArray, Located, Pair, Tokens


@dataclass(frozen=True, slots=True)
class _Draft:
    """One input with its tokens; `source` and `coded` are None where the caller gave ids.

    `whole` is False where the tokens are those of the start of a text alone, which are more than are wanted. `special`
    is whether special tokens were added; `inside` are the characters of a text that give where it is cut, None for all.
    """

    ids: IntArray
    source: TextOrPair | None = None
    coded: Coded | None = None
    whole: bool = True
    special: bool = True
    inside: tuple[int, int] | None = None


class Tokenizer:
    """Makes ids of the inputs of one checkpoint.

    Attributes:
        vocab_size: Every id is below it, those of added tokens included.
        model_max_length: Longest input in tokens by the tokenizer's own files, None where they do not say.
        special_tokens: Those that its files name, by their name there, such as `bos_token`.
        pad_id: Id of the token that others pad with; here it only parts two texts that were read apart.
        unknown_id: Id of the token that stands for what the vocabulary lacks, None where there is none.
        chat_template: Makes one text of a conversation; None where its files hold none.
        has_segments: Whether the second text of a pair gets segment ids other than 0.
        frame: The special tokens around a text.
        pads_left: As in `TokenizerFiles`.
    """

    def __init__(self, files: TokenizerFiles, num_rows: int | None = None) -> None:
        self._backend: Backend = files.backend
        self.vocab_size: int = files.backend.vocab_size
        self._empty = files.empty
        self._num_known = self.vocab_size if num_rows is None else min(num_rows, self.vocab_size)
        self.model_max_length: int | None = files.model_max_length
        self.special_tokens: Mapping[str, str] = files.special_tokens
        pad = files.special_tokens.get("pad_token")
        self.pad_id: int | None = None if pad is None else self._backend.id_of(pad)
        unknown = [self._backend.id_of(files.special_tokens.get("unk_token", name)) for name in ("[UNK]", "<unk>")]
        self.unknown_id: int | None = next((number for number in unknown if number is not None), None)
        self.chat_template: str | None = files.chat_template
        self.pads_left = files.pads_left
        single, pair = self._backend.encode(["a", ("a", "a")], True)
        self._single_segments = files.may_have_segments and any(single.type_ids)
        self.has_segments: bool = files.may_have_segments and any(pair.type_ids)
        bare = self._backend.encode(["a"], False)[0].ids
        self._num_leading = _num_leading(single.ids, bare)
        before, after = single.ids[: self._num_leading], single.ids[self._num_leading + len(bare) :]
        self.frame = chunks.Frame(tuple(before), tuple(after))
        self.prompt_length = lru_cache(maxsize=1024)(self._prompt_length)

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        *,
        do_lower_case: bool = False,
        num_rows: int | None = None,
        markers: Sequence[str] = (),
    ) -> Tokenizer:
        """Read the tokenizer of a checkpoint.

        Args:
            checkpoint: The folder that holds the tokenizer's files.
            do_lower_case: Lower-case texts first, whatever the tokenizer's own files say.
            num_rows: Rows of the model's table of words. A tokenizer may know more tokens than that (added ones that
                the model was never given); an input that has one of them is refused. None for no such limit.
            markers: Texts that begin with a token of the vocabulary, to be read as that one token.

        Raises:
            CheckpointError: There are no tokenizer files, or they cannot be read.
            MissingExtra: Only `transformers` can read them, and it is not installed.
        """
        return cls(read_files(checkpoint, do_lower_case=do_lower_case, markers=markers), num_rows)

    def encode(
        self,
        inputs: Sequence[Input],
        *,
        limit: int,
        on_long: OnLong = "refuse",
        side: Side = "right",
        add_special_tokens: bool = True,
        model_name: str = "the model",
        prefix: str = "",
        skip_prefix: bool = False,
        overlap: int = 0,
        only_first: bool = False,
    ) -> list[Encoded]:
        """Tokenise inputs, in their order.

        Args:
            inputs: Texts, pairs and ids; ids are taken as they are.
            limit: Most tokens of one input, special tokens included.
            on_long: Refuse longer inputs, or cut them, or split them into `Encoded.chunks`. A cut keeps the special
                tokens; the longer text of a pair gives first. Pairs are refused where texts would be split.
            side: The end that is cut off.
            add_special_tokens: Add what the model expects around a text.
            model_name: The model's name, for messages.
            prefix: Put before each text, and before the first text of a pair.
            skip_prefix: Set `Encoded.skip` to the tokens of the prefix, so that pooling leaves them out.
            overlap: Tokens that a piece of a split text shares with the one before.
            only_first: Of a pair that is cut only the first text gives.

        Raises:
            TooLong: `on_long` is "refuse" and some inputs are too long; the error lists them all.
            BadInput: An id is not in the vocabulary, a text cannot be encoded as UTF-8, or nothing is left of an input.
        """
        most = limit if on_long == "cut" and side == "right" else None
        drafts = self._draft(inputs, prefix, add_special_tokens, model_name, most)
        if on_long != "cut":
            refused = [on_long == "refuse" or isinstance(draft.source, tuple) for draft in drafts]
            lengths = [len(draft.ids) if counts else 0 for draft, counts in zip(drafts, refused, strict=True)]
            refuse_long(lengths, limit, model_name)
        skip = self.prompt_length(prefix, add_special_tokens) if prefix and skip_prefix else 0
        encoded = []
        for index, draft in enumerate(drafts):
            if on_long == "chunk" and len(draft.ids) > limit and not isinstance(draft.source, tuple):
                # Ids are taken as they are, so no prompt stands before them.
                prompt = self.prompt_length(prefix, add_special_tokens) if prefix and draft.source else 0
                encoded.append(self._split(draft, limit, overlap, prompt, min(skip, prompt)))
                continue
            fitted = self._fit(draft, limit, side, skip, only_first)
            if fitted is None:
                raise no_room(index, limit, model_name)
            encoded.append(fitted)
        return encoded

    def cut_text(self, text: str, most: int, index: int = 0) -> str:
        """The start of `text` that has at most `most` tokens, special ones not counted; `index` names it in errors.

        Raises:
            BadInput: The text cannot be encoded as UTF-8, or the tokenizer does not know where its tokens are.
        """
        num_chars = max(LEAST_CHARS, CHARS_PER_TOKEN * most)
        start = text if self._backend.crosses_spaces else start_of(text, num_chars)
        if len(start) < len(text) and len(self._backend.spans(start)) >= most + MARGIN:
            text = start
        _check_utf8(text, index)
        while len(spans := self._backend.spans(text)) > most:
            # Tokens may overlap in a character, and what is left may split otherwise: so look again.
            shorter = text[: min(spans[most - 1][1], spans[most][0])]
            text = shorter if len(shorter) < len(text) else text[:-1]
        return text

    def places(self, text: str, encoded: Encoded) -> tuple[NDArray[np.int64], int]:
        """Start and end in `text` of each of its own tokens, `[n, 2]`, and how many of `encoded` stand before them.

        Raises:
            BadInput: The tokenizer does not know where its tokens are.
        """
        return np.array(self._backend.spans(text), np.int64).reshape(-1, 2), self.frame.around(encoded.ids)[0]

    def locate(self, texts: Sequence[str], add_special_tokens: bool, model_name: str) -> list[Located]:
        """Tokens of whole texts and where each stands.

        Raises:
            BadInput: The tokenizer does not know where its tokens are, or a text is not allowed, as in `encode`.
        """
        for index, text in enumerate(texts):
            _check_utf8(text, index)
        located = self._backend.locate(texts, add_special_tokens)
        for index, item in enumerate(located):
            self._check_ids(item.ids, index, model_name, self._num_known)
        return located

    def join(self, tokens: Sequence[str]) -> str:
        """The text that tokens, in the vocabulary's own spelling, stand for."""
        return self._backend.join(tokens)

    def count(self, text: str) -> int:
        """How many tokens a text has, special tokens included."""
        return len(self._code([text], True)[0].ids)

    def ids_of(self, text: str, add_special_tokens: bool) -> list[int]:
        """Ids of a text, however many; none where it is empty and nothing is added.

        Raises:
            BadInput: The text cannot be encoded as UTF-8.
        """
        return list(self._code([text], add_special_tokens)[0].ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of `ids`, as near as the tokenizer can tell it.

        Raises:
            BadInput: An id is not in the vocabulary.
        """
        self._check_ids(np.asarray(ids, np.int64), 0, "the model", self.vocab_size)
        return self._backend.decode([int(i) for i in ids], skip_special_tokens)

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary's own spelling of each id; "" for an id that no token has.

        Raises:
            BadInput: An id is not in the vocabulary.
        """
        self._check_ids(np.asarray(ids, np.int64), 0, "the model", self.vocab_size)
        return [self._backend.token(int(i)) for i in ids]

    def id_of(self, token: str) -> int | None:
        """Id of a token by the vocabulary's own spelling; None where there is none."""
        return self._backend.id_of(token)

    def words(self, ids: Sequence[int]) -> list[str]:
        """`token_strings` of ids that a model knows; "" for one that the tokenizer does not know."""
        return [self._backend.token(i) if i < self.vocab_size else "" for i in ids]

    def _prompt_length(self, prefix: str, add_special_tokens: bool = True) -> int:
        """How many leading tokens a prefix takes, special tokens before it included.

        As in sentence-transformers the prefix is tokenised alone, and a special token at its end does not count. Where
        prefix and text share a token (no space between them), this is one off by nature.
        """
        ids = self._code([prefix], add_special_tokens)[0].ids
        return len(ids) - (1 if ids and ids[-1] in self._backend.special_ids else 0)

    def _draft(
        self, inputs: Sequence[Input], prefix: str, add_special_tokens: bool, model_name: str, most: int | None
    ) -> list[_Draft]:
        """Tokens of all inputs; where more than `most` are not wanted, a long text may be read only so far."""
        sources = [None if isinstance(item, Tokens) else _source(item, prefix) for item in inputs]
        special = [add_special_tokens and not (isinstance(item, Framed) and item.is_complete) for item in inputs]
        # What is cut in its middle is read to its end.
        kinds = [(flag, None if isinstance(item, Framed) else most) for item, flag in zip(inputs, special, strict=True)]
        rows: dict[tuple[bool, int | None], Iterator[tuple[Coded, bool]]] = {}
        for kind in set(kinds):
            its = [source if own == kind else None for source, own in zip(sources, kinds, strict=True)]
            rows[kind] = iter(self._code_starts(its, *kind))
        drafts = []
        for index, (item, source, kind) in enumerate(zip(inputs, sources, kinds, strict=True)):
            if isinstance(item, Tokens):
                draft = _Draft(item.ids)
                self._check_ids(item.ids, index, model_name, self._num_known)
            else:
                row, whole = next(rows[kind])
                inside = getattr(item, "inside", None)
                draft = _Draft(np.array(row.ids, np.int32), source, row, whole, kind[0], inside)
                if self._num_known < self.vocab_size:
                    self._check_ids(draft.ids, index, model_name, self._num_known)
            if len(draft.ids) == 0 and self._empty == "refuse":
                raise BadInput(
                    f"Input {index} has no tokens. The decoder prompt cannot be empty.",
                    allowed="Where no special tokens are added, a text needs at least one.",
                    fix="Leave the empty text out.",
                    index=index,
                )
            drafts.append(draft)
        return drafts

    def _code_starts(
        self, sources: Sequence[TextOrPair | None], add_special_tokens: bool, most: int | None
    ) -> list[tuple[Coded, bool]]:
        """Tokens of each source, or of a start that has clearly more than `most`, and whether it is the whole."""
        num_chars = LEAST_CHARS if most is None else max(LEAST_CHARS, CHARS_PER_TOKEN * most)
        starts = [source and start_of_source(source, num_chars) for source in sources]
        if most is None or all(map(operator.is_, starts, sources)) or self._backend.crosses_spaces:
            return [(row, True) for row in self._code(sources, add_special_tokens)]
        rows = iter(self._code(starts, add_special_tokens))
        found: list[tuple[Coded, bool]] = []
        for index, (source, start) in enumerate(zip(sources, starts, strict=True)):
            if source is None or start is None:
                continue
            row, far = next(rows), num_chars
            while start is not source and not is_enough(source, start, row, most):
                start = start_of_source(source, far := 2 * far)
                # The others are left out and keep their places, so that an error names the right one.
                (row,) = self._code([*[None] * index, start], add_special_tokens)
            found.append((row, start is source))
        return found

    def _code(self, sources: Sequence[TextOrPair | None], add_special_tokens: bool) -> Sequence[Coded]:
        given = [source for source in sources if source is not None]
        try:
            return self._backend.encode(given, add_special_tokens) if given else []
        except (TypeError, UnicodeEncodeError):
            for index, source in enumerate(sources):
                _check_utf8(source, index)
            raise

    def _segments(self, source: TextOrPair, coded: Coded) -> IntArray | None:
        if not (self.has_segments if isinstance(source, tuple) else self._single_segments):
            return None
        segments = np.array(coded.type_ids, np.int32)
        return segments if segments.any() else None

    def _fit(self, draft: _Draft, limit: int, side: Side, skip: int, only_first: bool) -> Encoded | None:
        if draft.source is None or draft.coded is None:
            return _cut_ids(draft.ids, limit, side)
        if self._empty == "pad" and len(draft.ids) == 0:
            return Encoded(np.zeros(1, np.int32), skip=1)
        if len(draft.ids) <= limit:
            return Encoded(draft.ids, self._segments(draft.source, draft.coded), min(skip, len(draft.ids)))
        if draft.inside is None:
            kept = self._backend.cut(draft.source, draft.coded, limit, side, draft.special, only_first)
        else:
            assert isinstance(draft.source, str)
            kept = self._backend.cut_inside(draft.source, draft.inside, limit, side, draft.special)
        if kept is None:
            return None
        ids = np.array(kept.ids, np.int32)
        num_cut = len(draft.ids) - len(ids)
        if skip and side == "left":
            # What was cut off is the start of the prefix; the special tokens before it stay and stay skipped.
            skip = max(self._num_leading if draft.special else 0, skip - num_cut)
        # Where the prefix alone is too long, it is measured after the cut: without the special token at its end.
        most = len(ids) - (1 if kept.ids and kept.ids[-1] in self._backend.special_ids else 0)
        return Encoded(ids, self._segments(draft.source, kept), min(skip, most), num_cut, counted=draft.whole)

    def _split(self, draft: _Draft, limit: int, overlap: int, prompt: int, skip: int) -> Encoded:
        segments = None
        if draft.source is not None and draft.coded is not None:
            segments = self._segments(draft.source, draft.coded)
        before, after = self.frame.around(draft.ids)
        return chunks.split(Encoded(draft.ids, segments, skip), max(before, prompt), after, limit, overlap)

    def _check_ids(self, ids: NDArray[Any], index: int, model_name: str, below: int) -> None:
        outside = ids[(ids < 0) | (ids >= below)]
        if outside.size:
            raise BadInput(
                f"Input {index}: Token id {outside[0]} is out of vocabulary.",
                allowed=f"Token ids of {model_name} go from 0 to {below - 1}.",
                fix="Tokenise with this model's own tokenizer, and leave out tokens that were added to it later.",
                param="prompt_token_ids",
                index=index,
            )


def _source(item: str | Pair | Framed, prefix: str) -> TextOrPair:
    if isinstance(item, Framed):
        return item.whole
    return prefix + item if isinstance(item, str) else (prefix + item.text, item.text_pair)


def _num_leading(framed: list[int], bare: list[int]) -> int:
    """How many special tokens stand before a text."""
    starts = range(len(framed) - len(bare) + 1)
    return next((start for start in starts if framed[start : start + len(bare)] == bare), 0) if bare else 0


def _cut_ids(ids: IntArray, limit: int, side: Side) -> Encoded:
    num_cut = max(0, len(ids) - limit)
    return Encoded(ids[: len(ids) - num_cut] if side == "right" else ids[num_cut:], num_cut=num_cut)


def _check_utf8(source: TextOrPair | None, index: int) -> None:
    for text in (source,) if isinstance(source, str) else source or ():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise BadInput(
                f"Input {index} has the lone surrogate {text[error.start]!r} at character {error.start}.",
                allowed="A text is made of Unicode characters, which surrogates alone are not.",
                fix="Decode the text's bytes with errors='replace', or drop the character.",
                index=index,
            ) from None
