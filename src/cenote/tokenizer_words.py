"""Tokenizers of models without a transformer: words of a list, or `tokenizer.json` without any special tokens.

The splitting into words is that of sentence-transformers' `WhitespaceTokenizer` and `PhraseTokenizer`.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tokenizers import Tokenizer

from .checkpoint import Checkpoint
from .errors import BadInput, CheckpointError, MissingExtra
from .hf import Raw
from .tokenizer_backends import Backend, Coded, FastBackend, Side, TextOrPair, kept_of

_FILES: Final[Mapping[str, str]] = {
    "WhitespaceTokenizer": "whitespacetokenizer_config.json",
    "PhraseTokenizer": "phrasetokenizer_config.json",
}
_KEYS: Final = ("vocab", "stop_words", "do_lower_case", "ngram_separator", "max_ngram_length")


@dataclass(frozen=True, slots=True)
class WordRow:
    """Ids of one input; the first `num_first` are of the first text of a pair."""

    ids: list[int]
    num_first: int

    @property
    def type_ids(self) -> list[int]:
        return [0] * self.num_first + [1] * (len(self.ids) - self.num_first)


class WordBackend(Backend):
    """Texts to ids by a function, with nothing around them.

    Args:
        ids_of: Texts to the ids of each.
        vocab: Id -> word.
    """

    special_ids: frozenset[int] = frozenset()
    crosses_spaces = True
    """As `Backend.crosses_spaces`; a phrase does, and the others have no limit at which long texts are cut."""

    def __init__(self, ids_of: Callable[[Sequence[str]], list[list[int]]], vocab: Mapping[int, str]) -> None:
        self._ids_of, self._vocab = ids_of, vocab
        self._ids = {word: number for number, word in vocab.items()}
        self.vocab_size = max(vocab, default=-1) + 1

    def encode(self, batch: Sequence[TextOrPair], add_special_tokens: bool) -> Sequence[Coded]:
        """As `Backend.encode`; there are no special tokens."""
        parts = [(item,) if isinstance(item, str) else item for item in batch]
        found = iter(self._ids_of([text for texts in parts for text in texts]))
        rows = [[next(found) for _ in texts] for texts in parts]
        return [WordRow([i for ids in row for i in ids], len(row[0])) for row in rows]

    def cut(
        self,
        item: TextOrPair,
        coded: Coded,
        limit: int,
        side: Side,
        add_special_tokens: bool,
        only_first: bool = False,
    ) -> Coded | None:
        """As `Backend.cut`."""
        assert isinstance(coded, WordRow)
        texts = coded.ids[: coded.num_first], coded.ids[coded.num_first :]
        kept = kept_of(len(texts[0]), len(texts[1]), limit, only_first)
        if kept is None:
            return None
        first, second = (
            ids[:num] if side == "right" else ids[len(ids) - num :] for ids, num in zip(texts, kept, strict=True)
        )
        return WordRow([*first, *second], len(first))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """As `Backend.spans`.

        Raises:
            BadInput: Always: words are looked up in other forms than the text has.
        """
        raise BadInput("The tokenizer of this model does not know where its tokens are in a text.")

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The words, with spaces between them."""
        return " ".join(self.token(i) for i in ids)

    def token(self, id: int) -> str:
        return self._vocab.get(id, "")

    def id_of(self, token: str) -> int | None:
        return self._ids.get(token)


class StaticBackend(WordBackend):
    """A tokenizer of the `tokenizers` library without special tokens, and without the ids in `dropped`."""

    def __init__(self, tokenizer: Tokenizer, dropped: frozenset[int] = frozenset()) -> None:
        self._fast = FastBackend(tokenizer)
        names = {number: word for word, number in tokenizer.get_vocab(with_added_tokens=True).items()}

        def ids_of(texts: Sequence[str]) -> list[list[int]]:
            rows = [coded.ids for coded in self._fast.encode(texts, False)]
            return [[i for i in ids if i not in dropped] for ids in rows] if dropped else rows

        super().__init__(ids_of, names)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """As `Backend.spans`."""
        return self._fast.spans(text)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        return self._fast.decode(ids, skip_special_tokens)


class Words:
    """A list of words, and how a text is looked up in it.

    Args:
        config: Of the tokenizer: `vocab`, `stop_words`, `do_lower_case`, and for phrases `ngram_separator` and
            `max_ngram_length`.
        phrases: Whether words that stand together in the list are joined, and the text is split as NLTK does; then
            `do_lower_case` has no effect, as in the reference.

    Raises:
        MissingExtra: Phrases need NLTK, and it is not installed.
    """

    def __init__(self, config: Raw, phrases: bool) -> None:
        self.vocab = list(config.value("vocab"))
        self._ids = {word: number for number, word in enumerate(self.vocab)}
        self._stop = frozenset(config.value("stop_words", ()))
        lower = bool(config.value("do_lower_case", False))
        self._split: Callable[[str], list[str]] = (lambda text: text.lower().split()) if lower else str.split
        # The last form of a word that is looked up is lower-cased and without punctuation; the way there differs.
        self._forms: tuple[Callable[[str], str], ...] = (_stripped, str.lower)
        if phrases:
            self._split, self._forms = self._phrases(config), (str.lower, _stripped)

    def ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text; words that are not in the list have none."""
        return [self._ids_of(text) for text in texts]

    def _ids_of(self, text: str) -> list[int]:
        found = (self._id(word) for word in self._split(text))
        return [number for number in found if number is not None]

    def _id(self, word: str) -> int | None:
        for form in (None, *self._forms):
            word = word if form is None else form(word)
            if word in self._stop:
                return None
            if word and word in self._ids:
                return self._ids[word]
        return None

    def _phrases(self, config: Raw) -> Callable[[str], list[str]]:
        try:
            from nltk import word_tokenize
        except ImportError as error:
            raise MissingExtra(
                "This model splits texts with a PhraseTokenizer, which needs NLTK.",
                fix="`pip install 'cenote[words]'`.",
            ) from error
        mark, most = config.value("ngram_separator", "_"), config.size("max_ngram_length", 5)
        known = {word for word in self.vocab if mark in word and 2 * mark not in word and word.count(mark) < most}
        lengths = sorted({word.count(mark) + 1 for word in known}, reverse=True)

        def split(text: str) -> list[str]:
            words: list[str] = word_tokenize(text, preserve_line=True)
            for length in lengths:
                words = _joined(words, length, mark, known)
            return words

        return split


def backend(checkpoint: Checkpoint) -> Backend | None:
    """What makes ids for a model without a transformer; None where the tokenizer is one of a transformer.

    Raises:
        CheckpointError: A file is missing, or has a key that is not known.
    """
    raw = checkpoint.config
    match raw.get("model_type"):
        case "static_embedding" | "model2vec":
            return _static(checkpoint, drops_unknown=raw["model_type"] == "model2vec")
        case "bow":
            words = Words(Raw({"vocab": raw["vocab"]}), phrases=False)
        case "word_embeddings":
            kind = str(raw.get("tokenizer_class")).rsplit(".", 1)[-1]
            if kind == "TransformersTokenizerWrapper":
                return None
            words = Words(_word_config(checkpoint, kind), phrases=kind == "PhraseTokenizer")
        case _:
            return None
    return WordBackend(words.ids_of, dict(enumerate(words.vocab)))


def _static(checkpoint: Checkpoint, *, drops_unknown: bool) -> StaticBackend:
    path = checkpoint.path("tokenizer.json")
    if path is None:
        raise CheckpointError(f"{checkpoint.name} has no tokenizer.json.", fix="Save it beside the embeddings.")
    tokenizer = Tokenizer.from_file(str(path))
    unknown = getattr(tokenizer.model, "unk_token", None)
    number = tokenizer.token_to_id(unknown) if drops_unknown and isinstance(unknown, str) else None
    return StaticBackend(tokenizer, frozenset() if number is None else frozenset({number}))


def _word_config(checkpoint: Checkpoint, kind: str) -> Raw:
    if kind not in _FILES:
        raise CheckpointError(
            f"wordembedding_config.json says tokenizer_class={kind!r}.",
            allowed=f"Known are {', '.join(_FILES)} and TransformersTokenizerWrapper.",
        )
    config: Any = checkpoint.json(_FILES[kind])
    if not isinstance(config, dict) or not set(config) <= set(_KEYS):
        has = sorted(config) if isinstance(config, dict) else "nothing"
        raise CheckpointError(f"{_FILES[kind]} has {has}.", allowed=f"It has {', '.join(_KEYS)}.")
    return Raw(config)


def _stripped(word: str) -> str:
    return word.strip(string.punctuation)


def _joined(words: list[str], length: int, mark: str, known: set[str]) -> list[str]:
    """`words` with phrases of `length` words that are known joined by `mark`, from the left."""
    joined: list[str] = []
    start = 0
    while start < len(words):
        phrase = mark.join(words[start : start + length]) if start <= len(words) - length else ""
        found = next((form for form in (phrase, phrase.lower()) if form in known), None)
        joined.append(words[start] if found is None else found)
        start += 1 if found is None else length
    return joined
