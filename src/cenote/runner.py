"""A model on its device: batches in, float32 rows out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from . import models, weights
from .config import MachineSettings
from .device import Plan, plan
from .layers import heads
from .layers.blocks import Hidden
from .layers.linear import prepare
from .layers.packed import Packed, Wanted
from .layers.pooling import Spans
from .recipe import Recipe
from .tasks import find
from .types import Batch, FloatArray, ReadKey, Rows


class Runner:
    """Holds the weights of one model; several worker threads may call `run` at once.

    Args:
        recipe: What was decided about the checkpoint.
        machine: Device and budgets.

    Raises:
        WeightMismatch: Weights and architecture do not fit together.
        ConfigError: The device or the precision is not to be had.
    """

    def __init__(self, recipe: Recipe, machine: MachineSettings) -> None:
        self.recipe = recipe
        self.plan = plan(machine, recipe.dtype, recipe.stored_dtype)
        self.device = self.plan.device
        self.num_workers = self.plan.num_workers
        self.threads_per_worker = self.plan.threads_per_worker
        self.max_batch_tokens = self.plan.max_batch_tokens
        with torch.inference_mode():
            self._model = load_model(recipe, self.plan)
            self._head = heads.build(
                recipe.steps,
                {
                    step.path: weights.stored_tensors(recipe.checkpoint, step.path)
                    for step in recipe.steps
                    if _has_weights(step)
                },
                self.device,
            )

    def run(self, batch: Batch) -> list[Rows]:
        """One forward. Rows come back grouped by read key, each sequence exactly once."""
        with torch.inference_mode():
            wanted = self._wanted(batch)
            packed = Packed.of(batch, self.device, wanted)
            hidden: Hidden = self._model(packed)
            return [self._read(batch, packed, wanted, hidden, key) for key in dict.fromkeys(batch.reads)]

    def _wanted(self, batch: Batch) -> Sequence[Wanted]:
        by_key: dict[ReadKey, Wanted] = {
            key: find(key.task).rows_needed(self.recipe, key) for key in dict.fromkeys(batch.reads)
        }
        return [by_key[key] for key in batch.reads]

    def _read(self, batch: Batch, packed: Packed, wanted: Sequence[Wanted], hidden: Hidden, key: ReadKey) -> Rows:
        bounds_S1 = packed.bounds.query_S1 if packed.kept is None else packed.kept.bounds.query_S1
        # A sequence of which one row was kept has nothing left to skip.
        skip = np.where([which == "all" for which in wanted], batch.skip, 0).astype(np.int32)
        spans = Spans.of(bounds_S1, torch.from_numpy(skip).to(self.device), len(hidden.last_QD))
        rows: FloatArray = find(key.task).read(self._head, hidden.last_QD, spans, key).cpu().numpy()
        seqs = np.flatnonzero([read == key for read in batch.reads]).astype(np.int32)
        return Rows(seqs, rows if len(seqs) == batch.num_seqs else rows[seqs])


def load_model(recipe: Recipe, plan: Plan) -> models.Model:
    """The backbone of `recipe` with its weights, ready to run.

    Raises:
        WeightMismatch: Weights and architecture do not fit together.
    """
    architecture = models.find(recipe.transformer.config)
    with torch.device("meta"):
        model = architecture.Model(recipe.model)
    weights.load(
        model,
        weights.stored_tensors(recipe.transformer),
        prefixes=architecture.PREFIXES,
        rename=architecture.RENAME,
        ignored=architecture.IGNORED,
        dtype=plan.dtype,
        device=plan.device,
        name=recipe.name,
    )
    prepare(model)
    loaded: models.Model = model.eval()
    return loaded


def _has_weights(step: object) -> bool:
    return type(step).__name__ in ("Dense", "LayerNorm")
