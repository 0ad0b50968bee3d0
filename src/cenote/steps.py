"""The steps after the backbone that a checkpoint's `modules.json` can ask for, as plain records.

First those on the rows of tokens, then one `Pooling` (or `Bag`), then those on the pooled row; a late-interaction model
has the first alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .errors import CheckpointError

On: TypeAlias = Literal["tokens", "row"]
Row: TypeAlias = Literal["first", "last", "mean"]
"""Which token of a text is read, or the mean over all."""
Pooled: TypeAlias = Literal["cls", "last", "mean"]
"""Modes of pooling that families have by themselves."""


@dataclass(frozen=True, slots=True)
class Pooling:
    """Hidden states to one row.

    Args:
        modes: Names of `layers.pooling.POOLS`, or one of a plugin; several are put side by side in that order.
        include_prompt: Whether the tokens of a prompt count.
        path: Folder of the module, relative to the checkpoint.
    """

    modes: tuple[str, ...]
    include_prompt: bool = True
    path: str = ""


@dataclass(frozen=True, slots=True)
class Bag:
    """The backbone gives one row per text already: it stands where others pool."""

    path: str = ""


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer and an activation.

    Args:
        activation: Dotted class name of `torch.nn`.
        on: What it is applied to: the rows of tokens, or the pooled row.
        residual: Whether its input is added to its output, through a second linear layer where their sizes differ.
        stored_as: Name of its weight where that lies among those of the transformer; "" for a folder of its own.
    """

    in_features: int
    out_features: int
    bias: bool = True
    activation: str = "torch.nn.modules.activation.Tanh"
    path: str = ""
    on: On = "row"
    residual: bool = False
    stored_as: str = ""


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Layer norm of pooled rows."""

    dimension: int
    path: str = ""


@dataclass(frozen=True, slots=True)
class Normalize:
    """Rows to unit length: those of tokens, or the pooled one."""

    path: str = ""
    on: On = "row"


@dataclass(frozen=True, slots=True)
class WeightedLayerPooling:
    """Each token's row becomes a weighted mean of its rows after several layers.

    Args:
        first, last: Numbers of the layers, both included; 0 is the embeddings.
    """

    dimension: int
    first: int
    last: int
    path: str = ""


@dataclass(frozen=True, slots=True)
class CNN:
    """One-dimensional convolutions over the tokens of a text, side by side; `kernel_sizes` are odd."""

    in_features: int
    out_channels: int
    kernel_sizes: tuple[int, ...]
    path: str = ""


@dataclass(frozen=True, slots=True)
class LSTM:
    """A recurrent network over the tokens of a text (Hochreiter and Schmidhuber 1997)."""

    in_features: int
    hidden_size: int
    num_layers: int
    bidirectional: bool
    path: str = ""


@dataclass(frozen=True, slots=True)
class WordWeights:
    """Each token's row times the weight of its word; means divide by the sum of the weights.

    Args:
        weights: By token id.
    """

    weights: tuple[float, ...] = field(repr=False)
    path: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One linear layer of a classifier.

    Args:
        name: Of its stored tensors, without the family's prefix and without `.weight`.
        activation: One of `layers.linear.ACTIVATIONS`, or None.
        bias: Whether it has one; None where that is as the checkpoint stores it.
        row: Of the first stage: which token of a text it reads, or the mean over all.
    """

    name: str
    activation: str | None = None
    bias: bool | None = True
    row: Row = "first"


@dataclass(frozen=True, slots=True)
class StageNorm:
    """A layer norm between the linear layers of a classifier; `name` and `bias` as in `Stage`.

    `eps` is added to the variance.
    """

    name: str
    eps: float
    bias: bool | None = True


@dataclass(frozen=True, slots=True)
class LogitScore:
    """The score of a pair is the logit of one token after it, less that of another if there is one."""

    true_token_id: int
    false_token_id: int | None
    path: str = ""


@dataclass(frozen=True, slots=True)
class HeadRows:
    """A classifier that is rows of a language-model head, read at the last token.

    Args:
        ids: The token of each label.
        less: Token whose row is subtracted from each of them, or None.
    """

    ids: tuple[int, ...]
    less: int | None = None


@dataclass(frozen=True, slots=True)
class MaskedLM:
    """A masked-language-model head: a linear layer, an activation, a norm, and a product with a table of words.

    Args:
        dense, norm, decoder: Names of their stored tensors, without the family's prefix and without `.weight`.
        bias: Name of the bias of the product, where it is not stored under `decoder`.
        size: Columns of the table of words, which the linear layer ends in.
        activation: One of `layers.linear.ACTIVATIONS`.
        norm_eps: Added to the variance in the norm.
        table: Our name of the words' embeddings, which are the table where none is stored for the head.
        may_lack_bias: Whether biases that are not stored are none; else they are missing.
    """

    dense: str
    norm: str
    decoder: str
    bias: str
    size: int
    activation: str
    norm_eps: float
    table: str = "embeddings.words.weight"
    may_lack_bias: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Beginnings of the names of its stored tensors, without the family's prefix."""
        return f"{self.dense}.", f"{self.norm}.", f"{self.decoder}.", self.bias


@dataclass(frozen=True, slots=True)
class Splade:
    """Logits of a masked-language-model head to one weight per word (SPLADE, arXiv 2109.10086).

    Args:
        pooling: How weights of tokens become one: the largest, or their sum.
        num_logs: How often the logarithm of 1 + x is taken; twice in OpenSearch's models (arXiv 2504.14839).
        path: Folder of the module, relative to the checkpoint.
    """

    pooling: Literal["max", "sum"] = "max"
    num_logs: Literal[1, 2] = 1
    path: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class SparseCode:
    """Pooled rows to the largest `k` of many more values, none below 0 (arXiv 2503.01776).

    Args:
        in_features, out_features: Values of a pooled row, and of a sparse one.
        standardizes: Whether rows have mean 0 and deviation 1 first.
        of_unit: Whether they have unit length before that.
    """

    in_features: int
    out_features: int
    k: int
    standardizes: bool = False
    of_unit: bool = False
    path: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class PresentWords:
    """The weight of each word that stands in a text, however often, such as its IDF; no model reads the text.

    Args:
        weights: By token id.
    """

    weights: tuple[float, ...] = field(repr=False)
    path: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Nature:
    """What a backbone is beyond its sizes; the defaults are an encoder's.

    Args:
        causal: Whether a token sees no later one.
        causal_source: Where that stands.
        pooled: Mode of `layers.pooling.POOLS` where the checkpoint has no `modules.json`.
        pools_prompt: Whether the tokens of a prompt count there.
        why_not_float16: Why the family is not to be computed in float16, or None.
        bag: Whether it gives one row per text instead of one per token, and takes texts of any length.
        prunes: Whether it computes wanted rows alone where only some are read.
        normalizes: Whether rows have unit length where the checkpoint has no `modules.json`.
        logit_softcap: Bound that the logits of a language-model head are bent under, or None.
        masked_lm: The head of the family's masked language models; None where it has none.
        adapters: Name of each adapter that a text can be read with, and what is put before such a text.
        projection: Name of a linear layer without bias that rows of tokens go through behind the backbone, where one is
            stored; "" for none.
        shares_prefixes: Whether texts that begin alike may share the rows of that beginning: a token sees no later one,
            its row does not depend on how long its text is, and attention goes by all bounds of `Packed`.
    """

    causal: bool = False
    causal_source: str = "the architecture"
    pooled: Pooled = "cls"
    pools_prompt: bool = True
    why_not_float16: str | None = None
    bag: bool = False
    prunes: bool = True
    normalizes: bool = True
    logit_softcap: float | None = None
    masked_lm: MaskedLM | None = None
    adapters: tuple[tuple[str, str], ...] = ()
    projection: str = ""
    shares_prefixes: bool = False


Step: TypeAlias = Pooling | Bag | Dense | LayerNorm | Normalize | WeightedLayerPooling | CNN | LSTM | WordWeights


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """One value of each token, none below 0; the largest where a token stands more than once.

    Args:
        without: Ids that have none.
        path: The file of the linear layer that makes them.
    """

    in_features: int
    without: tuple[int, ...]
    path: str = field(default="", repr=False)


SparseStep: TypeAlias = Splade | SparseCode | PresentWords | TokenWeights

Stages: TypeAlias = tuple[Stage | StageNorm, ...]
"""A classifier, from its first stage, which is linear, to its last, which gives one value per label."""


@dataclass(frozen=True, slots=True)
class Reward:
    """The head of a reward model: values for each token.

    Args:
        stages: Its layers.
        num_labels: How many values; its `config.json` does not say.
        step_tag_id: Token that ends a step, so that only its positions have rows; None for all tokens.
        raw: Whether values are given as they are where nobody asks for an activation.
    """

    stages: Stages
    num_labels: int
    step_tag_id: int | None = None
    raw: bool = False


def on_tokens(step: Step) -> bool:
    """Whether a step changes the rows of tokens; such steps stand before the pooling."""
    return isinstance(step, (WeightedLayerPooling, CNN, LSTM, WordWeights)) or getattr(step, "on", "row") == "tokens"


def layers_read(step: Step) -> tuple[int, ...]:
    """Numbers of the layers whose rows a step reads beside those of the last one."""
    return tuple(range(step.first, step.last + 1)) if isinstance(step, WeightedLayerPooling) else ()


def size_after(step: Step, size: int) -> int:
    """Values of a row after `step`, of `size` values before it.

    Raises:
        CheckpointError: The step takes rows of another size.
    """
    wanted, after = _sizes(step, size)
    if wanted != size:
        raise CheckpointError(
            f"The module {type(step).__name__} in {step.path!r} takes {wanted} values, but gets {size}.",
            fix="The modules of the folder do not belong together; fetch it again.",
        )
    return after


def _sizes(step: Step, size: int) -> tuple[int, int]:
    """What a step takes, and what it gives for `size` values."""
    match step:
        case Pooling():
            return size, size * len(step.modes)
        case Dense():
            return step.in_features, step.out_features
        case CNN():
            return step.in_features, step.out_channels * len(step.kernel_sizes)
        case LSTM():
            return step.in_features, step.hidden_size * (2 if step.bidirectional else 1)
        case LayerNorm() | WeightedLayerPooling():
            return step.dimension, step.dimension
        case Bag() | Normalize() | WordWeights():
            return size, size


POOLINGS = ("cls", "max", "mean", "mean_sqrt_len", "weightedmean", "last")
"""Modes of pooling, in the order in which several at once are put side by side."""

Rows = Literal["first", "last", "all"]
"""Which rows of a sequence somebody reads."""


def rows_read(modes: tuple[str, ...], *, skips: bool = False) -> Rows:
    """The rows that pooling by `modes` reads; `skips` says that the first ones may be a prompt's and not count."""
    if modes == ("last",):
        return "last"
    return "first" if modes == ("cls",) and not skips else "all"
