"""InternLM2, which transformers lacks, from its paper and its files: an independent reference to compare with.

Source: Cai et al. 2024 (arXiv 2403.17297), section 2.2. The names of its tensors are those of internlm2-1_8b.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    LlamaConfig,
    PreTrainedModel,
)
from transformers.modeling_layers import GenericForSequenceClassification, GenericForTokenClassification
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutput
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding

OWN_SHAPE: Final[dict[str, Any]] = {"bias": False}
VARIANTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "internlm2-biased": ("internlm2", {"bias": True}),
    "internlm2-ungrouped": ("internlm2", {"num_key_value_heads": 6}),
}


class InternLM2Config(LlamaConfig):
    """Llama's with another key."""

    model_type = "internlm2"
    bias: bool = True


class Attention(nn.Module):
    """One key and one value after the queries that meet them, group after group."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.size = config.hidden_size // self.heads
        width = (self.heads + 2 * self.groups) * self.size
        self.wqkv = nn.Linear(config.hidden_size, width, bias=config.bias)
        self.wo = nn.Linear(config.hidden_size, config.hidden_size, bias=config.bias)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        packed = self.wqkv(hidden)[0].view(hidden.shape[1], self.groups, -1, self.size)
        seen = torch.ones(hidden.shape[1], hidden.shape[1], dtype=torch.bool).tril()
        rows = []
        for group in packed.unbind(1):
            *queries, key, value = group.unbind(1)
            key = turned(key, cos[0], sin[0])
            for query in queries:
                scores = turned(query, cos[0], sin[0]) @ key.T / self.size**0.5
                rows.append(scores.masked_fill(~seen, float("-inf")).softmax(-1) @ value)
        out: Tensor = self.wo(torch.cat(rows, dim=-1)[None])
        return out


def turned(rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Each number and the one half a head later, as one complex number, turned."""
    left, right = rows.chunk(2, dim=-1)
    return rows * cos + torch.cat([-right, left], dim=-1) * sin


class Layer(nn.Module):
    """One layer."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        size, inner = config.hidden_size, config.intermediate_size
        self.attention = Attention(config)
        self.feed_forward = nn.ModuleDict({name: nn.Linear(size, inner, bias=False) for name in ("w1", "w3")})
        self.feed_forward["w2"] = nn.Linear(inner, size, bias=False)
        self.attention_norm = LlamaRMSNorm(size, eps=config.rms_norm_eps)
        self.ffn_norm = LlamaRMSNorm(size, eps=config.rms_norm_eps)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden), cos, sin)
        rows, parts = self.ffn_norm(hidden), self.feed_forward
        out: Tensor = hidden + parts["w2"](F.silu(parts["w1"](rows)) * parts["w3"](rows))
        return out


class InternLM2Base(PreTrainedModel):
    """What its classes share."""

    config_class = InternLM2Config
    config: InternLM2Config
    base_model_prefix = "model"


class InternLM2Model(InternLM2Base):
    """One text at a time: there is no mask."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = LlamaRotaryEmbedding(config)
        self.post_init()  # type: ignore[no-untyped-call]

    def get_input_embeddings(self) -> nn.Embedding:
        return self.tok_embeddings

    def forward(self, input_ids: Tensor, **_: Any) -> BaseModelOutputWithPast:
        states = [self.tok_embeddings(input_ids)]
        cos, sin = self.rotary_emb(states[0], torch.arange(input_ids.shape[1])[None])
        for layer in self.layers:
            states.append(layer(states[-1], cos, sin))
        return BaseModelOutputWithPast(self.norm(states[-1]), hidden_states=(*states[:-1], self.norm(states[-1])))


class InternLM2ForCausalLM(InternLM2Base):
    """Its head is called `output`."""

    _tied_weights_keys = {"output.weight": "model.tok_embeddings.weight"}  # noqa: RUF012  # as transformers declares it

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = InternLM2Model(config)
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]

    def get_output_embeddings(self) -> nn.Linear:
        return self.output

    def forward(self, input_ids: Tensor, **_: Any) -> CausalLMOutput:
        return CausalLMOutput(logits=self.output(self.model(input_ids).last_hidden_state))


class InternLM2ForSequenceClassification(GenericForSequenceClassification, InternLM2Base):
    """A linear layer on the last token."""


class InternLM2ForTokenClassification(GenericForTokenClassification, InternLM2Base):
    """A linear layer on each token."""


AutoConfig.register("internlm2", InternLM2Config)
AutoModel.register(InternLM2Config, InternLM2Model)
AutoModelForCausalLM.register(InternLM2Config, InternLM2ForCausalLM)
AutoModelForSequenceClassification.register(InternLM2Config, InternLM2ForSequenceClassification)
AutoModelForTokenClassification.register(InternLM2Config, InternLM2ForTokenClassification)
