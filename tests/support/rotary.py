"""Shapes and forms of the tiny encoders with rotary positions, and a reference for the name `new`.

Windows are far shorter than the texts, and bases so small that the last positions turn far.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from transformers import AutoConfig, AutoModel, GteConfig, GteModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

ROTARY: Final = ("modernbert", "nomic_bert", "gte")
"""Families that transformers has classifiers of."""

RENAMED: Final = {"modernbert": {"hidden_act": "hidden_activation", "layer_norm_eps": "norm_eps"}}
LACKING: Final = {"modernbert": ("type_vocab_size", "hidden_dropout_prob", "attention_probs_dropout_prob")}


def _rope(kind: str, **says: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **says}}


OWN_SHAPE: Final[dict[str, dict[str, Any]]] = {
    "modernbert": {
        "local_attention": 12,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 3000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 70.0},
        },
    },
    "nomic_bert": {"hidden_act": "silu", **_rope("default")},
    "gte": _rope("default"),
    "new": {"rope_theta": 30.0, "rope_scaling": {"type": "ntk", "factor": 8.0}},
}
_KINDS: Final = ["sliding_attention", "full_attention", "sliding_attention"]
VARIANTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    **{model_type: (model_type, {}) for model_type in (*ROTARY, "new")},
    "modernbert-biased": ("modernbert", {"attention_bias": True, "mlp_bias": True, "norm_bias": True}),
    "modernbert-other-layers": ("modernbert", {"layer_types": _KINDS, "local_attention": 13, "hidden_act": "silu"}),
    "modernbert-scaled": (
        "modernbert",
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            }
        },
    ),
    "nomic_bert-dynamic": ("nomic_bert", {**_rope("dynamic", factor=2.0), "max_position_embeddings": 33}),
    # Fewer layers: without segments a third one multiplies what is rounded, in the reference as here.
    "gte-no-segments": ("gte", {"type_vocab_size": 0, "num_hidden_layers": 2}),
    "gte-linear": ("gte", {**_rope("linear", factor=3.0), "hidden_act": "gelu_new"}),
}
"""Name -> model type and what is special in its config."""


def _ntk(config: Any, *_: Any, **__: Any) -> tuple[torch.Tensor, float]:
    """Frequencies of `ntk`, as its makers publish them: a base `factor` times as large, all slowed."""
    says = config.rope_parameters
    size = config.hidden_size // config.num_attention_heads
    base, factor = says["rope_theta"], says["factor"]
    return 1.0 / ((base * factor) ** (torch.arange(0, size, 2).float() / size)) / factor ** (2 / size), 1.0


class NewConfig(GteConfig):
    """What transformers calls `gte`, under the makers' name."""

    model_type = "new"


class NewModel(GteModel):
    """The same."""

    config_class = NewConfig
    config: NewConfig
    base_model_prefix = "new"


ROPE_INIT_FUNCTIONS["ntk"] = _ntk
AutoConfig.register("new", NewConfig)
AutoModel.register(NewConfig, NewModel)
