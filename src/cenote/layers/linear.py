"""The only linear there is. How its product is computed is chosen once, after its weights are in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import ConfigError
from .adapters import Adapters, AdapterSizes
from .gated import GatedPanels
from .int8 import Int8Product, why_not_int8
from .kernels import Kernels, Panels, Weight

ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
"""Activations of feed-forwards, by our names. `gelu` is the exact one (erf)."""

# oneDNN's names of the activations that it computes while the product is still in registers.
_ONEDNN_EPILOGUES: Final[Mapping[str | None, tuple[str, str]]] = {
    None: ("none", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "relu": ("relu", ""),
    "tanh": ("tanh", ""),
}


class Linear(nn.Module):
    """`activation(x @ weight.T + bias)`, or of two parts of that the activated one times the other.

    Args:
        in_features, out_features: Sizes; `weight` is `[out_features, in_features]`.
        bias: Whether a bias is added.
        activation: One of `ACTIVATIONS`, or None.
        parts: Name -> rows, where checkpoints keep `weight` and `bias` as several tensors that are stacked here in
            this order (query, key and value, say), or as one. The loader fills `NAME.PART.weight` or `NAME.weight`.
        gate: Name of that one of two equal parts which is activated, where they are multiplied (arXiv 2002.05202); the
            result is half as wide. None where all of the product is activated.
        adapters: Of the updates that rows can choose from, or None.

    Attributes:
        kernels: Our own kernels, if `prepare` is to choose them.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        activation: str | None = None,
        parts: Mapping[str, int] | None = None,
        gate: str | None = None,
        adapters: AdapterSizes | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.activation = activation
        self.parts = dict(parts or {})
        self.gate = gate
        self.weight: nn.Parameter | None = nn.Parameter(torch.empty(out_features, in_features), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(out_features), requires_grad=False) if bias else None
        self.adapters = None if adapters is None else Adapters(adapters, in_features, out_features)
        self.int8 = False
        self.kernels: Kernels | None = None
        self._panels: Panels | None = None
        self._gated: GatedPanels | None = None
        self._prepacked: Tensor | None = None
        self._int8: Int8Product | None = None

    def only(self, *names: str) -> Linear:
        """A layer of some neighbouring parts, on the same weights; after loading and before `prepare`."""
        assert self.weight is not None
        assert self.gate is None
        starts = dict(zip(self.parts, accumulate(self.parts.values(), initial=0), strict=False))
        size = sum(self.parts[name] for name in names)
        rows = slice(starts[names[0]], starts[names[0]] + size)
        with torch.device("meta"):
            part = Linear(self.in_features, size, bias=self.bias is not None, activation=self.activation)
        part.weight = nn.Parameter(self.weight[rows], requires_grad=False)
        part.bias = None if self.bias is None else nn.Parameter(self.bias[rows], requires_grad=False)
        part.adapters = None if self.adapters is None else self.adapters.only(rows)
        part.int8, part.kernels = self.int8, self.kernels
        return part

    def transposed(self) -> Linear:
        """A layer without bias and activation whose weight is this one's transposed; before `prepare`."""
        assert self.weight is not None
        with torch.device("meta"):
            other = Linear(self.out_features, self.in_features, bias=False)
        other.weight = nn.Parameter(self.weight.t(), requires_grad=False)
        other.kernels = self.kernels
        return other

    def prepare(self) -> None:
        """Choose how to compute, once, after loading; packs the weight for our kernels or for oneDNN."""
        if self.weight is not None and self.int8:
            self._int8, self.weight = Int8Product(self.weight.detach(), self.bias, self.kernels), None
        elif self.weight is not None and self.kernels is not None and self.gate is not None and self.adapters is None:
            weights = self._gate_first(self.weight.detach(), 0)
            biases = () if self.bias is None else self._gate_first(self.bias, 0)
            self._gated, self.weight = GatedPanels(self.kernels, *weights, *biases), None
        elif self.weight is not None and self.kernels is not None:
            self._panels, self.weight = Panels(self.kernels, self.weight.detach()), None
        elif self.weight is not None and why_not_onednn(self.weight) is None:
            # The batch size is only a hint for the layout that oneDNN picks; any size runs.
            self._prepacked = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), 512)
            self.weight = None

    @property
    def packed(self) -> Weight | None:
        """What our own kernels multiply by, or None where others multiply; after `prepare`."""
        return None if self._panels is None else Weight(self._panels, self.bias)

    @property
    def int8_product(self) -> Int8Product | None:
        """The product in int8, or None where it is another; after `prepare`."""
        return self._int8

    def forward(self, x: Tensor, chosen: Tensor | None = None) -> Tensor:
        """`[..., in_features]` to `[..., out_features]`, or to half of them where one part is a gate.

        Args:
            chosen: Which adapters the rows `[T, in_features]` take, by `AdapterSizes.chosen`; None for none.
        """
        if self._gated is not None and chosen is None:
            return self._gated.times(x, self.activation)
        if self.gate is None and chosen is None:
            return self._product(x, self.activation)
        out = self._product(x, None)
        if chosen is not None:
            assert self.adapters is not None
            out = out.add_(self.adapters(x, chosen))
        if self.gate is None:
            return out if self.activation is None else ACTIVATIONS[self.activation](out)
        gate, up = self._gate_first(out, -1)
        return gate * up if self.activation is None else ACTIVATIONS[self.activation](gate).mul_(up)

    def _gate_first(self, both: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """The part that is the gate and the other one."""
        first, second = both.chunk(2, dim)
        return (first, second) if next(iter(self.parts)) == self.gate else (second, first)

    def _product(self, x: Tensor, activation: str | None) -> Tensor:
        if self._panels is not None:
            return self._panels.times(x, self.bias, activation)
        if self._prepacked is not None:
            return self._onednn(x, self._prepacked, activation)
        if self._int8 is not None:
            fused = self.kernels is not None
            out: Tensor = self._int8(x, activation if fused else None)
            activation = None if fused else activation
        else:
            assert self.weight is not None
            out = F.linear(x, self.weight, self.bias)
        return out if activation is None else ACTIVATIONS[activation](out)

    def _onednn(self, x: Tensor, prepacked: Tensor, activation: str | None) -> Tensor:
        fused = _ONEDNN_EPILOGUES.get(activation)
        name, algorithm = fused or ("none", "")
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, prepacked, self.bias, name, [], algorithm)
        return out if fused or activation is None else ACTIVATIONS[activation](out)

    def extra_repr(self) -> str:
        chosen = {"int8": self._int8, "kernels": self._panels or self._gated, "onednn": self._prepacked}
        backend = next((name for name, product in chosen.items() if product is not None), "torch")
        return f"{self.in_features}, {self.out_features}, activation={self.activation}, backend={backend}"


def why_not_onednn(weight: Tensor) -> str | None:
    """Why prepacked oneDNN products cannot be used for `weight`, or None where they can."""
    if weight.device.type != "cpu":
        return f"the weight is on {weight.device.type}"
    if weight.dtype != torch.float32:
        return f"the weight is {weight.dtype}"
    if not torch.backends.mkldnn.is_available():
        return "this build of PyTorch has no oneDNN"
    needed = ("_reorder_linear_weight", "_linear_pointwise")
    if not all(hasattr(torch.ops.mkldnn, name) for name in needed):
        return "this version of PyTorch has no prepacked oneDNN linear"
    return None


def quantize(module: nn.Module) -> None:
    """Let every layer under `module` multiply in int8 from `prepare` on; after its weights are in.

    Raises:
        ConfigError: A layer cannot.
    """
    for child in module.modules():
        if not isinstance(child, Linear) or child.weight is None:
            continue
        why_not = why_not_int8(child.weight)
        if why_not is not None:
            raise ConfigError(
                f"quantization='int8', but {why_not}.",
                fix="Use --device cpu and --dtype float32, or leave quantization out.",
                param="quantization",
            )
        child.int8 = True


def prepare(module: nn.Module) -> None:
    """Call `prepare()` of every module under `module` that has one; once, after its weights are in."""
    for child in module.modules():
        ready = getattr(child, "prepare", None)
        if callable(ready):
            ready()
