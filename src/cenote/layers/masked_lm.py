"""The head of masked language models: hidden states to one logit per word.

Logits of a whole batch would be `[Q, V]`, often a hundred times its hidden states, so they are made in blocks of rows
and each block is used up before the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import WeightMismatch
from ..steps import MaskedLM
from .linear import Linear, prepare

BLOCK_VALUES = 2**23
"""About how many logits one block has; 32 MiB in float32."""
MIN_BLOCK_ROWS = 128
"""Fewer rows would read a large table too often."""


class MaskedLMHead(nn.Module):
    """A linear layer, an activation, a norm, and the product with a table of words.

    The table may be the words' embeddings themselves; it is never packed, so it costs no memory of its own.
    """

    def __init__(self, step: MaskedLM, hidden_size: int, vocab_size: int) -> None:
        super().__init__()
        self.dense = Linear(hidden_size, step.size, activation=step.activation)
        self.norm = nn.LayerNorm(step.size, eps=step.norm_eps)
        self.table_VE = nn.Parameter(torch.empty(vocab_size, step.size), requires_grad=False)
        self.bias_V = nn.Parameter(torch.empty(vocab_size), requires_grad=False)

    @property
    def vocab_size(self) -> int:
        """`V`."""
        return len(self.bias_V)

    def forward(self, hidden_QD: Tensor) -> Tensor:
        """`[Q, D]` to logits `[Q, V]`, all at once; for few rows."""
        return self._logits(self._transformed(hidden_QD))

    def blocks(self, hidden_QD: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Logits of rows that follow each other: the first row's number, and `[n, V]` in float32."""
        rows_QE = self._transformed(hidden_QD)
        size = max(MIN_BLOCK_ROWS, BLOCK_VALUES // self.vocab_size)
        for start in range(0, len(rows_QE), size):
            yield start, self._logits(rows_QE[start : start + size])

    def _transformed(self, hidden_QD: Tensor) -> Tensor:
        norm = self.norm
        return F.layer_norm(self.dense(hidden_QD), norm.normalized_shape, norm.weight, norm.bias, norm.eps)

    def _logits(self, rows_nE: Tensor) -> Tensor:
        return F.linear(rows_nE, self.table_VE, self.bias_V).float()


def build_masked_lm(step: MaskedLM, tensors: Mapping[str, Tensor], table_VE: Tensor, hidden_size: int) -> MaskedLMHead:
    """Make the head and fill it, in the precision and on the device of the words' embeddings.

    Args:
        tensors: Stored name, without prefix -> tensor.
        table_VE: The words' embeddings, used where the head has no table of its own.

    Raises:
        WeightMismatch: A weight is missing or has another shape.
    """
    with torch.device("meta"):
        head = MaskedLMHead(step, hidden_size, len(table_VE))
    own_bias = f"{step.decoder}.bias"
    of = {
        "dense.weight": f"{step.dense}.weight",
        "dense.bias": f"{step.dense}.bias",
        "norm.weight": f"{step.norm}.weight",
        "norm.bias": f"{step.norm}.bias",
        "table_VE": f"{step.decoder}.weight",
        # Where both are stored and differ, transformers reads the one beside the product's own weight.
        "bias_V": own_bias if own_bias in tensors else step.bias,
    }
    for name, parameter in list(head.named_parameters()):
        stored = tensors.get(of[name], table_VE if name == "table_VE" else None)
        if stored is None and step.may_lack_bias and "bias" in name:
            stored = torch.zeros(parameter.shape)
        if stored is None or stored.shape != parameter.shape:
            what = "is not stored" if stored is None else f"has shape {tuple(stored.shape)}"
            raise WeightMismatch(
                f"{of[name]} of the masked-language-model head {what}.",
                allowed=f"Its shape is {tuple(parameter.shape)}.",
                fix="Fetch the checkpoint again.",
            )
        owner, _, leaf = name.rpartition(".")
        value = stored.to(device=table_VE.device, dtype=table_VE.dtype)
        setattr(head.get_submodule(owner), leaf, nn.Parameter(value, requires_grad=False))
    prepare(head)
    return head.eval()
