"""Classifiers that are rows of a language-model head: the logit of a word is the score. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from . import rerankers, templates
from .checkpoint import Checkpoint
from .errors import ConfigError
from .steps import HeadRows, LogitScore
from .tokenizer_files import chat_template, read_files

if TYPE_CHECKING:
    from .models import ModelConfig
    from .tokenizer_backends import Backend

_TWO_WAY: Final = "from_2_way_softmax"
_ALONE: Final = "no_post_processing"


@dataclass(frozen=True)
class LabelTokens:
    """Labels that are words.

    Args:
        rows: Rows of the language-model head that make the classifier.
        labels: The words, in the order of the logits.
        source: What says so.
        per_token: Whether every token is classified, not a text by its last one.
    """

    rows: HeadRows
    labels: tuple[str, ...]
    source: str
    per_token: bool = False


def find(
    transformer: Checkpoint,
    words: Checkpoint,
    listed: LogitScore | None,
    has_modules: bool,
    model: ModelConfig,
    returned: tuple[int, ...] | None = None,
) -> LabelTokens | None:
    """The label tokens of a checkpoint, or None where nothing says that it has any.

    Args:
        transformer: The files of the transformer.
        words: Those of the tokenizer.
        listed: The module of `modules.json`, if it has one.
        has_modules: Whether there is a `modules.json`, which then says all there is to say.
        model: The architecture's config.
        returned: Ids that the user wants the logits of, after each token.

    Raises:
        ConfigError: The tokens are not in the vocabulary, or the method is not known, or logits are soft-capped.
    """
    found: LabelTokens | None
    config = transformer.config
    generates = str((config.get("architectures") or [""])[0]).endswith("ForCausalLM")
    if config.get("classifier_from_token") is not None or config.get("method") in (_TWO_WAY, _ALONE):
        found = _configured(config, _Words(words))
    elif returned is not None and generates:
        backend = _Words(words).backend
        labels = tuple(backend.token(number) for number in returned)
        found = LabelTokens(HeadRows(returned), labels, "user", per_token=True)
    elif listed is not None:
        found = _listed(listed, _Words(words))
    elif not has_modules and generates:
        found = _recognised(transformer, words)
    else:
        return None
    return None if found is None else _checked(found, model)


def _checked(found: LabelTokens, model: ModelConfig) -> LabelTokens:
    ids = [*found.rows.ids, found.rows.less or 0]
    if any(not 0 <= number < model.vocab_size for number in ids):
        raise ConfigError(f"The label tokens {ids} are not all below {model.vocab_size}, the rows of the head.")
    if model.nature.logit_softcap is not None:
        raise ConfigError(
            f"The labels are tokens by {found.source}, but config.json bends the logits of tokens "
            f"(final_logit_softcapping={model.nature.logit_softcap}).",
            allowed="Language models whose logits are taken as they are.",
            fix="Pass `--convert embed` to embed with it.",
            param="convert",
        )
    return found


class _Words:
    """The vocabulary, read when it is first asked."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._backend: Backend | None = None

    @property
    def backend(self) -> Backend:
        if self._backend is None:
            self._backend = read_files(self._checkpoint).backend
        return self._backend

    def ids(self, tokens: list[str]) -> list[int]:
        """Ids of exact entries of the vocabulary."""
        found = {token: self.backend.id_of(token) for token in tokens}
        missing = [token for token, number in found.items() if number is None]
        if missing:
            raise ConfigError(
                f"classifier_from_token names {missing}, which the vocabulary of {self._checkpoint.name} lacks.",
                allowed="Exact entries of the vocabulary: 'Yes', 'yes' and a 'yes' after a space are three.",
                param="hf_overrides",
            )
        return [number for number in found.values() if number is not None]


def _configured(config: Mapping[str, Any], words: _Words) -> LabelTokens:
    tokens, method = config.get("classifier_from_token"), config.get("method")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise ConfigError(
            f"classifier_from_token={tokens!r} with method={method!r}.",
            allowed="It is a list of entries of the vocabulary.",
            param="hf_overrides",
        )
    if config.get("is_original_qwen3_reranker") and method is None:
        method = _TWO_WAY
    if method not in (_TWO_WAY, _ALONE):
        raise ConfigError(
            f"method {method} not supported.",
            allowed=f"It is {_TWO_WAY}, or {_ALONE}.",
            fix=f"With the two tokens of a yes/no question, [false, true], say {_TWO_WAY}.",
            param="hf_overrides",
        )
    if method == _TWO_WAY and len(tokens) != 2:
        what = f"method {_TWO_WAY} was given {len(tokens)} tokens, {tokens}."
        raise ConfigError(what, allowed="It takes two, [false, true].", param="hf_overrides")
    ids = words.ids(tokens)
    rows = HeadRows((ids[1],), ids[0]) if method == _TWO_WAY else HeadRows(tuple(ids))
    labels = tuple(tokens[1:] if method == _TWO_WAY else tokens)
    return LabelTokens(rows, labels, "config.json: classifier_from_token")


def _listed(module: LogitScore, words: _Words) -> LabelTokens:
    rows = HeadRows((module.true_token_id,), module.false_token_id)
    return LabelTokens(rows, (words.backend.token(module.true_token_id),), f"{module.path}/config.json")


def _recognised(transformer: Checkpoint, words: Checkpoint) -> LabelTokens | None:
    vendor = rerankers.recognise(transformer, transformer.config)
    if vendor is not None and vendor[0].true_token:
        known, source = vendor
        ids = _Words(words).ids([token for token in (known.false_token, known.true_token) if token])
        return LabelTokens(HeadRows((ids[-1],), ids[0] if known.false_token else None), (known.true_token,), source)
    template = chat_template(transformer)
    if template is None or not templates.reads_pairs(template):
        return None
    # What sentence-transformers takes a language model for where it is to score pairs.
    backend = _Words(words).backend
    yes, no = backend.id_of("yes"), backend.id_of("no")
    if yes is None or no is None:
        return None
    return LabelTokens(HeadRows((yes,), no), ("yes",), "the chat template, which reads a query and a document")
