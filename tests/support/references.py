"""Numbers of the reference libraries, in float32 on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, AutoTokenizer

from .t5 import T5

Float32 = npt.NDArray[np.float32]
Ids = tuple[list[int], list[int]]

EXACT = {"dtype": torch.float32, "attn_implementation": "eager"}


def reference_vectors(folder: Path, texts: Sequence[str], *, batch_size: int = 1, **encode_kwargs: Any) -> Float32:
    """The rows [N, D] of sentence-transformers, in the order of `texts`.

    One text at a time by default, so no number depends on padding; `batch_size` above 1 is the padded variant.
    """
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True, model_kwargs=dict(EXACT))
    model.float().eval()
    rows = model.encode(list(texts), batch_size=batch_size, show_progress_bar=False, **encode_kwargs)
    return np.asarray(rows, dtype=np.float32)


def base_class(model_type: str) -> Any:
    """The auto class that makes the base model of a family; of those that have a decoder too, the encoder."""
    return AutoModelForTextEncoding if model_type in T5 else AutoModel


def reference_hidden(folder: Path, inputs: Sequence[tuple[Sequence[int], Sequence[int] | None]]) -> list[Float32]:
    """The last hidden states [n, D] of `transformers` for each `(ids, segments)`, one at a time, without a mask.

    Families without segment ids leave them out.
    """
    config = AutoConfig.from_pretrained(folder)
    model = base_class(config.model_type).from_pretrained(folder, **EXACT).eval()
    hidden: list[Float32] = []
    with torch.inference_mode():
        for ids, segments in inputs:
            arguments = {"input_ids": torch.tensor([list(ids)])}
            arguments["attention_mask"] = torch.ones_like(arguments["input_ids"])
            if segments is not None and hasattr(config, "type_vocab_size"):
                arguments["token_type_ids"] = torch.tensor([list(segments)])
            hidden.append(model(**arguments).last_hidden_state[0].numpy())
    return hidden


def ragged_ids(folder: Path, lengths: Sequence[int] = (1, 2, 3, 7, 16, 33, 16, 70), *, seed: int = 0) -> list[Ids]:
    """Random `(ids, segments)` for the model in `folder`, one pair for each of `lengths`.

    Ids come from the whole vocabulary but the padding token, which moves positions in some families. Segments are 0,
    then 1 from a random place on, where the family has two of them; else all 0.
    """
    config = AutoConfig.from_pretrained(folder)
    source = np.random.default_rng(seed)
    allowed = np.array([token for token in range(config.vocab_size) if token != config.pad_token_id])
    pairs: list[Ids] = []
    for length in lengths:
        border = source.integers(0, length + 1) if getattr(config, "type_vocab_size", 1) > 1 else length
        segments = [0 if place < border else 1 for place in range(length)]
        pairs.append((source.choice(allowed, length).tolist(), segments))
    return pairs


def reference_ids(
    folder: Path, texts: Sequence[str], pairs: Sequence[str] | None = None, **tokenizer_kwargs: Any
) -> list[tuple[list[int], list[int] | None]]:
    """`(ids, segments)` of `AutoTokenizer` for each text or pair; segments are None where it gives none."""
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    encoded = tokenizer(list(texts), None if pairs is None else list(pairs), **tokenizer_kwargs)
    segments = encoded.get("token_type_ids") or [None] * len(texts)
    return list(zip(encoded["input_ids"], segments, strict=True))


def worst_error(ours: npt.ArrayLike, reference: npt.ArrayLike) -> float:
    """max|a-b| / max|b|: what "equal" bounds, for one sequence at a time.

    Raises:
        ValueError: The shapes differ.
    """
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"The shapes differ: {a.shape} against {b.shape}.")
    return float(np.abs(a - b).max() / np.abs(b).max())
