"""A model on its device: batches in, float32 rows out."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from . import activations, fallback, lm_head, models, weights
from .config import MachineSettings
from .cores import num_cores
from .device import Plan, plan
from .errors import CheckpointError
from .layers.blocks import Hidden
from .layers.heads import Classifier, DenseLayer, Head, Heads, build, build_classifier, build_dense
from .layers.kernels import Kernels, spread, use
from .layers.linear import prepare, quantize
from .layers.masked_lm import MaskedLMHead, build_masked_lm
from .layers.packed import Packed, Wanted
from .layers.pooling import Spans
from .layers.sparse import build_sparse_code, build_splade, build_token_weights
from .layers.token_steps import TokenRows
from .recipe import Recipe
from .steps import (
    CNN,
    LSTM,
    Dense,
    LayerNorm,
    SparseCode,
    Splade,
    Stages,
    TokenWeights,
    WeightedLayerPooling,
    WordWeights,
    layers_read,
)
from .tasks import find
from .types import Batch, Encoded, FloatArray, ReadKey, Rows

log = logging.getLogger(__name__)

# A larger batch is work for each of the workers soon enough.
_MOST_SPREAD_TOKENS = 512


class Runner:
    """Holds the weights of one model; several worker threads may call `run` at once.

    Args:
        recipe: What was decided about the checkpoint.
        machine: Device and budgets.

    Attributes:
        shares_prefixes: Whether what sequences of a batch begin with alike is to be computed once.

    Raises:
        WeightMismatch: Weights and architecture do not fit together.
        ConfigError: The device or the precision is not to be had.
    """

    def __init__(self, recipe: Recipe, machine: MachineSettings) -> None:
        self.recipe = recipe
        self.plan = plan(machine, recipe.dtype, recipe.stored_dtype, native=recipe.model_impl == "cenote")
        self.device = self.plan.device
        self.num_workers = self.plan.num_workers
        self.threads_per_worker = self.plan.threads_per_worker
        self.max_batch_tokens = self.plan.max_batch_tokens
        log.info("Kernels: %s (%s).", self.plan.kernels or "PyTorch's", self.plan.reasons["kernels"])
        self._spread_cores = min(self.num_workers, num_cores()) if self.plan.kernels else 1
        by_folder: dict[tuple[Path, ...], dict[str, Recipe]] = {}
        for route, one in recipe.by_route.items():
            by_folder.setdefault(one.transformer.folders, {})[route] = one
        with torch.inference_mode():
            self._backbones = [Backbone(routes, machine) for routes in by_folder.values()]
        # On a GPU the mask that this takes would keep PyTorch from its fastest attention. In int8 the last bit of a
        # float decides which integer it becomes, so that a row would depend on its batch.
        self.shares_prefixes = (
            machine.share_prefixes
            and len(self._backbones) == 1
            and self._backbones[0].shares_prefixes
            and self.device.type == "cpu"
            and self.plan.quantization == "none"
        )

    def run(self, batch: Batch, *, alone: bool = False) -> list[Rows]:
        """One forward of each backbone that the batch has sequences for.

        Rows come back grouped by read key, each sequence exactly once.

        Args:
            alone: Whether the cores of the other workers have nothing to do, so that a small batch may use them too.
        """
        is_spread = alone and len(batch.ids) <= _MOST_SPREAD_TOKENS and self._spread_cores > 1
        with torch.inference_mode(), spread(self._spread_cores) if is_spread else nullcontext():
            if len(self._backbones) == 1:
                return self._backbones[0].run(batch)
            return [rows for backbone in self._backbones for rows in _run_part(backbone, batch)]

    def rouse(self) -> None:
        """Wake what computes on the cores of the other workers, for a forward that comes soon and is alone."""
        if self._spread_cores > 1:
            with spread(self._spread_cores):
                return


def _run_part(backbone: Backbone, batch: Batch) -> list[Rows]:
    """Run those sequences of a batch that take one of the backbone's routes."""
    seqs = np.flatnonzero([read.route in backbone.routes for read in batch.reads]).astype(np.int32)
    if not len(seqs):
        return []
    return [Rows(seqs[found.seqs], found.rows) for found in backbone.run(batch.part(seqs))]


class Backbone:
    """The weights of one backbone, and of what stands on it: one set of heads for each route that it serves.

    Args:
        routes: Name of a route, "" where there are none -> its recipe; all have the same backbone.

    Attributes:
        shares_prefixes: Whether it can compute once what sequences begin with alike.
    """

    def __init__(self, routes: Mapping[str, Recipe], machine: MachineSettings) -> None:
        self.routes = routes
        self.recipe = next(iter(routes.values()))
        planned = plan(machine, self.recipe.dtype, self.recipe.stored_dtype, native=self.recipe.model_impl == "cenote")
        self.device = planned.device
        self._model, head = load_model(self.recipe, planned)
        self._heads = {route: self._load_heads(recipe, head) for route, recipe in routes.items()}
        self._layers = tuple({number for one in routes.values() for step in one.steps for number in layers_read(step)})
        if self._layers:
            self._check_layers()
        self.shares_prefixes = self.recipe.model.nature.shares_prefixes and not self._layers

    def run(self, batch: Batch) -> list[Rows]:
        """One forward."""
        keys = dict.fromkeys(batch.reads)
        wanted = self._wanted(batch)
        packed = Packed.of(batch, self.device, wanted, self._layers)
        tokens = self._token_rows(batch, packed, wanted, self._model(packed))
        by_route = {route: self._stepped(tokens, route) for route in dict.fromkeys(key.route for key in keys)}
        return [self._read(batch, by_route[key.route], key) for key in keys]

    def _load_heads(self, recipe: Recipe, head: Classifier | MaskedLMHead | None) -> Heads:
        masked_lm = head if isinstance(head, MaskedLMHead) else None
        pooled = self._load_steps(recipe) if {"embed", "token_embed"} & set(recipe.tasks) else None
        return Heads(
            pooled=pooled,
            classifier=head if isinstance(head, Classifier) else None,
            masked_lm=masked_lm,
            sparse=self._load_sparse(recipe, masked_lm, pooled),
            multi_vector=self._load_multi_vector(recipe),
        )

    def _load_sparse(self, recipe: Recipe, masked_lm: MaskedLMHead | None, pooled: Head | None) -> nn.Module | None:
        step = recipe.sparse.step if recipe.sparse else None
        if isinstance(step, Splade):
            assert masked_lm is not None
            return build_splade(step, masked_lm)
        if isinstance(step, SparseCode):
            assert pooled is not None
            tensors = dict(weights.stored_tensors(recipe.checkpoint, step.path))
            return build_sparse_code(step, pooled, tensors, self.device)
        if isinstance(step, TokenWeights):
            return build_token_weights(step, weights.stored_file(recipe.transformer, step.path), self.device)
        return None

    def _load_multi_vector(self, recipe: Recipe) -> DenseLayer | None:
        step = recipe.multi_vector
        if step is None:
            return None
        stored = weights.stored_file(recipe.transformer, step.path)
        return build_dense(step, {f"linear.{name}": tensor for name, tensor in stored.items()}, self.device)

    def _load_steps(self, recipe: Recipe) -> Head:
        tensors: dict[str, Iterable[tuple[str, Tensor]]] = {}
        for step in recipe.steps:
            if isinstance(step, WordWeights):
                tensors[step.path] = [("weights", torch.tensor(step.weights))]
            elif isinstance(step, Dense) and step.stored_as:
                tensors[step.path] = [("linear.weight", weights.stored_tensor(recipe.transformer, step.stored_as))]
            elif isinstance(step, (Dense, LayerNorm, WeightedLayerPooling, CNN, LSTM)):
                tensors[step.path] = weights.stored_tensors(recipe.checkpoint, step.path)
        return build(recipe.steps, tensors, self.device)

    def _check_layers(self) -> None:
        """Make sure by a forward of one token that the layers that a step reads are those that the model has."""
        batch = Batch.pack([Encoded(np.zeros(1, np.int32))], [ReadKey("embed")])
        beyond = max(self._layers) + 1
        found = self._model(Packed.of(batch, self.device, (), (*self._layers, beyond))).layers
        if beyond in found or not set(self._layers) <= set(found):
            raise CheckpointError(
                f"A module of {self.recipe.name} reads layers {min(self._layers)} to {max(self._layers)}, but that is "
                "not the last layer of the model.",
                fix="The modules of the folder do not belong together; fetch it again.",
            )

    def _wanted(self, batch: Batch) -> Sequence[Wanted]:
        by_key: dict[ReadKey, Wanted] = {
            key: find(key.task).rows_needed(self.routes[key.route], key) for key in dict.fromkeys(batch.reads)
        }
        return [by_key[key] for key in batch.reads]

    def _token_rows(self, batch: Batch, packed: Packed, wanted: Sequence[Wanted], hidden: Hidden) -> TokenRows:
        bounds_S1 = batch.bounds if packed.kept is None else packed.kept.starts_S1
        last_QD = packed.of_kept(hidden.last_QD) if packed.kept is None else hidden.last_QD
        if self.recipe.model.nature.bag:
            bounds_S1 = np.arange(batch.num_seqs + 1, dtype=np.int32)
        # A sequence of which one row was kept has nothing left to skip.
        skip_S = batch.skip if packed.kept is None else np.where([which == "all" for which in wanted], batch.skip, 0)
        layers = {number: packed.of_kept(rows_TD) for number, rows_TD in hidden.layers.items()}
        ids_Q = packed.of_kept(packed.ids_T)
        return TokenRows(last_QD, ids_Q, layers, Spans.of(bounds_S1, skip_S, self.device, ids_Q))

    def _stepped(self, tokens: TokenRows, route: str) -> TokenRows:
        pooled = self._heads[route].pooled
        return tokens if pooled is None else pooled.of_tokens(tokens)

    def _read(self, batch: Batch, tokens: TokenRows, key: ReadKey) -> Rows:
        seqs = np.array([seq for seq, read in enumerate(batch.reads) if read == key], np.int32)
        spans = tokens.spans
        if len(seqs) < batch.num_seqs:
            spans = spans.of_seqs(torch.from_numpy(seqs).long().to(self.device))
        task = find(key.task)
        read = task.read(self._heads[key.route], tokens.rows_QD, spans, key)
        if isinstance(read, Tensor):
            return Rows(seqs, _on_cpu(read))
        ends = np.cumsum(read.lengths_S.cpu().numpy())
        keeps = [batch.keep[seq] if batch.keep else None for seq in seqs.tolist()]
        # Copies, so that one short text does not hold the rows of its whole batch.
        parts = zip(np.split(_on_cpu(read.rows_nE), ends[:-1]), keeps, strict=True)
        return Rows(seqs, [part.copy() if keep is None else part[keep] for part, keep in parts])


def load_model(recipe: Recipe, plan: Plan) -> tuple[models.Model, Classifier | MaskedLMHead | None]:
    """The backbone of `recipe`, and what stands on it in the same files, with their weights, ready to run.

    Raises:
        WeightMismatch: Weights and architecture do not fit together.
    """
    if isinstance(recipe.model, fallback.Config):
        return _load_fallback(recipe, recipe.model, plan)
    architecture = models.find(recipe.transformer.config)
    with torch.device("meta"):
        model = architecture.Model(recipe.model)
    heads = models.heads(architecture, recipe.model)
    label_rows = recipe.classifier.tokens if recipe.classifier else None
    reward = models.reward(architecture, recipe.architecture)
    stages = reward.stages if reward else heads[recipe.classifier.head] if recipe.classifier and not label_rows else ()
    names = recipe.masked_lm.names if recipe.masked_lm else tuple(f"{stage.name}." for stage in stages)
    tensors = weights.stored_tensors(recipe.transformer) if models.stores(architecture) else ()
    rows = lm_head.wanted(architecture, label_rows)
    stored = weights.Stored(tensors, architecture.PREFIXES, names, rows)
    weights.load(
        model,
        models.gathered(architecture, stored.backbone(), recipe.model),
        prefixes=architecture.PREFIXES,
        rename=architecture.RENAME,
        ignored=(*architecture.IGNORED, *_unread(recipe, heads)),
        dtype=plan.dtype,
        device=plan.device,
        name=recipe.name,
    )
    if plan.quantization == "int8":
        quantize(model)
        if plan.kernels is None and "AVX512" not in torch.backends.cpu.get_cpu_capability():
            log.warning(
                "int8 without our own kernels (%s) is far slower than float32 on this CPU, where PyTorch has no fast "
                "product of 8-bit integers. Install cenote-kernels, or leave the quantization at none.",
                plan.reasons["kernels"],
            )
    if plan.kernels is not None:
        use(model, Kernels(plan.kernels))
    prepare(model)
    head: Classifier | MaskedLMHead | None = None
    if recipe.masked_lm:
        words_VE = model.get_parameter(recipe.masked_lm.table)
        head = build_masked_lm(recipe.masked_lm, stored.head, words_VE, recipe.model.hidden_size)
    elif recipe.classifier:
        num_labels = len(recipe.classifier.labels)
        activations.check(recipe.classifier.activation, num_labels)
        sizes = (recipe.model.hidden_size, num_labels)
        found = stored.head
        if label_rows is not None:
            is_tied = recipe.transformer.config.get("tie_word_embeddings")
            stages = lm_head.STAGES
            found = lm_head.classifier(architecture, label_rows, stored.kept, is_tied=is_tied, name=recipe.name)
        head = build_classifier(stages, found, *sizes, plan.device, pooling=recipe.classifier.pooling)
    return model.eval(), head


def _load_fallback(recipe: Recipe, config: fallback.Config, plan: Plan) -> tuple[models.Model, Classifier | None]:
    from .fallback.loading import load

    classifier = recipe.classifier
    unread = [step.stored_as for step in recipe.steps if isinstance(step, Dense) and step.stored_as]
    kind = "embed" if classifier is None else classifier.head
    model = load(recipe.transformer, config, kind, plan, unread=unread)
    if classifier is None:
        return model, None
    num_labels = len(classifier.labels)
    activations.check(classifier.activation, num_labels)
    return model, build_classifier((), {}, num_labels, num_labels, plan.device, pooling=classifier.pooling)


def _unread(recipe: Recipe, heads: Mapping[str, Stages]) -> list[tuple[str, str]]:
    """Stored projections that a step reads, and classifiers that are dropped where `modules.json` pools."""
    projections = [step.stored_as for step in recipe.steps if isinstance(step, Dense) and step.stored_as]
    if projections:
        return [(rf"^{re.escape(name)}$", "a projection that comes after the backbone") for name in projections]
    if recipe.classifier or not recipe.architecture.endswith("Classification"):
        return []
    names = {stage.name for stages in heads.values() for stage in stages}
    return [(rf"^{re.escape(name)}\.(weight|bias)$", "a classifier that the modules do not read") for name in names]


def _on_cpu(rows: Tensor) -> FloatArray:
    found: FloatArray = rows.float().cpu().numpy()
    return found
