"""Make `pylate/`: a tiny ColBERT that PyLate saved, and what PyLate makes of a few texts.

PyLate pins another sentence-transformers than the tests run with, so it is run once, in an environment of its own:

    python -m venv /tmp/pylate && /tmp/pylate/bin/pip install pylate==1.6.0 && /tmp/pylate/bin/python make_pylate.py
"""

from __future__ import annotations

import json
import shutil
import string
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pylate import models, scores
from transformers import BertConfig, BertModel, BertTokenizer

HERE = Path(__file__).resolve().parent / "pylate"
QUERIES = ["a red fox", "What is a fox? [MASK]", "fox " * 20]
DOCUMENTS = ["The red fox, and the grey one.", "!!!", "a" * 5, "(a) b; c: d, " * 6]
WORDS = ("the", "fox", "red", "grey", "one", "what", "is", "and")


def main() -> None:
    """Save the model and its answers."""
    shutil.rmtree(HERE, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        model = models.ColBERT(
            str(backbone(Path(scratch))),
            embedding_size=8,
            query_length=12,
            document_length=20,
            device="cpu",
            model_kwargs={"attn_implementation": "eager"},
        )
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    model.save(str(HERE / "model"), create_model_card=False)
    arrays: dict[str, Any] = {}
    for name, rows in answers(model).items():
        arrays |= {f"{name}_{index}": np.asarray(row, np.float32) for index, row in enumerate(rows)}
    np.savez_compressed(HERE / "rows.npz", **arrays)
    texts = {"queries": QUERIES, "documents": DOCUMENTS}
    (HERE / "texts.json").write_text(json.dumps(texts, indent=1) + "\n", encoding="utf-8")


def answers(model: models.ColBERT) -> dict[str, list[Any]]:
    """Name -> one array per text; the scores are one array in all."""
    queries, documents = one_by_one(model, QUERIES, True), one_by_one(model, DOCUMENTS, False)
    pooled = [model.encode([text], is_query=False, pool_factor=2, show_progress_bar=False)[0] for text in DOCUMENTS]
    matrix = [[scores.colbert_scores(q[None], d[None]).item() for d in documents] for q in queries]
    model.attend_to_expansion_tokens = True
    attended = one_by_one(model, QUERIES, True)
    return {
        "queries": queries,
        "documents": documents,
        "pooled": pooled,
        "attended": attended,
        "scores": [np.array(matrix)],
    }


def one_by_one(model: models.ColBERT, texts: list[str], is_query: bool) -> list[Any]:
    """Rows of each text, none of which stood beside another in a batch."""
    return [model.encode([text], is_query=is_query, show_progress_bar=False)[0] for text in texts]


def backbone(folder: Path) -> Path:
    """A BERT and its tokenizer, which knows letters, punctuation and a few words."""
    letters = [prefix + letter for prefix in ("", "##") for letter in string.ascii_lowercase]
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *string.punctuation, *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
    BertTokenizer(vocab=str(folder / "vocab.txt"), do_lower_case=True, model_max_length=32).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
