"""JinaBERT v2, which transformers lacks, from its paper and its files: an independent reference to compare with.

Source: Günther et al. 2023 (arXiv 2310.19923), Press et al. 2021 (arXiv 2108.12409). The sizes of its models and the
names of their tensors are those of jina-embeddings-v2-base-en and, with norms of queries and keys, of -base-code.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.bert.modeling_bert import BertIntermediate, BertOutput, BertSelfOutput

MAKERS: Final = "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"
MAKERS_NORMED: Final = "jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"
ACTS: Final[dict[str, Any]] = {"geglu": F.gelu, "reglu": F.relu}
OWN_SHAPE: Final[dict[str, Any]] = {
    "position_embedding_type": "alibi",
    "feed_forward_type": "geglu",
    "auto_map": {"AutoModel": MAKERS},
}
_NORMED: Final = {"auto_map": {"AutoModel": MAKERS_NORMED}}
VARIANTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "jina_bert": ("jina_bert", {}),
    "jina_bert-reglu": ("jina_bert", {"feed_forward_type": "reglu", "num_attention_heads": 6}),
    "jina_bert-original": ("jina_bert", {"feed_forward_type": "original", "num_attention_heads": 4}),
    "jina_bert-normed": ("jina_bert", {**_NORMED, "num_attention_heads": 12}),
    "jina_bert-normed-original": ("jina_bert", {**_NORMED, "feed_forward_type": "original", "hidden_act": "relu"}),
}
"""Name -> model type and what is special in its config."""


class JinaBertConfig(BertConfig):
    """BERT's with two more keys; the makers call it `bert` too, which here names another class."""

    model_type = "jina_bert"
    position_embedding_type: str = "alibi"
    feed_forward_type: str = "geglu"


def slopes(num_heads: int) -> list[float]:
    """One slope a head; where the heads are no power of two, the rest comes from between those of the next power."""
    below = 2 ** (num_heads.bit_length() - 1)
    first = [2.0 ** (-8 * (i + 1) / below) for i in range(below)]
    between = [2.0 ** (-8 * (i + 0.5) / below) for i in range(num_heads - below)]
    return first + between


class Attention(nn.Module):
    """Scores fall with distance; `attention.self` and `attention.output` in the files."""

    def __init__(self, config: Any, normed: bool) -> None:
        super().__init__()
        size = config.hidden_size
        mine = nn.Module()
        mine.query, mine.key, mine.value = (nn.Linear(size, size) for _ in range(3))
        if normed:
            mine.layer_norm_q, mine.layer_norm_k = (nn.LayerNorm(size, eps=config.layer_norm_eps) for _ in range(2))
        self.add_module("self", mine)
        self.output = BertSelfOutput(config)
        self.num_heads, self.normed = config.num_attention_heads, normed

    def forward(self, hidden: Tensor) -> Tensor:
        mine = getattr(self, "self")  # noqa: B009  # the attribute's name is a name of Python's
        query, key, value = mine.query(hidden), mine.key(hidden), mine.value(hidden)
        if self.normed:
            query, key = mine.layer_norm_q(query), mine.layer_norm_k(key)
        query, key, value = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in (query, key, value))
        place = torch.arange(hidden.shape[1])
        fall = -torch.tensor(slopes(self.num_heads)).to(hidden.dtype)[:, None, None] * (place[:, None] - place).abs()
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5 + fall
        rows = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        out: Tensor = self.output(rows, hidden)
        return out


class Gated(nn.Module):
    """The gated feed-forward; the activated half comes first."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.act = ACTS[config.feed_forward_type]
        self.gated_layers = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.wo = nn.Linear(config.intermediate_size, config.hidden_size)
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        gate, up = self.gated_layers(hidden).chunk(2, dim=-1)
        out: Tensor = self.layernorm(self.wo(self.act(gate) * up) + hidden)
        return out


class Inner(nn.Module):
    """The feed-forward of the normed kind, gated or not; the activated half comes last."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.act = ACTS.get(config.feed_forward_type)
        self.plain: Any = {"gelu": F.gelu, "relu": F.relu}[config.hidden_act]
        size, inner = config.hidden_size, config.intermediate_size
        if self.act is None:
            self.up_layer = nn.Linear(size, inner, bias=False)
        else:
            self.up_gated_layer = nn.Linear(size, 2 * inner, bias=False)
        self.down_layer = nn.Linear(inner, size)

    def forward(self, hidden: Tensor) -> Tensor:
        if self.act is None:
            inner = self.plain(self.up_layer(hidden))
        else:
            up, gate = self.up_gated_layer(hidden).chunk(2, dim=-1)
            inner = up * self.act(gate)
        out: Tensor = self.down_layer(inner)
        return out


class Layer(nn.Module):
    """One layer, of either kind."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.layer_norm_eps
        self.normed = config.auto_map["AutoModel"] == MAKERS_NORMED
        self.gated = config.feed_forward_type.endswith("glu")
        self.attention = Attention(config, self.normed)
        if self.normed:
            self.layer_norm_1, self.layer_norm_2 = nn.LayerNorm(size, eps=eps), nn.LayerNorm(size, eps=eps)
            self.mlp: nn.Module = Inner(config)
        elif self.gated:
            self.mlp = Gated(config)
        else:
            self.intermediate, self.output = BertIntermediate(config), BertOutput(config)

    def forward(self, hidden: Tensor) -> Tensor:
        attended = self.attention(hidden)
        if self.normed:
            attended = self.layer_norm_1(hidden + attended)
            hidden = self.layer_norm_2(attended + self.mlp(attended))
        elif self.gated:
            hidden = self.mlp(attended)
        else:
            hidden = self.output(self.intermediate(attended), attended)
        return hidden


class JinaBertModel(PreTrainedModel):
    """One text at a time: there is no mask."""

    config_class = JinaBertConfig
    config: JinaBertConfig
    base_model_prefix = "bert"
    _supports_sdpa = True

    def __init__(self, config: Any, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        size = config.hidden_size
        self.embeddings: Any = nn.Module()
        self.embeddings.word_embeddings = nn.Embedding(config.vocab_size, size)
        self.embeddings.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.embeddings.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.encoder: Any = nn.Module()
        self.encoder.layer = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.pooler = nn.ModuleDict({"dense": nn.Linear(size, size)}) if add_pooling_layer else None
        self.post_init()  # type: ignore[no-untyped-call]

    def get_input_embeddings(self) -> nn.Embedding:
        words: nn.Embedding = self.embeddings.word_embeddings
        return words

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None = None, **_: Any
    ) -> BaseModelOutputWithPooling | tuple[Any, ...]:
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        words = self.embeddings.word_embeddings(input_ids) + self.embeddings.token_type_embeddings(segments)
        states = [self.embeddings.LayerNorm(words)]
        for layer in self.encoder.layer:
            states.append(layer(states[-1]))
        pooled = None if self.pooler is None else torch.tanh(self.pooler["dense"](states[-1][:, 0]))
        return BaseModelOutputWithPooling(states[-1], pooled, hidden_states=tuple(states))


def _headed(bert: type) -> Any:
    """A class of transformers for BERT with a head, on this body."""

    class Headed(bert):  # type: ignore[misc]  # the base is a variable
        config_class = JinaBertConfig
        config: JinaBertConfig
        _tied_weights_keys = (
            None
            if bert is not BertForMaskedLM
            else {"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight"}
        )

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.bert = JinaBertModel(config, add_pooling_layer=bert is BertForSequenceClassification)
            self.post_init()

    Headed.__name__ = f"Jina{bert.__name__}"
    return Headed


AutoConfig.register("jina_bert", JinaBertConfig)
AutoModel.register(JinaBertConfig, JinaBertModel)
AutoModelForMaskedLM.register(JinaBertConfig, _headed(BertForMaskedLM))
AutoModelForSequenceClassification.register(JinaBertConfig, _headed(BertForSequenceClassification))
AutoModelForTokenClassification.register(JinaBertConfig, _headed(BertForTokenClassification))
