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
        causal: Whether a token sees no later one.
        last: Whether the last token stands for a text, not the first.
    """

    words: str
    shape: dict[str, Any]
    causal: bool = False
    last: bool = False


_SHAPE: Final[dict[str, Any]] = {
    "hidden_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "intermediate_size": 28,
    "max_position_embeddings": MAX_TOKENS,
}


def _encoder(words: str = "bert", **shape: Any) -> Foreign:
    return Foreign(words, _SHAPE | shape)


def _decoder(**shape: Any) -> Foreign:
    return Foreign("qwen2", _SHAPE | shape, causal=True, last=True)


FOREIGN: Final = {
    # Bidirectional with its class token last, and segments that are not the same as none.
    "xlnet": Foreign("bert", {"d_model": 20, "n_layer": 2, "n_head": 5, "d_inner": 28}, last=True),
    # Causal, its size under other names, and its segment ids are words.
    "gpt2": Foreign("qwen2", {"n_embd": 20, "n_layer": 2, "n_head": 5, "n_positions": MAX_TOKENS}, True, True),
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
    "jamba": _decoder(
        num_key_value_heads=5,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=3,
        mamba_d_state=4,
    ),
    # Positions from the padding token's on.
    "roberta-prelayernorm": _encoder("roberta", max_position_embeddings=MAX_TOKENS + 2, type_vocab_size=1),
    # BERTs with a table of tasks, with turned queries and keys, and with norms before.
    "ernie": _encoder(),
    "roformer": _encoder(embedding_size=20),
    "megatron-bert": _encoder(),
    # Llama that sees all of a text.
    "eurobert": _encoder(num_key_value_heads=5),
    # Language models with learned positions, ALiBi, parts of heads that are turned, windows, experts and convolutions.
    "opt": _decoder(ffn_dim=28, word_embed_proj_dim=20),
    "falcon": _decoder(),
    "mpt": Foreign("qwen2", {"d_model": 20, "n_heads": 5, "n_layers": 2, "max_seq_len": MAX_TOKENS}, True, True),
    "starcoder2": _decoder(num_key_value_heads=5, sliding_window=6),
    "phi": _decoder(partial_rotary_factor=0.5, hidden_size=40),
    "exaone4": _decoder(num_key_value_heads=5, sliding_window=6, num_hidden_layers=4),
    "glm": _decoder(num_key_value_heads=5, head_dim=8),
    "cohere": _decoder(num_key_value_heads=5),
    "olmo2": _decoder(num_key_value_heads=5),
    "ernie4_5": _decoder(num_key_value_heads=5, head_dim=4),
    "mixtral": _decoder(num_key_value_heads=5, num_local_experts=3),
    "qwen3_moe": _decoder(
        num_key_value_heads=5, head_dim=6, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12
    ),
    "lfm2": _decoder(num_key_value_heads=5, layer_types=["conv", "full_attention"]),
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
