"""XLM-RoBERTa as Jina AI rebuilt it: jina-embeddings-v3 (Sturua et al. 2024, arXiv 2409.10173) and its relatives.

XLM-RoBERTa with rotary positions, or with learned ones under other names (jina-reranker-v2). Checkpoints may hold
adapters for tasks, one low-rank update a task of every table and linear layer; each text is read with one of them, or
with none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from torch import Tensor

from ..errors import CheckpointError
from ..hf import Raw
from ..layers.adapters import AdapterSizes
from ..layers.packed import Packed
from ..rope import read, stated
from ..steps import Nature
from . import bert, gte, roberta

PREFIXES = roberta.PREFIXES
RENAME = (
    (r"\.parametrizations\.weight\.original$", ".weight"),
    (r"\.parametrizations\.weight\.0\.lora_A$", ".adapters.a"),
    (r"\.parametrizations\.weight\.0\.lora_B$", ".adapters.b"),
    *bert.RENAME[:4],
    (r"^emb_ln\.", "embeddings.norm."),
    (r"^encoder\.layers\.(\d+)\.mixer\.Wqkv\.", r"encoder.blocks.\1.qkv."),
    (r"^encoder\.layers\.(\d+)\.mixer\.out_proj\.", r"encoder.blocks.\1.out."),
    (r"^encoder\.layers\.(\d+)\.norm1\.", r"encoder.blocks.\1.attention_norm."),
    (r"^encoder\.layers\.(\d+)\.norm2\.", r"encoder.blocks.\1.norm."),
    (r"^(encoder\.)?layers\.(\d+)\.mlp\.fc1\.", r"encoder.blocks.\2.inner.up."),
    (r"^(encoder\.)?layers\.(\d+)\.mlp\.fc2\.", r"encoder.blocks.\2.inner.down."),
    *gte.TRANSFORMERS,
)
IGNORED = (*roberta.IGNORED, (r"rotary_emb\.inv_freq$", "frequencies that the config states too"))
HEADS = roberta.HEADS

_ONLY: Final[Mapping[str, Any]] = {
    "pad_vocab_size_multiple": 1,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "quantization_config": None,
}
# Of the rotary positions, where `config.json` names none; transformers calls the family by a name of its own.
_BASES: Final = {"jina_embeddings_v3": 20_000.0}


def claims(raw: Mapping[str, Any]) -> bool:
    """Whether a `config.json` of the `model_type` `xlm-roberta` is one of these: each speaks of the flash kernels."""
    return "use_flash_attn" in raw or raw.get("position_embedding_type") == "rotary"


@dataclass(frozen=True)
class Config(roberta.Config):
    """As RoBERTa's.

    Attributes:
        longest: Longest text where positions are rotary.
        adapters: Name of each adapter, and what is put before a text that is read with it.
    """

    longest: int | None = None
    adapters: tuple[tuple[str, str], ...] = ()

    @property
    def position_limit(self) -> int | None:
        return super().position_limit if self.longest is None else self.longest

    @property
    def nature(self) -> Nature:
        return Nature(pooled="mean", adapters=self.adapters)

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Read `config.json`, with the makers' keys or with those of transformers."""
        config = Raw(raw)
        config.must_all_be(_ONLY)
        kind = config.value("position_embedding_type", "rotary")
        found = super().from_hf({**raw, "position_embedding_type": "absolute"})
        names, sizes = _adapters(config)
        found = replace(found, shape=replace(found.shape, adapters=sizes), adapters=names)
        if kind == "absolute":
            return found
        if kind != "rotary":
            raise CheckpointError(
                f"config.json says position_embedding_type={kind!r}.", allowed="Known are rotary and absolute."
            )
        size, longest = found.hidden_size // found.shape.num_heads, found.num_positions
        config.must_be("rotary_emb_dim", size)
        base = config.number("rotary_emb_base", _BASES.get(str(raw.get("model_type")), 10_000.0))
        rope = read(stated(raw, base), size=size, max_len=longest)
        return replace(found, shape=replace(found.shape, rope=rope), num_positions=0, longest=longest)


class Model(roberta.Model):
    """RoBERTa, with rotary positions or its own."""

    config: Config

    def positions(self, packed: Packed) -> Tensor:
        """As RoBERTa's; rotary positions count every token, and no table is read."""
        return packed.positions_T if self.config.longest is not None else super().positions(packed)


def _adapters(config: Raw) -> tuple[tuple[tuple[str, str], ...], AdapterSizes | None]:
    names = config.value("lora_adaptations", [])
    if not names or config.value("load_trained_adapters", True) is False:
        return (), None
    before = config.value("task_instructions", {})
    if not isinstance(names, list) or not isinstance(before, dict) or not set(before) <= set(names):
        raise CheckpointError(
            f"config.json says lora_adaptations={names!r} and task_instructions={before!r}.",
            allowed="Names of adapters, and a text for each.",
        )
    rank = config.size("lora_rank", 4)
    sizes = AdapterSizes(len(names), rank, config.number("lora_alpha", 1) / rank)
    return tuple((name, str(before.get(name, ""))) for name in names), sizes
