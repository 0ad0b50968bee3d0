"""Tiny random checkpoints of families that have no file in `cenote.models`, saved by `transformers` itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from .checkpoints import HEADS, Head, randomise
from .references import EXACT, Float32
from .vocab import tiny_tokenizer

MAX_TOKENS: Final = 70


@dataclass(frozen=True)
class Foreign:
    """What makes a family small.

    Args:
        words: The family whose kind of tokenizer it is given.
        shape: Keys of its config.
    """

    words: str
    shape: dict[str, Any]


FOREIGN: Final = {
    # Bidirectional with its class token last, and segments that are not the same as none.
    "xlnet": Foreign("bert", {"d_model": 20, "n_layer": 2, "n_head": 5, "d_inner": 28}),
    # Causal, its size under other names, and its segment ids are words.
    "gpt2": Foreign("qwen2", {"n_embd": 20, "n_layer": 2, "n_head": 5, "n_positions": MAX_TOKENS}),
    # An encoder beside a decoder.
    "bart": Foreign(
        "roberta",
        {
            "d_model": 20,
            "encoder_layers": 2,
            "decoder_layers": 1,
            "encoder_attention_heads": 5,
            "decoder_attention_heads": 5,
            "encoder_ffn_dim": 28,
            "decoder_ffn_dim": 28,
            "max_position_embeddings": MAX_TOKENS,
        },
    ),
    # Layers that pool neighbouring tokens on the way.
    "funnel": Foreign("bert", {"block_sizes": [1, 1], "d_model": 20, "n_head": 5, "d_head": 4, "d_inner": 28}),
    # A state space, attention and experts in turn.
    "jamba": Foreign(
        "qwen2",
        {
            "hidden_size": 20,
            "num_hidden_layers": 2,
            "num_attention_heads": 5,
            "num_key_value_heads": 5,
            "intermediate_size": 28,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "num_experts": 3,
            "mamba_d_state": 4,
        },
    ),
    # Positions from the padding token's on.
    "roberta-prelayernorm": Foreign(
        "roberta",
        {
            "hidden_size": 20,
            "num_hidden_layers": 2,
            "num_attention_heads": 5,
            "intermediate_size": 28,
            "max_position_embeddings": MAX_TOKENS + 2,
            "type_vocab_size": 1,
        },
    ),
}
"""`model_type` -> how it is made small."""


def foreign(model_type: str, folder: Path, *, head: Head | str = "base", **values: Any) -> Path:
    """Save a tiny random model of one of `FOREIGN` with its tokenizer, and return `folder`.

    Args:
        head: As of `tiny_transformer`, or `seq2seq`.
        values: Further keys of its config; a pad_token_id of None stays one.
    """
    known = FOREIGN[model_type]
    tokenizer = tiny_tokenizer(known.words, max_tokens=MAX_TOKENS)
    special = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    config = AutoConfig.for_model(model_type, **{"vocab_size": len(tokenizer), **special, **known.shape, **values})
    # One class of several is taken by this name, as in a stored config.
    config.architectures = ["FunnelModel"] if model_type == "funnel" else []
    auto: Any = AutoModelForSeq2SeqLM if head == "seq2seq" else HEADS[head]
    model = auto.from_config(config)
    randomise(model, 0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def reference_states(folder: Path, inputs: list[dict[str, torch.Tensor]]) -> list[list[Float32]]:
    """Hidden states of transformers, of the encoder where there is a decoder: for each input, those of each layer."""
    model: Any = AutoModel.from_pretrained(folder, **EXACT).eval()
    run: Callable[..., Any] = model.get_encoder() if model.config.is_encoder_decoder else model
    with torch.inference_mode():
        outs = [run(**one, output_hidden_states=True) for one in inputs]
    return [[state[0].numpy() for state in (*out.hidden_states[:-1], out.last_hidden_state)] for out in outs]
