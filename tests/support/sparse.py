"""Sparse rows of sentence-transformers, and ours laid beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SparseEncoder

from cenote.outputs import SparseEmbeddingRequestOutput

from .references import EXACT, Float32


def sparse_encoder(folder: Path) -> Any:
    """The folder in sentence-transformers, in float32 with plain attention."""
    return SparseEncoder(str(folder), device="cpu", local_files_only=True, model_kwargs=dict(EXACT))


def reference_rows(folder: Path, texts: Sequence[str], **encode_kwargs: Any) -> Float32:
    """`SparseEncoder.encode` of each text alone, as dense rows `[N, V]`."""
    encoder = sparse_encoder(folder)
    rows = encoder.encode(list(texts), batch_size=1, show_progress_bar=False, **encode_kwargs)
    return np.asarray(rows.to_dense(), np.float32)


def dense(outputs: Sequence[SparseEmbeddingRequestOutput]) -> Float32:
    """Answers of `LLM.embed_sparse` as dense rows `[N, V]`."""
    rows = np.zeros((len(outputs), outputs[0].outputs.size), np.float32)
    for row, out in zip(rows, outputs, strict=True):
        row[out.outputs.indices] = out.outputs.values
    return rows
