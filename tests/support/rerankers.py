"""Tiny language models that rerank, saved as their vendors and sentence-transformers save them, and what they score."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from .references import EXACT, Float32
from .saving import read_json, write_json

# Stand in for the marks of a conversation, and for the words that score, as a real vocabulary has them.
WORDS = ("yes", "no", "Yes", "0", "1")
MARKS = ("<|im_start|>", "<|im_end|>")


def reranker(
    source: Path,
    folder: Path,
    *,
    template: str | None = None,
    bos: str | None = None,
    special: Sequence[str] = MARKS,
    **config: Any,
) -> Path:
    """A copy of the language model in `source` whose tokenizer knows `WORDS` and `MARKS`, in rows that it has.

    Args:
        template: Its chat template, None for none.
        special: Special tokens that its tokenizer knows besides.
        bos: The token that its files call the first of a text; the tokenizer adds it nowhere.
        config: Keys of `config.json`.
    """
    shutil.copytree(source, folder)
    write_json(folder / "config.json", {**read_json(folder / "config.json"), **config})
    vocabulary = json.loads((folder / "tokenizer.json").read_text())
    entries = vocabulary["model"]["vocab"]
    # The last pieces of the vocabulary make room: marks become special tokens, words plain entries.
    spare = [piece for piece, _ in sorted(entries.items(), key=lambda entry: -entry[1])]
    merged = {left + right: index for index, (left, right) in enumerate(vocabulary["model"]["merges"])}
    for word in (*WORDS, *special):
        if word in entries:
            continue
        piece = next(one for one in spare if one in merged and one not in (*WORDS, *special))
        spare.remove(piece)
        entries[word] = entries.pop(piece)
        vocabulary["model"]["merges"] = [
            pair for pair in vocabulary["model"]["merges"] if piece not in ("".join(pair), *pair)
        ]
    marks = [{"id": entries[mark], "content": mark, "special": True, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False} for mark in special]  # fmt: skip
    vocabulary["added_tokens"] = [*vocabulary["added_tokens"], *marks]
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    if bos is not None:
        write_json(folder / "tokenizer_config.json", {**read_json(folder / "tokenizer_config.json"), "bos_token": bos})
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


LISTED = ("<|embed_token|>", "<|rerank_token|>")


def listwise(source: Path, folder: Path) -> Path:
    """A copy of the Qwen3 in `source` as a reranker of whole lists, with two layers of its own."""
    reranker(source, folder, special=(*MARKS, *LISTED), architectures=["JinaForRanking"])
    state = {f"model.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    seed = torch.Generator().manual_seed(2)
    state["projector.0.weight"] = 0.2 * torch.randn(30, 60, generator=seed)
    state["projector.2.weight"] = 0.2 * torch.randn(28, 30, generator=seed)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def logits(folder: Path, prompts: Sequence[str], tokens: Sequence[str], *, special: bool = False) -> Float32:
    """Logits `[N, tokens]` that the language model of `transformers` gives to `tokens` after each prompt."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, **EXACT).eval()
    ids = tokenizer.convert_tokens_to_ids(list(tokens))
    rows = []
    with torch.inference_mode():
        for prompt in prompts:
            encoded = tokenizer(prompt, return_tensors="pt", add_special_tokens=special)
            rows.append(model(input_ids=encoded["input_ids"]).logits[0, -1, ids].numpy())
    return np.stack(rows).astype(np.float32)


def modular(
    folder: Path, *, true: int, false: int | None, messages: bool, prompts: Mapping[str, str] | None = None
) -> Path:
    """Make `folder` a CrossEncoder of sentence-transformers 6, a Transformer and a LogitScore."""
    text = {"method": "forward", "method_output_name": "logits"}
    kinds = {"text": text} | ({"message": {**text, "format": "flat"}} if messages else {})
    said = {"transformer_task": "text-generation", "modality_config": kinds, "module_output_name": "causal_logits"}
    write_json(folder / "sentence_bert_config.json", said)
    listed = [
        ("", "sentence_transformers.base.modules.transformer.Transformer"),
        ("1_LogitScore", "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"),
    ]
    modules = [{"idx": n, "name": str(n), "path": path, "type": kind} for n, (path, kind) in enumerate(listed)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_LogitScore").mkdir()
    write_json(folder / "1_LogitScore" / "config.json", {"true_token_id": true, "false_token_id": false})
    settings = {
        "model_type": "CrossEncoder",
        "prompts": dict(prompts or {}),
        "default_prompt_name": next(iter(prompts or ()), None),
    }
    write_json(folder / "config_sentence_transformers.json", settings)
    return folder
