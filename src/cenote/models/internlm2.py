"""InternLM2 (Cai et al. 2024, arXiv 2403.17297): Llama whose queries, keys and values are one matrix, group by group.

Each group is the queries that share a key, then that key and its value, so that a file can be split between devices.
Its reward models value each token; a conversation's reward is the value of its last token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from torch import Tensor

from ..steps import Reward, Stage
from . import llama

PREFIXES = llama.PREFIXES
RENAME = (
    (r"^tok_embeddings\.", "words."),
    (r"^norm\.", "decoder.norm."),
    (r"^layers\.(\d+)\.attention\.([qkv])\.", r"decoder.blocks.\1.qkv.\2."),
    (r"^layers\.(\d+)\.attention\.wo\.", r"decoder.blocks.\1.out."),
    (r"^layers\.(\d+)\.feed_forward\.w1\.", r"decoder.blocks.\1.gate_up.gate."),
    (r"^layers\.(\d+)\.feed_forward\.w3\.", r"decoder.blocks.\1.gate_up.up."),
    (r"^layers\.(\d+)\.feed_forward\.w2\.", r"decoder.blocks.\1.down."),
    (r"^layers\.(\d+)\.attention_norm\.", r"decoder.blocks.\1.attention_norm."),
    (r"^layers\.(\d+)\.ffn_norm\.", r"decoder.blocks.\1.inner_norm."),
)
IGNORED = (
    (r"^output\.", "the language-model head, which no pooling reads"),
    (r"rotary_emb\.inv_freq$", "frequencies that the config states too"),
)
HEADS = llama.HEADS
LM_HEAD = ("output", "tok_embeddings")
REWARDS = {"InternLM2ForRewardModel": Reward((Stage("v_head", bias=False),), 1)}
"""As its makers' code has it."""

_PACKED: Final = re.compile(r"(.*\.attention\.)wqkv(\.(?:weight|bias))")


@dataclass(frozen=True)
class Config(llama.Config):
    """As Llama's."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`; `bias` is that of the attention's linear layers, and on unless it says no."""
        bias = bool(raw.get("bias", True))
        return cls.plain(raw).shaped(qkv_bias=bias, out_bias=bias)


Model = llama.Model


def gathered(tensors: Iterator[tuple[str, Tensor]], config: Config) -> Iterator[tuple[str, Tensor]]:
    """The packed matrices as those of all queries, of all keys and of all values."""
    shape = config.shape
    per_group = shape.num_heads // shape.num_key_heads
    rows = (shape.num_heads + 2 * shape.num_key_heads) * shape.head_size
    for name, tensor in tensors:
        packed = _PACKED.fullmatch(name)
        if packed is None or len(tensor) != rows:  # the audit says what has another shape
            yield name, tensor
            continue
        groups = tensor.unflatten(0, (shape.num_key_heads, per_group + 2, shape.head_size))
        for part, place in (("q", slice(per_group)), ("k", slice(-2, -1)), ("v", slice(-1, None))):
            yield f"{packed[1]}{part}{packed[2]}", groups[:, place].flatten(0, 2)
