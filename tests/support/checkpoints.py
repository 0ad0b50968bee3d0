"""Tiny random checkpoints of the encoder families and of language models, saved by `transformers` itself.

Their shapes are odd on purpose (hidden 60, 5 heads of 12, 3 layers, intermediate 84, an odd vocabulary, 70 positions),
so that no two sizes can be confused. Their weights are far from an initialisation: matrices have a standard deviation
of 0.2, norms lie around 1 and biases around 0, both with a spread that shows. A weight depends on the seed, the family
and its name below the base model's prefix alone, so the same seed gives one body under every head.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from . import decoders, jina_bert, rotary, t5
from .references import base_class
from .saving import PLAIN, Saved, restyle
from .vocab import tiny_tokenizer

Head = Literal["base", "masked_lm", "causal_lm", "sequence_classification", "token_classification"]

MODEL_TYPES = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "electra", "deberta-v2")
HEADS: dict[str, Any] = {
    "base": AutoModel,
    "masked_lm": AutoModelForMaskedLM,
    "causal_lm": AutoModelForCausalLM,
    "sequence_classification": AutoModelForSequenceClassification,
    "token_classification": AutoModelForTokenClassification,
}
# Positions of these families start at pad_token_id + 1, so their tables have that many more rows than a text can use.
OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet")
# One name of the maker -> the name in that family's config.
RENAMED = {
    "distilbert": {
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    },
    **rotary.RENAMED,
    **t5.RENAMED,
}
# Families that have no such thing; asking for it is a mistake of the test.
LACKING = {
    "distilbert": ("type_vocab_size", "layer_norm_eps"),
    "mpnet": ("type_vocab_size",),
    **rotary.LACKING,
    **t5.LACKING,
}
SHAPE: dict[str, Any] = {
    "hidden_size": 60,
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "intermediate_size": 84,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "type_vocab_size": 2,
    # Far from every family's default, so that a fixed epsilon shows.
    "layer_norm_eps": 3e-3,
}
# What makes a family what it is, where its config's defaults do not.
OWN_SHAPE: dict[str, dict[str, Any]] = {
    **rotary.OWN_SHAPE,
    "deberta-v2": {
        "relative_attention": True,
        "position_buckets": 12,
        "pos_att_type": ["p2c", "c2p"],
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "jina_bert": jina_bert.OWN_SHAPE,
    "albert": {"embedding_size": 44, "hidden_act": "gelu_new"},
    **rotary.OWN_SHAPE,
    **t5.OWN_SHAPE,
}
# What a walk over a family's forms has to see: name -> (model_type, overrides).
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{model_type: (model_type, {}) for model_type in MODEL_TYPES},
    "bert-gelu_new": ("bert", {"hidden_act": "gelu_new"}),
    "bert-relu": ("bert", {"hidden_act": "relu"}),
    "bert-epsilon": ("bert", {"layer_norm_eps": 1e-12}),
    "roberta-one-segment": ("roberta", {"type_vocab_size": 1}),
    "distilbert-relu": ("distilbert", {"hidden_act": "relu"}),
    "electra-projected": ("electra", {"embedding_size": 44}),
    "deberta-v2-own": (
        "deberta-v2",
        {"share_att_key": False, "norm_rel_ebd": "none", "position_biased_input": True, "type_vocab_size": 2},
    ),
    "deberta-v2-c2p": ("deberta-v2", {"pos_att_type": "c2p", "max_relative_positions": 40}),
    "albert": ("albert", {}),
    "albert-wide": ("albert", {"embedding_size": 60}),
    "deberta-v2-convolved": ("deberta-v2", {"conv_kernel_size": 3, "conv_act": "gelu"}),
    "deberta-v2-convolved-alone": ("deberta-v2", {"conv_kernel_size": 5, "num_hidden_layers": 1}),
    "deberta-v2-p2c": ("deberta-v2", {"pos_att_type": "p2c", "position_buckets": -1, "max_relative_positions": 30}),
}


def tiny_transformer(
    model_type: str,
    folder: Path,
    *,
    seed: int = 0,
    head: Head = "base",
    max_positions: int = 70,
    dtype: str = "float32",
    lowercase: bool = True,
    saved: Saved = PLAIN,
    **config_overrides: Any,
) -> Path:
    """Save a tiny random model with its config and tokenizer, and return `folder`.

    Args:
        model_type: One of `MODEL_TYPES`, of `decoders.DECODERS` or of `OWN_SHAPE`.
        folder: Made if need be.
        seed: Another seed gives other weights; the tokenizer stays.
        head: What stands on the base model. Classifiers have 3 labels unless `num_labels` says otherwise.
        max_positions: The longest text in tokens, special tokens included. `max_position_embeddings` is larger by the
            offset of the families in `OFFSET_POSITIONS`; the tokenizer's `model_max_length` is this number.
        dtype: Of the stored weights: float32, float16 or bfloat16.
        lowercase: Whether a WordPiece tokenizer lower-cases.
        saved: How the weights lie in the folder.
        config_overrides: Keys of the config, by the family's own names or by BERT's.

    Raises:
        ValueError: The family is not known, or has nothing that an override names.
    """
    tokenizer = tiny_tokenizer(model_type, max_tokens=max_positions, lowercase=lowercase)
    config = tiny_config(model_type, tokenizer, max_positions=max_positions, head=head, **config_overrides)
    model: PreTrainedModel = (base_class(model_type) if head == "base" else HEADS[head]).from_config(config)
    randomise(model, seed)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    restyle(folder, saved)
    return folder


def tiny_config(
    model_type: str, tokenizer: PreTrainedTokenizerBase, *, max_positions: int, head: Head, **overrides: Any
) -> PretrainedConfig:
    """The config of a tiny model for `tokenizer`; see `tiny_transformer`."""
    lacking = LACKING.get(model_type, ())
    if wrong := [name for name in overrides if name in lacking]:
        raise ValueError(f"{model_type} has no {', '.join(wrong)}; leave it out.")
    offset = tokenizer.pad_token_id + 1 if model_type in OFFSET_POSITIONS else 0
    values = {name: value for name, value in SHAPE.items() if name not in lacking} | OWN_SHAPE.get(model_type, {})
    if model_type in decoders.OWN_SHAPE:
        values = decoders.SHAPE | decoders.OWN_SHAPE[model_type]
    values |= {
        "vocab_size": len(tokenizer) | 1,
        "max_position_embeddings": max_positions + offset,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    if model_type == "electra":
        values["embedding_size"] = SHAPE["hidden_size"]
    if head in ("sequence_classification", "token_classification"):
        values["num_labels"] = 3
    renamed = RENAMED.get(model_type, {})
    named = {renamed.get(name, name): value for name, value in (values | overrides).items()}
    return AutoConfig.for_model(model_type, **named)


def randomise(model: torch.nn.Module, seed: int) -> None:
    """Fill every parameter in place: matrices N(0, 0.2), norm weights N(1, 0.2), biases N(0, 0.1)."""
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    kind = getattr(getattr(model, "config", None), "model_type", "")
    # A tied parameter has two names; the body's comes last and decides, or heads would change the body.
    named = sorted(model.named_parameters(remove_duplicate=False), key=lambda item: item[0].startswith(prefix))
    with torch.no_grad():
        for name, parameter in named:
            label = f"{seed}:{kind}:{name.removeprefix(prefix)}"
            source = torch.Generator().manual_seed(zlib.crc32(label.encode()))
            noise = torch.randn(parameter.shape, generator=source)
            if parameter.ndim > 1:
                parameter.copy_(0.2 * noise)
            elif name.endswith("weight"):
                parameter.copy_(1 + 0.2 * noise)
            else:
                parameter.copy_(0.1 * noise)
