"""Shapes and forms of the tiny encoders of T5 and its relatives.

Heads are of another size than the hidden size by their number, and the last buckets begin well within a text.
"""

from __future__ import annotations

from typing import Any, Final

T5: Final = ("t5", "mt5", "umt5")
"""Families whose models have a decoder too; the reference is their encoder."""

_NAMES: Final = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "intermediate_size": "d_ff",
    "layer_norm_eps": "layer_norm_epsilon",
}
_OTHERS: Final = ("hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob", "type_vocab_size")
_SHAPE: Final[dict[str, Any]] = {
    "d_kv": 16,
    "relative_attention_num_buckets": 12,
    "relative_attention_max_distance": 40,
    "dropout_rate": 0.0,
}
RENAMED: Final = dict.fromkeys(T5, _NAMES)
LACKING: Final = dict.fromkeys(T5, _OTHERS)
OWN_SHAPE: Final = dict.fromkeys(T5, _SHAPE)
VARIANTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    **{model_type: (model_type, {}) for model_type in T5},
    "t5-gated": ("t5", {"feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 32}),
    "t5-gated-silu": ("t5", {"feed_forward_proj": "gated-silu"}),
    "t5-far": ("t5", {"max_positions": 300, "relative_attention_max_distance": 128, "num_hidden_layers": 2}),
}
"""Name -> model type and what is special in its config."""
