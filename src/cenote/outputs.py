"""What the offline API gives back: the reference's classes, fields and reprs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .errors import BadInput, CenoteError
from .types import FloatArray

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
R = TypeVar("R", bound="RequestOutput[Any]")


@dataclass(eq=False, slots=True)
class PoolingOutput:
    """Pooled data of any task.

    Args:
        data: float32 tensor, `[E]` for one vector per input; a sparse one `[V]` for the task `sparse`.
    """

    data: torch.Tensor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PoolingOutput) or self.data.shape != other.data.shape:
            return False
        return bool((self.data.to_dense() == other.data.to_dense()).all())


@dataclass(slots=True, repr=False)
class EmbeddingOutput:
    """One vector.

    Args:
        embedding: `E` numbers.
    """

    embedding: list[float]

    @property
    def hidden_size(self) -> int:
        """Size of the vector."""
        return len(self.embedding)

    def __repr__(self) -> str:
        return f"EmbeddingOutput(hidden_size={self.hidden_size})"


@dataclass(slots=True, repr=False)
class SparseEmbeddingOutput:
    """One sparse vector: what is not zero, by dimension.

    Args:
        indices: Numbers of the dimensions, ascending.
        values: One for each.
        tokens: The vocabulary's spelling of each dimension; None where dimensions are no words.
        size: How many dimensions there are.
    """

    indices: list[int]
    values: list[float]
    tokens: list[str] | None
    size: int

    def __repr__(self) -> str:
        return f"SparseEmbeddingOutput(active={len(self.indices)}, size={self.size})"


@dataclass(slots=True, repr=False, eq=False)
class HybridOutput:
    """All that one forward gives of a text.

    Args:
        embedding: Its vector, float32 `[E]`.
        sparse: Its sparse vector.
        token_embeddings: Vectors of its tokens, all but the first, float32 `[n, C]`.
    """

    embedding: FloatArray
    sparse: SparseEmbeddingOutput
    token_embeddings: FloatArray

    def __repr__(self) -> str:
        sizes = f"embedding={self.embedding.shape}, token_embeddings={self.token_embeddings.shape}"
        return f"HybridOutput({sizes}, sparse={self.sparse!r})"


@dataclass(slots=True, repr=False)
class ClassificationOutput:
    """One value per label.

    Args:
        probs: `L` probabilities, or raw values where no activation was asked for.
        labels: Names of the labels, in the same order.
    """

    probs: list[float]
    labels: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        """How many labels there are."""
        return len(self.probs)

    @property
    def label(self) -> str | None:
        """Name of the likeliest label."""
        return self.labels[max(range(len(self.probs)), key=self.probs.__getitem__)] if self.labels else None

    def __repr__(self) -> str:
        return f"ClassificationOutput(num_classes={self.num_classes})"


@dataclass(slots=True)
class ScoringOutput:
    """How well two texts fit together; larger is better."""

    score: float


@dataclass(slots=True)
class RerankResult:
    """One document of a ranking.

    Args:
        index: Its position among the documents that were handed in.
        score: How well it fits the query.
        document: Its text.
    """

    index: int
    score: float
    document: str


@dataclass(slots=True, repr=False)
class RequestOutput(Generic[T]):
    """The answer to one input.

    Args:
        request_id: Of this input within the process.
        outputs: What was asked for.
        prompt_token_ids: Ids that the model read, special tokens included, after cutting.
        num_cached_tokens: How many of them a cache answered.
        finished: Always True; here for the reference's users.
        num_cut_tokens: How many tokens were cut off to fit the limit, at least; of a long text only a start is counted.
        num_pieces: In how many pieces the model read it; more than one where it is longer than the model and was
            embedded in pieces, and two or more for a pair whose texts are read apart.
        error: Why there is no answer, or None.
    """

    request_id: str
    outputs: T
    prompt_token_ids: list[int]
    num_cached_tokens: int = 0
    finished: bool = True
    num_cut_tokens: int = field(default=0, kw_only=True)
    num_pieces: int = field(default=1, kw_only=True)
    error: CenoteError | None = field(default=None, kw_only=True)

    @property
    def truncated(self) -> bool:
        """Whether the input was cut."""
        return self.num_cut_tokens > 0

    def __repr__(self) -> str:
        end = f", error={self.error!r})" if self.error else ")"
        return (
            f"{type(self).__name__}(request_id={self.request_id!r}, outputs={self.outputs!r}, "
            f"prompt_token_ids={self.prompt_token_ids}, num_cached_tokens={self.num_cached_tokens}, "
            f"finished={self.finished}{end}"
        )


class PoolingRequestOutput(RequestOutput[PoolingOutput]):
    """The answer of `LLM.encode`."""

    __slots__ = ()

    def as_other(self, kind: type[R], outputs: Any) -> R:
        """The same answer with other outputs."""
        about = (self.prompt_token_ids, self.num_cached_tokens, self.finished)
        return kind(
            self.request_id,
            outputs,
            *about,
            num_cut_tokens=self.num_cut_tokens,
            num_pieces=self.num_pieces,
            error=self.error,
        )

    def vector(self, called: str) -> list[float]:
        """The data as numbers; none where there is an error.

        Raises:
            BadInput: The data has not one axis, as that of `called` has.
        """
        if self.error is not None:
            return []
        if self.outputs.data.ndim != 1:
            what = f"The data has shape {tuple(self.outputs.data.shape)}; pooled_data should be a 1-D {called} vector."
            raise BadInput(what, param="pooled_data")
        numbers: list[float] = self.outputs.data.tolist()
        return numbers


class ClassificationRequestOutput(RequestOutput[ClassificationOutput]):
    """The answer of `LLM.classify`."""

    __slots__ = ()

    @classmethod
    def from_base(cls, base: PoolingRequestOutput) -> ClassificationRequestOutput:
        """An answer of `LLM.encode`; raises `BadInput` where its data is no vector."""
        return base.as_other(cls, ClassificationOutput(base.vector("probability")))


class SparseEmbeddingRequestOutput(RequestOutput[SparseEmbeddingOutput]):
    """The answer of `LLM.embed_sparse`."""

    __slots__ = ()


class HybridRequestOutput(RequestOutput[HybridOutput]):
    """The answer of `LLM.embed_all`."""

    __slots__ = ()


class ScoringRequestOutput(RequestOutput[ScoringOutput]):
    """The answer of `LLM.score`."""

    __slots__ = ()

    @classmethod
    def from_base(cls, base: PoolingRequestOutput) -> ScoringRequestOutput:
        """An answer of `LLM.encode`; raises `BadInput` where its data is not one number."""
        data = base.outputs.data
        if base.error is None and data.numel() != 1:
            what = f"The data has shape {tuple(data.shape)}; pooled_data should be a scalar score."
            raise BadInput(what, param="pooled_data")
        return base.as_other(cls, ScoringOutput(0.0 if base.error is not None else float(data)))


class EmbeddingRequestOutput(RequestOutput[EmbeddingOutput]):
    """The answer of `LLM.embed`."""

    __slots__ = ()

    @classmethod
    def from_base(cls, base: PoolingRequestOutput) -> EmbeddingRequestOutput:
        """An answer of `LLM.encode`; raises `BadInput` where its data is no vector."""
        return base.as_other(cls, EmbeddingOutput(base.vector("embedding")))


@dataclass(frozen=True)
class PoolingParams:
    """Options of pooling, under the reference's names.

    Args:
        use_activation: For `embed`, whether vectors have unit length; None as the checkpoint says.
        dimensions: Cut vectors to this size before normalising.
        task: The task; must agree with the method that is called.
        step_tag_id, returned_token_ids: Options of step-wise rewards, which `embed` refuses.
        extra_kwargs: Further options of a task; `embed` has none.
        pooling: For `embed`, a mode of pooling in place of the checkpoint's; the reference has no such field.
    """

    use_activation: bool | None = None
    dimensions: int | None = None
    task: str | None = None
    step_tag_id: int | None = None
    returned_token_ids: Sequence[int] | None = None
    extra_kwargs: dict[str, Any] | None = None
    pooling: str | None = None

    def given(self) -> list[str]:
        """Names of the options that are set, the task aside."""
        names = ("use_activation", "dimensions", "step_tag_id", "returned_token_ids", "extra_kwargs", "pooling")
        return [name for name in names if getattr(self, name) is not None]
