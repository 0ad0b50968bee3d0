"""Nomic BERT as its makers save it, and their layers with biases and experts, which transformers lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel

from .checkpoints import randomise, tiny_transformer
from .references import EXACT
from .saving import read_json, write_json

_SIZES: Final = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "vocab_size": "vocab_size",
    "type_vocab_size": "type_vocab_size",
    "pad_token_id": "pad_token_id",
    "architectures": "architectures",
}
_PLAIN: Final = {
    "model_type": "nomic_bert",
    "activation_function": "swiglu",
    "prenorm": False,
    "causal": False,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "max_trained_positions": 2048,
}
_NAMES: Final = (
    ("embeddings.LayerNorm", "emb_ln"),
    ("layers.", "encoder.layers."),
    ("self_attn.o_proj", "attn.out_proj"),
    ("post_attention_layernorm", "norm1"),
    ("post_mlp_layernorm", "norm2"),
)
EXPERTS: Final = {"moe_every_n_layers": 2, "num_experts": 4, "moe_top_k": 2}


def makers_config(folder: Path, **says: Any) -> dict[str, Any]:
    """The config of a tiny model that transformers saved in `folder`, with its makers' keys."""
    raw = read_json(folder / "config.json")
    found = {ours: raw[theirs] for ours, theirs in _SIZES.items()}
    return {**found, **_PLAIN, "rotary_emb_base": raw["rope_parameters"]["rope_theta"], **says}


class Plain(nn.Module):
    """The feed-forward without gates."""

    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(size, inner), nn.Linear(inner, size)

    def forward(self, rows: Tensor) -> Tensor:
        out: Tensor = self.fc2(F.gelu(self.fc1(rows)))
        return out


class Mixture(nn.Module):
    """All experts for all tokens, times shares that are 0 but for the largest."""

    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.num, self.top = EXPERTS["num_experts"], EXPERTS["moe_top_k"]
        rows = self.num * inner
        self.router = nn.ModuleDict({"layer": nn.Linear(size, self.num, bias=False)})
        self.stored = {
            name: nn.Parameter(torch.empty(sizes))
            for name, sizes in {"mlp.w1": (rows, size), "mlp.w2": (rows, size), "bias": (size,)}.items()
        }
        self.experts = nn.Module()
        self.experts.mlp = nn.Module()
        for name, parameter in self.stored.items():
            self.experts.get_submodule(name.rpartition(".")[0]).register_parameter(name.split(".")[-1], parameter)

    def forward(self, rows: Tensor) -> Tensor:
        shares = self.router["layer"](rows).softmax(-1)
        least = shares.sort(dim=-1, descending=True).values[..., self.top - 1 : self.top]
        shares = torch.where(shares >= least, shares, 0.0)
        w1, w2 = (w.view(self.num, -1, rows.shape[-1]) for w in (self.stored["mlp.w1"], self.stored["mlp.w2"]))
        inner = F.gelu(torch.einsum("bsd,efd->bsef", rows, w1))
        return torch.einsum("bsef,efd,bse->bsd", inner, w2, shares) + self.stored["bias"]


def with_experts(folder: Path) -> Any:
    """Save a model with biases, plain feed-forwards and experts in every second layer, and give its reference."""
    tiny_transformer("nomic_bert", folder)
    config: Any = AutoConfig.from_pretrained(folder)
    model: Any = AutoModel.from_pretrained(folder, **EXACT).eval()
    for number, layer in enumerate(model.layers):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(layer.self_attn, name, nn.Linear(config.hidden_size, config.hidden_size))
        layer.mlp = (Mixture if number % 2 else Plain)(config.hidden_size, config.intermediate_size)
    randomise(model, 0)
    says = {"activation_function": "gelu", "qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True}
    write_json(folder / "config.json", makers_config(folder, **says, **EXPERTS))
    save_file(_stored(model), folder / "model.safetensors", metadata={"format": "pt"})
    return model


def _stored(model: Any) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        for theirs, makers in _NAMES:
            name = name.replace(theirs, makers)
        state[name] = tensor.detach().clone()
    for name in [name for name in state if ".self_attn.q_proj." in name]:
        parts = [state.pop(name.replace("q_proj", part)) for part in ("q_proj", "k_proj", "v_proj")]
        state[name.replace("self_attn.q_proj", "attn.Wqkv")] = torch.cat(parts)
    return state


def as_makers(source: Path, folder: Path, **says: Any) -> Path:
    """`source`, which transformers saved, with its makers' config and with names that begin with `bert.`."""
    folder.mkdir()
    write_json(folder / "config.json", makers_config(source, **says))
    state = load_file(source / "model.safetensors")
    named = {f"bert.{name.removeprefix('nomic_bert.')}": tensor for name, tensor in state.items()}
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
