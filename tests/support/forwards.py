"""Cenote's forwards below the engine: ids in, hidden states or rows out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from cenote.checkpoint import open_checkpoint
from cenote.config import KernelChoice, MachineSettings, ModelSettings
from cenote.device import plan
from cenote.layers.packed import Packed, Wanted
from cenote.models import Model
from cenote.recipe import Recipe, resolve
from cenote.runner import Runner, load_model
from cenote.tasks import embed
from cenote.types import Batch, Encoded, FloatArray, ReadKey

CPU = MachineSettings(device="cpu", num_workers=1, threads_per_worker=1, kernels="off")
"""PyTorch's own operations, which every machine has."""
EMBED = ReadKey("embed")
Given = tuple[Sequence[int], Sequence[int] | None]
"""Ids and segments of one input; None where the tokenizer gives none."""


@dataclass(frozen=True)
class Backbone:
    """A checkpoint's model, loaded as the runner loads it."""

    recipe: Recipe
    model: Model

    def forward(self, inputs: Sequence[Given], wanted: Sequence[Wanted] = ()) -> list[FloatArray]:
        """Last hidden states `[n, D]` of each input, all in one batch; only the wanted rows."""
        return self._forward(inputs, wanted, ())[-1]

    def layers(self, inputs: Sequence[Given], numbers: Sequence[int]) -> list[list[FloatArray]]:
        """For each number of a layer (0 is the embeddings), the hidden states of each input."""
        return self._forward(inputs, (), tuple(numbers))[:-1]

    def _forward(
        self, inputs: Sequence[Given], wanted: Sequence[Wanted], numbers: tuple[int, ...]
    ) -> list[list[FloatArray]]:
        with torch.inference_mode():
            packed = replace(Packed.of(pack(inputs), torch.device("cpu"), wanted), layers=numbers)
            hidden = self.model(packed)
            bounds = (packed.kept.bounds if packed.kept else packed.bounds).query_S1.tolist()
            found = [*(hidden.layers[number] for number in numbers), hidden.last_QD]
            return [[part.float().numpy() for part in rows.split(np.diff(bounds).tolist())] for rows in found]


def pack(inputs: Sequence[Given]) -> Batch:
    """One batch of `inputs`, read as embeddings."""
    encoded = [
        Encoded(np.array(ids, np.int32), None if segments is None else np.array(segments, np.int32))
        for ids, segments in inputs
    ]
    return Batch.pack(encoded, [EMBED] * len(encoded))


def recipe_of(folder: Path, dtype: str = "float32") -> Recipe:
    """What is decided about `folder`."""
    return resolve(open_checkpoint(str(folder)), ModelSettings(model=str(folder), dtype=dtype))


def backbone(folder: Path, dtype: str = "float32", kernels: KernelChoice = "off") -> Backbone:
    """Load the model in `folder` on the CPU."""
    recipe = recipe_of(folder, dtype)
    model, _ = load_model(recipe, plan(replace(CPU, kernels=kernels), recipe.dtype, recipe.stored_dtype))
    return Backbone(recipe, model)


def finished_rows(folder: Path, inputs: Sequence[Given], skip: int = 0) -> FloatArray:
    """Finished embeddings `[N, E]` of one batch, by the runner and the task, without a tokenizer."""
    recipe = recipe_of(folder)
    batch = replace(pack(inputs), skip=np.full(len(inputs), skip, np.int32))
    (found,) = Runner(recipe, CPU).run(batch)
    assert isinstance(found.rows, np.ndarray)
    return embed.shape(recipe, found.rows, embed.Params())
