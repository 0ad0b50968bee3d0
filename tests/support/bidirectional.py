"""Language models whose tokens see each other, as their makers' classes compute them: masks of nothing but zeros."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, LlamaConfig, LlamaModel
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.llama.modeling_llama import LlamaPreTrainedModel

OWN_SHAPE: Final[dict[str, Any]] = {"pooling": "avg"}


class BidirectionalConfig(LlamaConfig):
    """Llama's with the row that texts are read by."""

    model_type = "llama_bidirec"
    pooling: str = "avg"
    temperature: float = 1.0


def all_seen(ids: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores: nothing, `[1, 1, n, n]`."""
    return torch.zeros(1, 1, ids.shape[1], ids.shape[1], dtype=dtype)


class BidirectionalModel(LlamaModel):
    """One text at a time."""

    config_class = BidirectionalConfig
    config: BidirectionalConfig

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **more: Any) -> Any:
        return super().forward(input_ids, attention_mask=all_seen(input_ids, self.dtype), **more)


class BidirectionalForSequenceClassification(LlamaPreTrainedModel):
    """A linear layer on the row of the text."""

    config_class = BidirectionalConfig
    config: BidirectionalConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = BidirectionalModel(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, input_ids: Tensor, **_: Any) -> SequenceClassifierOutput:
        rows = self.model(input_ids).last_hidden_state
        pooled = {"avg": rows.mean(1), "cls": rows[:, 0], "last": rows[:, -1]}[self.config.pooling]
        return SequenceClassifierOutput(logits=self.score(pooled))


AutoConfig.register("llama_bidirec", BidirectionalConfig)
AutoModel.register(BidirectionalConfig, BidirectionalModel)
AutoModelForSequenceClassification.register(BidirectionalConfig, BidirectionalForSequenceClassification)
