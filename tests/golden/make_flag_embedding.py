"""Make `flag_embedding/`: a tiny BGE-M3 and a tiny reranker, and what their makers' library makes of a few texts.

FlagEmbedding needs an older transformers than the tests run with, so it is run once, in an environment of its own:

    python -m venv /tmp/flag
    /tmp/flag/bin/pip install torch==2.13.0
    /tmp/flag/bin/pip install FlagEmbedding==1.4.2 "transformers<5" "sentence-transformers<6" "datasets<4.5"
    /tmp/flag/bin/python make_flag_embedding.py
"""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from FlagEmbedding import BGEM3FlagModel, FlagReranker
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (  # type: ignore[attr-defined]
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
    XLMRobertaModel,
    XLMRobertaTokenizerFast,
)

HERE = Path(__file__).resolve().parent / "flag_embedding"
QUERIES = ["a red fox", "what is a fox ?", "the the the fox and the fox", "", "fox \U00013000 fox"]
DOCUMENTS = ["the red fox and the grey one", "one", "is a fox grey ?", "", "fox " * 40]
WORDS = ("the", "fox", "red", "grey", "one", "what", "is", "and", "a", "?", "f", "o", "x")
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
WIDTH, POSITIONS = 16, 32
WEIGHTS = [0.4, 0.2, 0.4]


def main() -> None:
    """Save both models and their answers."""
    shutil.rmtree(HERE, ignore_errors=True)
    embedder, reranker = HERE / "embedder", HERE / "reranker"
    for seed, (folder, kind) in enumerate(
        ((embedder, XLMRobertaModel), (reranker, XLMRobertaForSequenceClassification))
    ):
        tokenizer().save_pretrained(folder)
        filled(kind(config(num_labels=1)), seed).save_pretrained(folder)
    for seed, (name, size) in enumerate({"sparse_linear": 1, "colbert_linear": WIDTH}.items(), 2):
        layer = filled(torch.nn.Linear(WIDTH, size), seed)
        torch.save(layer.state_dict(), embedder / f"{name}.pt")
    arrays: dict[str, Any] = {**embedded(embedder), **reranked(reranker)}
    np.savez_compressed(HERE / "rows.npz", **arrays)
    texts = {"queries": QUERIES, "documents": DOCUMENTS, "weights": WEIGHTS}
    (HERE / "texts.json").write_text(json.dumps(texts, indent=1) + "\n", encoding="utf-8")


def embedded(folder: Path) -> dict[str, Any]:
    """Three kinds of rows of each text, and scores of each query with each document by each kind and mixed."""
    model = BGEM3FlagModel(str(folder), use_fp16=False, devices="cpu")
    arrays: dict[str, Any] = {}
    for name, texts in (("queries", QUERIES), ("documents", DOCUMENTS)):
        for index, text in enumerate(texts):
            how = {
                "return_dense": True,
                "return_sparse": True,
                "return_colbert_vecs": True,
                "max_length": POSITIONS - 2,
            }
            found = model.encode([text], **how)
            weights = sorted((int(word), float(weight)) for word, weight in found["lexical_weights"][0].items())
            arrays[f"{name}_dense_{index}"] = found["dense_vecs"][0]
            arrays[f"{name}_words_{index}"] = np.array([word for word, _ in weights], np.int32)
            arrays[f"{name}_weights_{index}"] = np.array([weight for _, weight in weights], np.float32)
            arrays[f"{name}_tokens_{index}"] = found["colbert_vecs"][0]
    return arrays | scored(model, "equal", None) | scored(model, "weighted", WEIGHTS)


def scored(model: Any, name: str, shares: list[float] | None) -> dict[str, Any]:
    """Scores of each query with each document by each kind, and mixed by these shares."""
    lengths = {"max_query_length": POSITIONS - 2, "max_passage_length": POSITIONS - 2}
    scores: dict[str, list[float]] = {"dense": [], "sparse": [], "colbert": [], "colbert+sparse+dense": []}
    for pair in itertools.product(QUERIES, DOCUMENTS):
        found = model.compute_score([pair], weights_for_different_modes=shares, **lengths)
        for kind, some in scores.items():
            some.extend(found[kind])
    size = (len(QUERIES), len(DOCUMENTS))
    return {f"scores_{kind}_{name}": np.array(some, np.float32).reshape(size) for kind, some in scores.items()}


def reranked(folder: Path) -> dict[str, Any]:
    """Scores of each query with each document, as logits and normalised; long documents are cut."""
    model = FlagReranker(str(folder), use_fp16=False, devices="cpu", max_length=POSITIONS - 2)
    arrays = {}
    for name, normalize in (("raw", False), ("normalized", True)):
        scores = [model.compute_score([(q, d)], normalize=normalize)[0] for q in QUERIES for d in DOCUMENTS]
        arrays[f"reranked_{name}"] = np.array(scores, np.float32).reshape(len(QUERIES), len(DOCUMENTS))
    return arrays


def filled(module: Any, seed: int) -> Any:
    """Random weights that show."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            is_norm = parameter.ndim == 1 and name.endswith("weight")
            parameter.normal_(mean=float(is_norm), std=0.5 if parameter.ndim > 1 else 0.2)
    return module.eval()


def config(**more: Any) -> XLMRobertaConfig:
    """Of a tiny model."""
    return XLMRobertaConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=POSITIONS,
        type_vocab_size=1,
        pad_token_id=1,
        **more,
    )


def tokenizer() -> XLMRobertaTokenizerFast:
    """Whole words, pairs joined as XLM-RoBERTa joins them."""
    vocab = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    words = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.decoder = decoders.WordPiece()
    words.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL])
    ends = [("<s>", vocab["<s>"]), ("</s>", vocab["</s>"])]
    words.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ends
    )
    named = {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
    tokens = {f"{name}_token": word for name, word in named.items()}
    return XLMRobertaTokenizerFast(tokenizer_object=words, model_max_length=POSITIONS - 2, **tokens)


if __name__ == "__main__":
    main()
