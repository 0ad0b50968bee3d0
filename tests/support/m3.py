"""A tiny checkpoint of BGE-M3's form, and what its makers' library computes of a text, in plain transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AutoModel, AutoTokenizer

from .checkpoints import randomise
from .references import EXACT, Float32
from .sentence_folders import sentence_transformer

WIDTH, TOKEN_WIDTH = 60, 44
UNWEIGHTED = ("cls_token", "eos_token", "pad_token", "unk_token")


def m3_folder(folder: Path) -> Path:
    """Save a folder of sentence-transformers with two linear layers beside it, and return `folder`."""
    sentence_transformer(folder, model_type="xlm-roberta", pooling="cls", normalize=True)
    for seed, (name, width) in enumerate({"sparse_linear": 1, "colbert_linear": TOKEN_WIDTH}.items()):
        layer = torch.nn.Linear(WIDTH, width)
        randomise(layer, seed)
        torch.save(layer.state_dict(), folder / f"{name}.pt")
    return folder


@dataclass(frozen=True)
class Read:
    """What the library gives of a text: its vector, weights by token id, and vectors of tokens but the first."""

    dense: Float32
    weights: dict[int, float]
    tokens: Float32

    def scores(self, document: Read) -> tuple[float, float, float]:
        """By vectors of texts, by weights of words, and by vectors of tokens."""
        lexical = sum(weight * document.weights.get(word, 0.0) for word, weight in self.weights.items())
        return (
            float(self.dense @ document.dense),
            lexical,
            float((self.tokens @ document.tokens.T).max(axis=1).sum() / len(self.tokens)),
        )


def reference(folder: Path, texts: Sequence[str]) -> list[Read]:
    """Each text alone, in float32."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, **EXACT).eval()
    layers = {}
    for name in ("sparse_linear", "colbert_linear"):
        state = torch.load(folder / f"{name}.pt", weights_only=True)
        layers[name] = torch.nn.Linear(WIDTH, len(state["bias"]))
        layers[name].load_state_dict(state)
    unweighted = {getattr(tokenizer, f"{name}_id") for name in UNWEIGHTED}
    found = []
    with torch.inference_mode():
        for text in texts:
            inputs = tokenizer(text, return_tensors="pt", truncation=True)
            hidden_TD = model(**inputs).last_hidden_state[0]
            weights: dict[int, float] = {}
            for number, weight in zip(
                inputs["input_ids"][0].tolist(), layers["sparse_linear"](hidden_TD)[:, 0].tolist(), strict=True
            ):
                if number not in unweighted and weight > max(0.0, weights.get(number, 0.0)):
                    weights[number] = weight
            dense = F.normalize(hidden_TD[0], dim=-1).numpy()
            found.append(Read(dense, weights, F.normalize(layers["colbert_linear"](hidden_TD[1:]), dim=-1).numpy()))
    return found
