"""How a late-interaction checkpoint reads queries and documents: folders of MultiVectorEncoder, PyLate and ColBERT.

A folder of sentence-transformers 6 says it in its modules and beside its transformer. PyLate says most of it in
`config_sentence_transformers.json` and leaves the rest to its code; Stanford's ColBERT has an `artifact.metadata`.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from ..checkpoint import Checkpoint
from ..errors import CheckpointError
from ..hf import Raw
from ..steps import Dense, Normalize, Step, on_tokens
from ..tokenizer_files import read_files
from ..types import InputType

SIMILARITIES: Final = ("maxsim", "meanmaxsim")
"""What a late-interaction checkpoint may name as its `similarity_fn_name`."""

STANFORD: Final = ("HF_ColBERT", "ColBERTModel", "ColBERTJinaRobertaModel")
"""Architectures that Stanford's checkpoints name, or users for them."""

RANKS_LISTS: Final = "JinaForRanking"
"""The architecture that jina-reranker-v3 names."""
LISTED: Final = ("<|embed_token|>", "<|rerank_token|>")
"""What stands after each document there, and after the query: the only tokens with rows."""

_PROJECTIONS: Final = ("linear.weight", "colbert_linear.weight")
_RANKING_LAYERS: Final = ("projector.0.weight", "projector.2.weight")
_RELU: Final = "torch.nn.modules.activation.ReLU"
_IDENTITY: Final = "torch.nn.modules.linear.Identity"
_ROLES: Final[Mapping[InputType, str]] = {"query": "query_prefix", "document": "document_prefix"}
_KNOBS: Final = ("query_length", "document_length", "query_expansion")
_PYLATE_KEYS: Final = (
    "query_prefix",
    "document_prefix",
    "query_length",
    "document_length",
    "query_expansion",
    "do_query_expansion",
    "attend_to_expansion_tokens",
    "attend_to_mask_tokens",
    "skiplist_words",
)


@dataclass(frozen=True, slots=True)
class Expansion:
    """Tokens behind a short query, which are scored like its own (ColBERT, arXiv 2004.12832).

    Args:
        length: Tokens that a query has at least, special tokens included.
        fixed: Whether longer queries are cut to it.
        attend: Whether the query's own tokens attend to them; else they look at the query and nobody looks at them.
        token: Spelling of the token; None for the mask, or the end of the sequence where there is none.
    """

    length: int
    fixed: bool = True
    attend: bool = False
    token: str | None = None


@dataclass(frozen=True, slots=True)
class RowMask:
    """Which tokens have rows; the others are read all the same.

    Args:
        words: Tokens without rows, as the vocabulary spells them.
        input_types: Where `words` count; a text that is neither query nor document counts as a document.
        only_ids: The only ids that have rows in what is no query; None for all.
    """

    words: tuple[str, ...] = ()
    input_types: tuple[str, ...] = ("document",)
    only_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TokenPooling:
    """Rows of similar tokens become their mean, so that fewer are stored (arXiv 2409.14683).

    Args:
        factor: About one of so many rows stays; at least 1.
        num_protected: So many leading rows stay as they are.
        normalize: Whether all rows have unit length afterwards.
        input_types: Where it applies, as in `RowMask`.
    """

    factor: float
    num_protected: int = 1
    normalize: bool = True
    input_types: tuple[str, ...] = ("document",)


LateStep: TypeAlias = RowMask | TokenPooling


@dataclass(frozen=True)
class LateInteraction:
    """How queries and documents are read.

    Args:
        query_length, document_length: Texts are cut to so many tokens; None for the model's own limit.
        expansion: None where queries are not expanded.
        mask: Which tokens have rows.
        pooling: None where rows stay as they are.
        markers: Prompts that begin with a token of the vocabulary, which the tokenizer reads as that one token.
        prompts: Name of a prompt -> text.
        similarity: One of `SIMILARITIES`.
        ranks_lists: Whether a query and all its documents are one prompt (`uses.listwise`).
    """

    query_length: int | None = None
    document_length: int | None = None
    expansion: Expansion | None = None
    mask: RowMask = RowMask()
    pooling: TokenPooling | None = None
    markers: tuple[str, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict, hash=False)
    similarity: str = SIMILARITIES[0]
    ranks_lists: bool = False

    def width(self, input_type: InputType | None) -> int | None:
        """Tokens that a text is cut to; None where it has no width of its own."""
        if input_type == "document":
            return self.document_length
        if input_type != "query" or self.expansion is None:
            return self.query_length if input_type == "query" else None
        if self.expansion.fixed:
            return self.expansion.length
        return None if self.query_length is None else max(self.query_length, self.expansion.length)


def is_late(kinds: Sequence[str], settings: Mapping[str, Any]) -> bool:
    """Whether modules and `config_sentence_transformers.json` are those of a late-interaction model."""
    named = settings.get("model_type")
    if named is not None:
        return named in ("MultiVectorEncoder", "ColBERT")
    return "MultiVectorMask" in kinds or any(key in settings for key in _PYLATE_KEYS)


def from_modules(
    found: Sequence[Step | LateStep], settings: Mapping[str, Any], transformer: Mapping[str, Any], name: str
) -> tuple[tuple[Step, ...], LateInteraction]:
    """The steps on tokens, and how texts are read.

    Args:
        found: The modules after the transformer, in order.
        settings: `config_sentence_transformers.json`, raw.
        transformer: The config beside the transformer, raw.
        name: Of the checkpoint, for messages.

    Raises:
        CheckpointError: The modules do not stand in an order that is known, or a value is not allowed.
    """
    steps = tuple(step for step in found if not isinstance(step, (RowMask, TokenPooling)))
    masks = [step for step in found if isinstance(step, RowMask)]
    pooled = [step for step in found if isinstance(step, TokenPooling)]
    if (
        not all(map(on_tokens, steps))
        or len(masks) > 1
        or len(pooled) > 1
        or pooled != list(found[len(found) - len(pooled) :])
    ):
        raise CheckpointError(
            f"The modules of the late-interaction model {name} are {[type(step).__name__ for step in found]}.",
            allowed="Modules on token_embeddings such as Dense and Normalize, a MultiVectorMask among them, and a "
            "HierarchicalTokenPooling last.",
        )
    legacy = _pylate(settings)
    said = {**legacy, **{key: transformer[key] for key in _KNOBS if key in transformer}}
    if settings.get("model_type") != "MultiVectorEncoder" and not masks:
        # PyLate masks and normalises in its code.
        words = settings.get("skiplist_words")
        masks = [RowMask(tuple(string.punctuation if words is None else words))]
        steps = (*steps, Normalize(on="tokens"))
    expansion = _expansion(said.get("query_expansion"))
    markers = {role: settings[key] or "" for role, key in _ROLES.items() if key in settings}
    similarity = settings.get("similarity_fn_name")
    late = LateInteraction(
        query_length=_length(said, "query_length"),
        document_length=_length(said, "document_length"),
        expansion=expansion,
        mask=masks[0] if masks else RowMask(),
        pooling=pooled[0] if pooled else None,
        markers=tuple(marker for marker in markers.values() if marker.strip()),
        prompts=_prompts(settings, markers),
        similarity=similarity if similarity in SIMILARITIES else SIMILARITIES[0],
    )
    if expansion is not None and not expansion.attend and not masks:
        # Without a mask nobody scores tokens that nobody sees.
        late = replace(late, expansion=None, query_length=late.width("query"))
    return steps, late


def stanford(checkpoint: Checkpoint) -> LateInteraction | None:
    """How a checkpoint of Stanford's ColBERT reads texts; None where it is none."""
    if not set(STANFORD) & set(checkpoint.config.get("architectures") or []):
        return None
    raw = checkpoint.json("artifact.metadata")
    metadata = Raw(raw if isinstance(raw, dict) else {})
    prompts = {
        "query": f"{metadata.value('query_token_id', '[unused0]')} ",
        "document": f"{metadata.value('doc_token_id', '[unused1]')} ",
    }
    return LateInteraction(
        document_length=_length(metadata.raw, "doc_maxlen"),
        expansion=Expansion(
            metadata.size("query_maxlen", 32), attend=bool(metadata.value("attend_to_mask_tokens", False))
        ),
        mask=RowMask(tuple(string.punctuation) if metadata.value("mask_punctuation", True) else ()),
        markers=tuple(prompts.values()),
        prompts=prompts,
    )


def without_modules(checkpoint: Checkpoint, words: Checkpoint) -> LateInteraction | None:
    """How a late-interaction checkpoint without `modules.json` reads texts; None where it is none.

    Args:
        checkpoint: The files of the transformer.
        words: Those of the tokenizer.

    Raises:
        CheckpointError: The vocabulary lacks the tokens that have rows.
    """
    if RANKS_LISTS not in (checkpoint.config.get("architectures") or []):
        return stanford(checkpoint)
    backend = read_files(words).backend
    ids = [number for token in LISTED if (number := backend.id_of(token)) is not None]
    if len(ids) < len(LISTED):
        raise CheckpointError(
            f"The vocabulary of {words.name} lacks one of {', '.join(LISTED)}, whose vectors the model is read by.",
            fix="Fetch the tokenizer's files again.",
        )
    return LateInteraction(mask=RowMask(only_ids=tuple(ids)), ranks_lists=True)


def steps_without_modules(late: LateInteraction, shapes: Mapping[str, Sequence[int]], name: str) -> tuple[Step, ...]:
    """The layers that lie among the weights of such a checkpoint; arguments and errors as of `stanford_steps`."""
    if not late.ranks_lists:
        return stanford_steps(shapes, name)
    missing = [layer for layer in _RANKING_LAYERS if layer not in shapes]
    if missing:
        raise CheckpointError(f"{name} lacks {', '.join(missing)}.", fix="Fetch its weights again.")
    first, last = (projection(layer, shapes[layer]) for layer in _RANKING_LAYERS)
    return replace(first, activation=_RELU), last


def stanford_steps(shapes: Mapping[str, Sequence[int]], name: str) -> tuple[Step, ...]:
    """The projection that lies among the weights of a Stanford checkpoint, and the normalising of its code.

    Args:
        shapes: Name of a stored tensor -> its shape.

    Raises:
        CheckpointError: There is no projection.
    """
    found = next((projection for projection in _PROJECTIONS if projection in shapes), None)
    if found is None:
        raise CheckpointError(
            f"{name} is a ColBERT without a projection.", allowed=f"Its weights hold {' or '.join(_PROJECTIONS)}."
        )
    return projection(found, shapes[found]), Normalize(on="tokens")


def projection(name: str, shape: Sequence[int]) -> Dense:
    """A linear layer without bias on rows of tokens, of a matrix `name` among the weights of the transformer."""
    out_features, in_features = shape
    return Dense(in_features, out_features, False, _IDENTITY, path=name, on="tokens", stored_as=name)


def _pylate(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What PyLate's flat keys say, in the form of a MultiVectorEncoder."""
    said = {key: settings[key] for key in _KNOBS if settings.get(key) is not None}
    if "query_expansion" in settings:
        return {**said, "query_expansion": settings["query_expansion"]}
    if not any(key in settings for key in _PYLATE_KEYS) or settings.get("do_query_expansion") is False:
        return said
    attend = settings.get("attend_to_expansion_tokens", settings.get("attend_to_mask_tokens"))
    length = said.pop("query_length", None) or 32
    return {**said, "query_expansion": {"strategy": "fixed", "attend": bool(attend), "length": length}}


def _expansion(raw: Any) -> Expansion | None:
    if raw is None:
        return None
    config = Raw(raw if isinstance(raw, dict) else {})
    unknown = sorted(set(config.raw) - {"strategy", "attend", "token", "length"})
    strategy = config.value("strategy", None)
    if unknown or strategy not in ("fixed", "min"):
        raise CheckpointError(
            f"query_expansion is {raw!r}.",
            allowed="It has a strategy, fixed or min, a length, and may have attend and token.",
        )
    attend, token = bool(config.value("attend", False)), config.value("token", None)
    return Expansion(config.size("length"), strategy == "fixed", attend, None if token is None else str(token))


def _prompts(settings: Mapping[str, Any], markers: Mapping[InputType, str]) -> dict[str, str]:
    """The prompts, each behind the marker of its role; a role without one has an empty one, not the default one."""
    prompts = {name: text for name, text in (settings.get("prompts") or {}).items() if text is not None}
    for role, marker in markers.items():
        prompts[role] = marker + str(prompts.get(role, "")).removeprefix(marker)
    if not any(name in prompts for name in ("document", "passage", "corpus")):
        prompts["document"] = ""
    return {"query": "", **prompts}


def _length(raw: Mapping[str, Any], key: str) -> int | None:
    return None if raw.get(key) is None else Raw(raw).size(key)
