"""What comes after the backbone, in float32: the steps of `modules.json`, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import CheckpointError, WeightMismatch
from ..steps import (
    CNN,
    LSTM,
    Bag,
    Dense,
    LayerNorm,
    Normalize,
    Pooling,
    Stage,
    StageNorm,
    Stages,
    Step,
    WeightedLayerPooling,
    WordWeights,
)
from .linear import Linear, prepare
from .masked_lm import MaskedLMHead
from .pooling import Spans
from .pooling import find as find_pooling
from .token_steps import Convolutions, Recurrent, TokenRows, WeightedLayers, WeightedWords

NORM_EPS = 1e-12
"""Smallest length that a vector is divided by, so that the zero vector stays zero."""


class PoolingLayer(nn.Module):
    """Rows of each sequence to one row; several modes are put side by side, in the order given."""

    def __init__(self, step: Pooling) -> None:
        super().__init__()
        self.pools = [find_pooling(mode) for mode in step.modes]

    def forward(self, hidden_QD: Tensor, spans: Spans) -> Tensor:
        """`[Q, D]` to `[S, D * number of modes]`."""
        rows = [pool(hidden_QD, spans) for pool in self.pools]
        return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)


class BagLayer(nn.Module):
    """Takes the one row of each text as it is."""

    def forward(self, rows_SD: Tensor, spans: Spans) -> Tensor:
        """`[Q, D]` to `[S, D]`."""
        return rows_SD[spans.firsts_S]


class DenseLayer(nn.Module):
    """A linear layer and an activation, named by its class in `torch.nn`."""

    def __init__(self, step: Dense) -> None:
        super().__init__()
        self.linear = Linear(step.in_features, step.out_features, bias=step.bias)
        self.activation = activation_of(step.activation)
        self.adds_input = step.residual
        self.residual: Linear | None = None
        if step.residual and step.in_features != step.out_features:
            self.residual = Linear(step.in_features, step.out_features, bias=False)

    def forward(self, rows_SD: Tensor) -> Tensor:
        out: Tensor = self.activation(self.linear(rows_SD))
        if self.adds_input:
            out = out + (rows_SD if self.residual is None else self.residual(rows_SD))
        return out


class NormalizeLayer(nn.Module):
    """Rows to unit length."""

    def forward(self, rows_SD: Tensor) -> Tensor:
        return F.normalize(rows_SD, dim=-1, eps=NORM_EPS)


class LayerNormLayer(nn.Module):
    """Layer norm of pooled rows."""

    def __init__(self, step: LayerNorm) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(step.dimension)

    def forward(self, rows_SD: Tensor) -> Tensor:
        out: Tensor = self.norm(rows_SD)
        return out


class Classifier(nn.Module):
    """Linear layers, and norms between them, that end in one value per label, in float32."""

    def __init__(self, stages: Stages, hidden_size: int, num_labels: int, pooling: str | None) -> None:
        super().__init__()
        self.pool = None if pooling is None else find_pooling(pooling)
        self.stages = nn.ModuleList(
            nn.LayerNorm(hidden_size, eps=stage.eps, bias=stage.bias is not False)
            if isinstance(stage, StageNorm)
            else Linear(
                hidden_size,
                num_labels if stage is stages[-1] else hidden_size,
                bias=stage.bias is not False,
                activation=stage.activation,
            )
            for stage in stages
        )

    def forward(self, rows: Tensor) -> Tensor:
        """`[n, D]` to logits `[n, L]`."""
        rows = rows.float()
        for stage in self.stages:
            rows = stage(rows)
        return rows

    def of_texts(self, hidden_QD: Tensor, spans: Spans) -> Tensor:
        """Hidden states to logits `[S, L]`, each of the row that its text is pooled to."""
        assert self.pool is not None
        return self.forward(self.pool(hidden_QD, spans))


class Head(nn.Module):
    """The steps after the backbone: those on tokens, the pooling if there is one, those on its row."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        kinds = (Pooling, Bag)
        at = next((place for place, step in enumerate(steps) if isinstance(step, kinds)), len(steps))
        self.before = nn.ModuleList(_layer(step) for step in steps[:at])
        self.pooling = _layer(steps[at]) if at < len(steps) else None
        self.rest = nn.ModuleList(_layer(step) for step in steps[at + 1 :])

    def in_order(self) -> list[nn.Module]:
        """The layers, one for each step."""
        return [*self.before, *([] if self.pooling is None else [self.pooling]), *self.rest]

    def of_tokens(self, tokens: TokenRows) -> TokenRows:
        """The steps before the pooling."""
        if tokens.rows_QD.dtype != torch.float32:
            tokens = replace(tokens, rows_QD=tokens.rows_QD.float())
        for layer in self.before:
            if isinstance(layer, (DenseLayer, NormalizeLayer)):
                tokens = replace(tokens, rows_QD=layer(tokens.rows_QD))
            else:
                tokens = layer(tokens)
        return tokens

    def forward(self, hidden_QD: Tensor, spans: Spans, mode: str = "") -> Tensor:
        """Rows of tokens, after `of_tokens`, to rows of texts, `[S, E]` float32; `mode` is another pooling."""
        assert self.pooling is not None
        pooled_SD: Tensor = find_pooling(mode)(hidden_QD, spans) if mode else self.pooling(hidden_QD, spans)
        return self.after_pooling(pooled_SD)

    def after_pooling(self, rows: Tensor) -> Tensor:
        """Rows `[n, D]`, pooled or one per token, through the other steps: `[n, E]` float32."""
        rows = rows.float()
        for layer in self.rest:
            rows = layer(rows)
        return rows


@dataclass(frozen=True)
class Heads:
    """All that the tasks of one checkpoint read hidden states with.

    Args:
        pooled: The steps of `modules.json`; None for a classifier.
        classifier: Rows to logits; None for an embedder.
        masked_lm: Rows to logits of words; None where there is no such head.
        sparse: Hidden states to sparse rows, `(hidden_QD, spans) -> Ragged`; None where there are none.
        multi_vector: Rows of tokens to vectors of theirs; None where those are made as a text's are.
    """

    pooled: Head | None = None
    classifier: Classifier | None = None
    masked_lm: MaskedLMHead | None = None
    sparse: nn.Module | None = None
    multi_vector: DenseLayer | None = None


def build_classifier(
    stages: Stages,
    tensors: Mapping[str, Tensor],
    hidden_size: int,
    num_labels: int,
    device: torch.device,
    *,
    pooling: str | None,
) -> Classifier:
    """Make the classifier and fill it.

    Args:
        pooling: Mode of pooling that makes the row of a text; None where tokens alone are classified.
        tensors: Stored name, without prefix -> tensor.

    Raises:
        WeightMismatch: A stage lacks a weight, or has one of another shape.
    """
    with torch.device("meta"):
        known = tuple(_as_stored(stage, tensors) for stage in stages)
        classifier = Classifier(known, hidden_size, num_labels, pooling)
    classifier = classifier.to_empty(device=device)
    for stage, layer in zip(stages, classifier.stages, strict=True):
        dot = f"{stage.name}."
        fill(stage.name, layer, {name.removeprefix(dot): t for name, t in tensors.items() if name.startswith(dot)})
    prepare(classifier)
    return classifier.eval()


def build(steps: Sequence[Step], tensors: Mapping[str, Iterable[tuple[str, Tensor]]], device: torch.device) -> Head:
    """Make the head and fill it.

    Args:
        steps: Of the recipe.
        tensors: Path of a step -> the names and tensors stored there.

    Raises:
        WeightMismatch: A step lacks a weight, or has one that nobody uses.
    """
    with torch.device("meta"):
        head = Head(steps)
    head = head.to_empty(device=device)
    for step, layer in zip(steps, head.in_order(), strict=True):
        fill(f"{type(step).__name__} in {step.path!r}", layer, dict(tensors.get(step.path, ())))
    prepare(head)
    return head.eval()


def build_dense(step: Dense, tensors: Mapping[str, Tensor], device: torch.device) -> DenseLayer:
    """Make one linear layer and its activation, and fill it; arguments as of `build`, and errors."""
    with torch.device("meta"):
        layer = DenseLayer(step)
    layer = layer.to_empty(device=device)
    fill(f"{type(step).__name__} in {step.path!r}", layer, tensors)
    prepare(layer)
    return layer.eval()


def activation_of(dotted: str) -> nn.Module:
    """An activation by its dotted class name; only classes of `torch.nn` that need no argument.

    Raises:
        CheckpointError: The name is another one.
    """
    allowed = "Allowed are classes of torch.nn that need no arguments."
    name = dotted.rsplit(".", 1)[-1]
    kind = getattr(nn, name, None)
    if not dotted.startswith("torch.nn.") or not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise CheckpointError(f"The activation {dotted!r} is not allowed.", allowed=allowed)
    try:
        return kind()
    except TypeError as error:
        raise CheckpointError(f"The activation {dotted!r} needs arguments: {error}.", allowed=allowed) from error


def _as_stored(stage: Stage | StageNorm, tensors: Mapping[str, Tensor]) -> Stage | StageNorm:
    return replace(stage, bias=f"{stage.name}.bias" in tensors) if stage.bias is None else stage


def _layer(step: Step) -> nn.Module:
    match step:
        case Pooling():
            return PoolingLayer(step)
        case Bag():
            return BagLayer()
        case Dense():
            return DenseLayer(step)
        case LayerNorm():
            return LayerNormLayer(step)
        case Normalize():
            return NormalizeLayer()
        case WeightedLayerPooling():
            return WeightedLayers(step)
        case CNN():
            return Convolutions(step)
        case LSTM():
            return Recurrent(step)
        case WordWeights():
            return WeightedWords(step)


def fill(what: str, layer: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy stored tensors into a layer, in float32.

    Args:
        what: Names the layer, for the message.
        tensors: Name -> tensor.

    Raises:
        WeightMismatch: A weight is missing, or has another shape, or nobody uses one.
    """
    wanted = dict(layer.named_parameters())
    missing, unused = sorted(set(wanted) - set(tensors)), sorted(set(tensors) - set(wanted))
    if missing or unused:
        raise WeightMismatch(
            f"{what} lacks {missing} and has no use for {unused}.",
            fix="Save the checkpoint again, or fetch its folder again.",
        )
    for name, parameter in wanted.items():
        stored = tensors[name]
        if stored.shape != parameter.shape:
            shapes = f"{tuple(stored.shape)}; its config.json says {tuple(parameter.shape)}"
            raise WeightMismatch(f"{name} of {what} has shape {shapes}.")
        parameter.requires_grad_(False)
        parameter.copy_(stored.float())
