"""A feed-forward of experts: a router sends each token to a few of them (Shazeer et al. 2017, arXiv 1701.06538)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .linear import Linear


@dataclass(frozen=True)
class ExpertsShape:
    """Sizes: `D`, `I`, one of `linear.ACTIVATIONS`, how many experts there are, and how many a token goes to."""

    hidden_size: int
    inner_size: int
    activation: str
    num_experts: int
    top: int


class Experts(nn.Module):
    """The sum of what the chosen experts make of a token, each times its share, plus one bias for all.

    Shares are those among all experts, so the ones of the chosen do not sum to 1. The weights of all experts are stored
    one under the other, `[num_experts * I, D]`, those on the way down transposed.
    """

    def __init__(self, shape: ExpertsShape) -> None:
        super().__init__()
        size, rows = shape.hidden_size, shape.num_experts * shape.inner_size
        self._top = shape.top
        self._parts = {str(number): shape.inner_size for number in range(shape.num_experts)}
        self.router = Linear(size, shape.num_experts, bias=False)
        self.ups: Linear | None = Linear(size, rows, bias=False, activation=shape.activation, parts=self._parts)
        self.downs: Linear | None = Linear(size, rows, bias=False, parts=self._parts)
        self.bias = nn.Parameter(torch.empty(size), requires_grad=False)
        self.experts = nn.ModuleList()

    def prepare(self) -> None:
        """Make a pair of layers of each expert, once, after loading and before these are prepared themselves."""
        assert self.ups is not None
        assert self.downs is not None
        for name in self._parts:
            self.experts.append(nn.ModuleList((self.ups.only(name), self.downs.only(name).transposed())))
        self.ups = self.downs = None

    def forward(self, hidden_TD: Tensor, chosen: Tensor | None = None) -> Tensor:
        """`[T, D]` to `[T, D]`."""
        shares_TE = torch.softmax(self.router(hidden_TD), dim=-1, dtype=torch.float32)
        shares_Tk, chosen_Tk = torch.topk(shares_TE, self._top, dim=-1)
        summed_TD = torch.zeros_like(hidden_TD)
        for number, expert in enumerate(self.experts):
            tokens, places = torch.where(chosen_Tk == number)
            out = self._through(expert, hidden_TD[tokens])
            summed_TD.index_add_(0, tokens, out * shares_Tk[tokens, places, None].to(out.dtype))
        return summed_TD.add_(self.bias)

    def _through(self, expert: nn.Module, rows: Tensor) -> Tensor:
        assert isinstance(expert, nn.ModuleList)
        up, down = expert
        out: Tensor = down(up(rows))
        return out
