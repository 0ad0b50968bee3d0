"""Writes docs/models.md from the files of `cenote.models` and docs/parity.md: `python docs/make_models.py`.

A test holds the page to it. Checkpoints are named by hand; a family without any stops the program.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from cenote import models, plugins

PAGE = Path(__file__).with_name("models.md")
_PARITY = Path(__file__).with_name("parity.md")
_INTRO = """# Models

Families with a file here, by `model_type`. Each embeds texts and tokens, and classifies them where its checkpoints have
such a head. Parity is the largest difference to transformers in the last run ([how it is measured](parity.md)); 1e-5 is
allowed. Any other family that transformers knows is run by it (`--model-impl`), and `cenote inspect` says so.
A folder may hold an adapter of PEFT in place of weights: it is merged into the base model that it names, one of these.
This page is written by `python docs/make_models.py`.

| model_type | classifiers | parity | for example |
|---|---|---|---|
"""

# File -> well-known public checkpoints; "" where checkpoints are known by their modules, not by a name.
_EXAMPLES: dict[str, str] = {
    "albert": "albert/albert-base-v2",
    "bert": "BAAI/bge-base-en-v1.5, sentence-transformers/all-MiniLM-L6-v2",
    "bow": "",
    "deberta_v2": "microsoft/deberta-v3-base, mixedbread-ai/mxbai-rerank-base-v1",
    "distilbert": "sentence-transformers/multi-qa-distilbert-cos-v1",
    "electra": "cross-encoder/ms-marco-electra-base",
    "gemma": "BAAI/bge-reranker-v2-gemma",
    "gemma2": "BAAI/bge-multilingual-gemma2",
    "gemma3_text": "google/embeddinggemma-300m",
    "gte": "Alibaba-NLP/gte-multilingual-base, Snowflake/snowflake-arctic-embed-m-v2.0",
    "internlm2": "internlm/internlm2-1_8b-reward, internlm/internlm2-7b",
    "jina_bert": "jinaai/jina-embeddings-v2-base-en",
    "jina_embeddings_v5": "jinaai/jina-embeddings-v5-text-small, jinaai/jina-embeddings-v5-text-nano",
    "llama": "meta-llama/Llama-3.2-1B, nvidia/llama-nemotron-embed-1b-v2",
    "mistral": "intfloat/e5-mistral-7b-instruct",
    "modernbert": "Alibaba-NLP/gte-modernbert-base, nomic-ai/modernbert-embed-base",
    "mpnet": "sentence-transformers/all-mpnet-base-v2",
    "nomic_bert": "nomic-ai/nomic-embed-text-v1.5, nomic-ai/nomic-embed-text-v2-moe",
    "phi3": "microsoft/Phi-3-mini-4k-instruct",
    "present_words": "",
    "qwen2": "Alibaba-NLP/gte-Qwen2-1.5B-instruct, mixedbread-ai/mxbai-rerank-base-v2",
    "qwen3": "Qwen/Qwen3-Embedding-0.6B, Qwen/Qwen3-Reranker-0.6B, jinaai/jina-reranker-v3",
    "roberta": "BAAI/bge-m3, intfloat/multilingual-e5-base, BAAI/bge-reranker-v2-m3",
    "static_embedding": "minishlab/potion-base-8M, sentence-transformers/static-retrieval-mrl-en-v1",
    "t5": "sentence-transformers/sentence-t5-base, sentence-transformers/gtr-t5-base",
    "word_embeddings": "sentence-transformers/average_word_embeddings_glove.6B.300d",
    "xlm_roberta_flash": "jinaai/jina-embeddings-v3, jinaai/jina-reranker-v2-base-multilingual",
}


def page() -> str:
    """The whole page."""
    files = sorted(name for name, module in plugins.architectures().items() if module.startswith("cenote.models."))
    return _INTRO + "\n".join(_row(name) for name in files) + "\n"


def _row(name: str) -> str:
    module: Any = importlib.import_module(f"cenote.models.{name}")
    names = [name, *sorted(alias for alias, file in models.ALIASES.items() if file == name)]
    kinds = ", ".join(module.HEADS) if isinstance(module.HEADS, dict) else "sequence, token"
    return f"| {', '.join(f'`{one}`' for one in names)} | {kinds} | {_parity(names)} | {_EXAMPLES[name]} |"


def _parity(names: list[str]) -> str:
    rows = [line.split("|") for line in _PARITY.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    known = {part for one in names for part in (one, one.replace("_", "-"))}
    found = [row[2].strip() for row in rows if row[1].strip() in known or row[1].strip().split("-")[0] in known]
    values = [value for value in found if value[:1].isdigit()]
    return max(values, key=float, default="")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
