"""Models of well-known sizes with random weights, which speed and memory do not depend on. In the main environment:

python -m bench.checkpoints NAME TOKENIZER_FOLDER TARGET_FOLDER

The same seed makes the same weights everywhere: numpy draws them, in the order of their names.
"""

from __future__ import annotations

import inspect
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SEED = 20
RERANKER = "reranker"
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "special_tokens_map.json")
_MOST_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Shape:
    """What a random checkpoint is like.

    Args:
        title: What tables call it.
        architecture: Class of transformers.
        config: Class of its config.
        sizes: Arguments of the config.
        pooling: How sentence-transformers makes one row of a text; None where the model gives scores.
        std: Deviation of the weights. Scores need a wide one, or they would all lie at a half; deep models need that
            of a fresh model, or rounding would grow from layer to layer.
        more: Keys of `config.json` by which older releases of transformers know what the newest says otherwise.
    """

    title: str
    architecture: str
    config: str
    sizes: dict[str, Any]
    pooling: Literal["mean", "lasttoken"] | None = "mean"
    std: float = 0.02
    more: tuple[tuple[str, Any], ...] = ()


_MINILM: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
_QWEN: dict[str, Any] = {
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}
_QWEN_OLD = (("rope_theta", 1e6),)
_DEBERTA: dict[str, Any] = {
    "vocab_size": 128100,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
    "relative_attention": True,
    "max_relative_positions": -1,
    "position_buckets": 256,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
}
_MODERN = {"pad_token_id": 0, "bos_token_id": 101, "cls_token_id": 101, "eos_token_id": 102, "sep_token_id": 102}

SHAPES = {
    RERANKER: Shape(
        "a cross-encoder of MiniLM-L6's sizes",
        "BertForSequenceClassification",
        "BertConfig",
        {**_MINILM, "num_labels": 1},
        pooling=None,
        std=0.1,
    ),
    "bert-base": Shape("BERT-base", "BertModel", "BertConfig", {}),
    "modernbert-base": Shape("ModernBERT-base", "ModernBertModel", "ModernBertConfig", _MODERN),
    "qwen3-4-layers": Shape(
        "four layers of Qwen3-0.6B",
        "Qwen3Model",
        "Qwen3Config",
        {**_QWEN, "num_hidden_layers": 4},
        pooling="lasttoken",
        more=_QWEN_OLD,
    ),
    "qwen3-4-layers-score": Shape(
        "four layers of Qwen3-0.6B with a score",
        "Qwen3ForSequenceClassification",
        "Qwen3Config",
        {**_QWEN, "num_hidden_layers": 4, "num_labels": 1, "pad_token_id": 0},
        pooling=None,
        more=_QWEN_OLD,
    ),
    "qwen3-0.6b": Shape(
        "Qwen3-0.6B",
        "Qwen3Model",
        "Qwen3Config",
        {**_QWEN, "num_hidden_layers": 28},
        pooling="lasttoken",
        more=_QWEN_OLD,
    ),
    "deberta-v3-base": Shape("DeBERTa-v3-base", "DebertaV2Model", "DebertaV2Config", _DEBERTA),
    "long": Shape(
        "MiniLM-L6's sizes with 8,192 positions",
        "BertModel",
        "BertConfig",
        {**_MINILM, "max_position_embeddings": 8192},
    ),
    "tiny": Shape(
        "a tiny BERT",
        "BertModel",
        "BertConfig",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
        std=0.1,
    ),
}


def recipe(shape: Shape) -> str:
    """Everything that decides the files of a checkpoint, but for its tokenizer."""
    return repr(shape) + "".join(inspect.getsource(step) for step in (fill, build, make, _write_modules))


def fill(model: PreTrainedModel, seed: int, std: float) -> None:
    """Set every parameter: normal with deviation `std`, the scales of norms around 1."""
    import torch

    random = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            centre = 1.0 if name.lower().endswith("norm.weight") else 0.0
            drawn = random.standard_normal(tuple(parameter.shape), np.float32)
            parameter.copy_(torch.from_numpy(drawn).mul_(std).add_(centre))


def build(shape: Shape) -> PreTrainedModel:
    """A model of that shape with its weights."""
    import transformers

    config = getattr(transformers, shape.config)(**shape.sizes)
    model: PreTrainedModel = getattr(transformers, shape.architecture)(config)
    fill(model, SEED, shape.std)
    return model


def make(shape: Shape, tokenizer: Path, target: Path) -> None:
    """Write the checkpoint, with the tokenizer of the folder `tokenizer`."""
    build(shape).save_pretrained(target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | dict(shape.more), indent=1))
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer / name, target / name)
    limit = min(config["max_position_embeddings"], _MOST_TOKENS)
    settings = json.loads((tokenizer / "tokenizer_config.json").read_text()) | {"model_max_length": limit}
    (target / "tokenizer_config.json").write_text(json.dumps(settings))
    if shape.pooling is not None:
        (target / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": limit}))
        _write_modules(target, config["hidden_size"], shape.pooling)


def _write_modules(target: Path, hidden_size: int, pooling: str) -> None:
    """The files by which sentence-transformers knows how to make a vector of a text."""
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    (target / "modules.json").write_text(json.dumps(modules))
    (target / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{mode}": mode.startswith(pooling) for mode in ("cls_token", "mean_tokens", "lasttoken")}
    settings = {"word_embedding_dimension": hidden_size, **modes}
    (target / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    (target / "2_Normalize").mkdir()


if __name__ == "__main__":
    make(SHAPES[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3]))
