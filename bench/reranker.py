"""The cross-encoder of the workload `rerank`: MiniLM-L6's sizes, random weights. Runs in the main environment:

python -m bench.reranker TOKENIZER_FOLDER TARGET_FOLDER

Speed does not depend on the weights, and the same seed makes the same weights everywhere: numpy draws them, in the
order of their names.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from transformers import BertForSequenceClassification

SEED = 20
STD = 0.1
"""Wide enough that scores spread over 0 to 1 and a wrong position or segment shows in them."""

SIZES: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "num_labels": 1,
}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")


def fill(model: BertForSequenceClassification, seed: int) -> None:
    """Set every parameter: normal with `STD`, the scales of norms around 1."""
    import torch

    random = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            centre = 1.0 if name.endswith("LayerNorm.weight") else 0.0
            drawn = centre + STD * random.standard_normal(tuple(parameter.shape), np.float32)
            parameter.copy_(torch.from_numpy(drawn))


def make(tokenizer: Path, target: Path) -> None:
    """Write the checkpoint, with the tokenizer of the folder `tokenizer`."""
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig(**SIZES))
    fill(model, SEED)
    model.save_pretrained(target)
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer / name, target / name)


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
