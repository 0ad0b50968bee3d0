"""Classifiers of the reference: logits of `transformers`, and folders saved by sentence-transformers' CrossEncoder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer

from cenote import Pair

from .references import EXACT, Float32
from .saving import read_json, write_json

Item = str | Pair | Sequence[int]


class Reference:
    """A classifier of `transformers` in float32, one input at a time.

    Args:
        folder: The checkpoint.
        tokens: Whether it labels tokens, not whole texts.
    """

    def __init__(self, folder: Path, *, tokens: bool = False) -> None:
        kind: Any = AutoModelForTokenClassification if tokens else AutoModelForSequenceClassification
        self._model = kind.from_pretrained(folder, **EXACT).eval()
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def logits(self, item: Item, **tokenizer_kwargs: Any) -> Float32:
        """`[L]`, or `[n, L]` of a labeller of tokens; ids are read with segments of zeros."""
        if isinstance(item, (str, Pair)):
            encoded = dict(self._encoded(item, return_tensors="pt", **tokenizer_kwargs))
        else:
            encoded = {"input_ids": torch.tensor([list(item)])}
        with torch.inference_mode():
            logits: Float32 = self._model(**encoded).logits[0].numpy()
        return logits

    def ids(self, item: str | Pair, **tokenizer_kwargs: Any) -> list[int]:
        """Token ids of a text or a pair."""
        found: list[int] = self._encoded(item, **tokenizer_kwargs)["input_ids"][0]
        return found

    def _encoded(self, item: str | Pair, **tokenizer_kwargs: Any) -> Any:
        # In lists: handed in bare, an empty second text counts as none.
        texts = ([item],) if isinstance(item, str) else ([item.text], [item.text_pair])
        return self.tokenizer(*texts, truncation=True, **tokenizer_kwargs)


def cross_encoder(folder: Path, **options: Any) -> Any:
    """The folder in sentence-transformers, in float32 with plain attention."""
    return CrossEncoder(str(folder), device="cpu", local_files_only=True, model_kwargs=dict(EXACT), **options)


def predictions(folder: Path, pairs: Sequence[Pair], **options: Any) -> Float32:
    """`CrossEncoder.predict` of each pair alone: `[N]`, or `[N, L]` where there are more labels than one."""
    given = [(pair.text, pair.text_pair) for pair in pairs]
    model = cross_encoder(folder)
    return np.asarray(model.predict(given, batch_size=1, show_progress_bar=False, **options), np.float32)


def saved_by_cross_encoder(source: Path, folder: Path, **options: Any) -> Path:
    """`source` as `CrossEncoder.save_pretrained` writes it; `options` are those of `CrossEncoder`."""
    cross_encoder(source, **options).save_pretrained(str(folder))
    return folder


def changed(source: Path, folder: Path, file: str = "config.json", **values: Any) -> Path:
    """A copy of `source` with keys of one JSON file set; None takes a key away."""
    shutil.copytree(source, folder)
    config = {**read_json(folder / file), **values}
    write_json(folder / file, {key: value for key, value in config.items() if value is not None})
    return folder


def louder(source: Path, folder: Path, factor: float) -> Path:
    """A copy of `source` whose last linear layer is `factor` times as large, so that sigmoids saturate."""
    shutil.copytree(source, folder)
    weights = load_file(folder / "model.safetensors")
    last = [name for name in weights if name.startswith("classifier.") and "dense" not in name]
    save_file({n: w * factor if n in last else w for n, w in weights.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})  # fmt: skip
    return folder
