"""Shapes and forms of the tiny language models: what a walk over their families has to see.

Heads are grouped in threes, and where a family has heads of a size of its own it is not the hidden size by the heads.
"""

from __future__ import annotations

from typing import Any, Final

from . import bidirectional, internlm2, jina_v5

DECODERS: Final = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "internlm2")

SHAPE: Final[dict[str, Any]] = {
    "hidden_size": 60,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 84,
    # Far from every family's default, so that a fixed epsilon shows.
    "rms_norm_eps": 3e-3,
}
_HEAD_SIZE: Final[dict[str, Any]] = {"head_dim": 16}
OWN_SHAPE: Final[dict[str, dict[str, Any]]] = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": _HEAD_SIZE,
    "gemma": _HEAD_SIZE,
    "gemma2": {**_HEAD_SIZE, "query_pre_attn_scalar": 13, "sliding_window": 6, "attn_logit_softcapping": 2.0},
    "gemma3_text": {**_HEAD_SIZE, "query_pre_attn_scalar": 13, "sliding_window": 6, "sliding_window_pattern": 2},
    "phi3": {},
    "internlm2": internlm2.OWN_SHAPE,
    "llama_bidirec": bidirectional.OWN_SHAPE,
    jina_v5.JinaV5Config.model_type: _HEAD_SIZE,
}


def _rope(kind: str, **says: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **says}}


_FACTORS: Final = {"short_factor": [1.0, 1.1, 1.3, 1.7, 2.0], "long_factor": [1.5, 2.0, 3.0, 5.0, 7.5]}
_WINDOWED: Final = {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
VARIANTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    **{model_type: (model_type, {}) for model_type in DECODERS},
    "llama-biased": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-one-key-head": ("llama", {"num_key_value_heads": 1, "head_dim": 22}),
    "llama-gelu": ("llama", {"hidden_act": "gelu_new"}),
    "llama-bidirectional": ("llama", {"is_causal": False}),
    "llama-linear": ("llama", {**_rope("linear", factor=3.0), "max_position_embeddings": 30}),
    "llama-dynamic": ("llama", {**_rope("dynamic", factor=3.0), "max_position_embeddings": 33}),
    "llama-llama3": (
        "llama",
        _rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32),
    ),
    "llama-longrope": ("llama", _rope("longrope", original_max_position_embeddings=33, **_FACTORS)),
    "llama-longrope-gain": (
        "llama",
        _rope("longrope", original_max_position_embeddings=16, factor=4.0, attention_factor=1.4, **_FACTORS),
    ),
    "qwen2-yarn": ("qwen2", _rope("yarn", factor=4.0, original_max_position_embeddings=17)),
    "qwen3-yarn": (
        "qwen3",
        _rope(
            "yarn",
            factor=4.0,
            original_max_position_embeddings=17,
            beta_fast=4.0,
            beta_slow=0.5,
            truncate=False,
            mscale=0.9,
            mscale_all_dim=0.4,
        ),
    ),
    "mistral-window": ("mistral", {"sliding_window": 6}),
    "mistral-window-both-ways": ("mistral", {"sliding_window": 6, "is_causal": False}),
    "qwen2-window": ("qwen2", _WINDOWED),
    "gemma-gelu": ("gemma", {"hidden_act": "gelu"}),
    "gemma2-bidirectional": ("gemma2", {"is_causal": False, "attn_logit_softcapping": None}),
    "gemma3-bidirectional": ("gemma3_text", {"use_bidirectional_attention": True, "sliding_window": 7}),
    "gemma3-scaled": (
        "gemma3_text",
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 3000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 200.0},
            }
        },
    ),
    "phi3-window": ("phi3", {"sliding_window": 6}),
    "phi3-longrope": (
        "phi3",
        {
            **_rope("longrope", partial_rotary_factor=0.6, short_factor=[1.0, 1.2, 1.6], long_factor=[1.5, 3.0, 7.5]),
            "original_max_position_embeddings": 33,
        },
    ),
    "qwen3-window": ("qwen3", {**_WINDOWED, "max_window_layers": 2, "attention_bias": True}),
    **internlm2.VARIANTS,
    "llama_bidirec": ("llama_bidirec", {}),
    "jina_embeddings_v5": ("jina_embeddings_v5", {}),
}
"""Name -> model type and what is special in its config."""
