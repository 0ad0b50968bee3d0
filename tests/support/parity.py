"""What "equal to the reference" means for a backbone: the cases, their inputs, and the measure of a difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from transformers import AutoConfig

from . import decoders, jina_bert, rotary, t5
from .checkpoints import VARIANTS, tiny_transformer
from .forwards import Backbone, backbone
from .references import EXACT, Float32, Ids, base_class, ragged_ids, worst_error

REFERENCE_LIMIT: Final = 1e-5
"""Largest max|a-b| / max|b| of a sequence against the reference, in float32."""
BATCH_LIMIT: Final = 2e-6
"""The same for one input in two batches."""
HALF_COSINE: Final = 0.9995
LENGTHS: Final = (1, 2, 3, 7, 16, 33, 16, 70)

CASES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    **VARIANTS,
    # Distances above 128 share a bucket, and a long text crosses every border between buckets.
    "mpnet-far": ("mpnet", {"max_positions": 300}),
    "mpnet-other-pad": ("mpnet", {"pad_token_id": 7}),
    "roberta-other-pad": ("roberta", {"pad_token_id": 4, "max_position_embeddings": 75}),
    "distilbert-sinusoidal": ("distilbert", {"sinusoidal_pos_embds": True}),
    # Distances beyond the last bucket, which real buckets of 256 start at 512.
    "deberta-v2-far": ("deberta-v2", {"max_positions": 700, "max_relative_positions": 512, "position_buckets": 256}),
    **decoders.VARIANTS,
    **rotary.VARIANTS,
    **jina_bert.VARIANTS,
    "jina_bert-far": ("jina_bert", {"max_positions": 600, "num_hidden_layers": 2}),
    **t5.VARIANTS,
    "jina_embeddings_v3": ("jina_embeddings_v3", {}),
}
"""Name -> model type and what is special in its config."""


@dataclass(frozen=True)
class Case:
    """A tiny checkpoint, its inputs, and what the reference makes of them.

    Args:
        layers: For each number of a layer (0 is the embeddings), the hidden states of each input.
    """

    folder: Path
    ours: Backbone
    inputs: list[Ids]
    layers: list[list[Float32]]

    @property
    def last(self) -> list[Float32]:
        """The reference's last hidden states, one array `[n, D]` an input."""
        return self.layers[-1]


def make_case(name: str, folder: Path) -> Case:
    """Save the checkpoint of `CASES[name]` in `folder` and run the reference, one input at a time."""
    model_type, special = CASES[name]
    tiny_transformer(model_type, folder, **special)
    inputs = case_inputs(folder, special.get("max_positions", 70))
    return Case(folder, backbone(folder), inputs, reference_layers(folder, inputs))


def case_inputs(folder: Path, limit: int) -> list[Ids]:
    """A ragged batch up to the limit of positions, and texts with padding tokens inside and at their ends."""
    pad = AutoConfig.from_pretrained(folder).pad_token_id
    inputs = ragged_ids(folder, (*LENGTHS, limit))
    for ids, segments in ragged_ids(folder, (9, 24), seed=1):
        holed = list(ids)
        for place in (0, 3, 4, len(ids) - 1):
            holed[place] = pad
        inputs.append((holed, segments))
    return inputs


def reference_layers(folder: Path, inputs: Sequence[Ids], dtype: str = "float32") -> list[list[Float32]]:
    """All hidden states of `transformers`: for each layer, `[n, D]` of each input."""
    config = AutoConfig.from_pretrained(folder)
    exact = {**EXACT, "dtype": getattr(torch, dtype)}
    model = base_class(config.model_type).from_pretrained(folder, **exact).eval()
    found: list[list[Float32]] = []
    with torch.inference_mode():
        for ids, segments in inputs:
            arguments = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
            if hasattr(config, "type_vocab_size"):
                arguments["token_type_ids"] = torch.tensor([segments])
            out = model(**arguments, output_hidden_states=True)
            states = [*out.hidden_states[:-1], out.last_hidden_state]
            found.append([state[0].float().numpy() for state in states])
    return [list(layer) for layer in zip(*found, strict=True)]


def worst_of(ours: Sequence[Float32], reference: Sequence[Float32]) -> float:
    """The largest `worst_error` over the sequences."""
    return max(worst_error(a, b) for a, b in zip(ours, reference, strict=True))


def cosine(a: Float32, b: Float32) -> float:
    """Of two arrays, as one vector each."""
    x, y = a.ravel().astype(np.float64), b.ravel().astype(np.float64)
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


@dataclass(frozen=True)
class Measured:
    """Largest relative differences of a case: to the reference, and of a text alone to itself in a batch."""

    reference: float
    batch: float


def measure(case: Case) -> Measured:
    """Run all inputs of `case` at once and alone."""
    together = case.ours.forward(case.inputs)
    alone = [case.ours.forward([one])[0] for one in case.inputs]
    return Measured(worst_of(together, case.last), worst_of(together, alone))
