"""Weights into a module of `transformers`, by its own loader, under the audit that all weights are under."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import torch

from ..checkpoint import Checkpoint
from ..device import Plan
from ..errors import ConfigError, WeightMismatch
from ..layers.packed import Packed
from ..types import Batch, Encoded, ReadKey
from . import Config, classes
from .classes import Kind
from .model import Model

_MOST_LISTED = 12


def load(checkpoint: Checkpoint, config: Config, kind: Kind, plan: Plan, *, unread: Collection[str] = ()) -> Model:
    """The model with its weights, ready to run.

    Args:
        checkpoint: The files of the transformer.
        kind: What it is to give.
        unread: Names of stored tensors that somebody else reads.

    Raises:
        WeightMismatch: A tensor is missing, or stored and of no use to the class that `config.json` names.
        CheckpointError: There is no such class, or it gives no rows of tokens.
        ConfigError: Linear layers are to multiply in 8 bits, or rotary positions are scaled dynamically.
    """
    if plan.quantization != "none":
        raise ConfigError(
            f"quantization={plan.quantization!r}, but transformers runs {checkpoint.name}.",
            fix="Leave quantization out: only Cenote's own implementations have it.",
            param="quantization",
        )
    auto = classes.auto_class(config.hf, kind, trusts_code=config.trusts_code)
    _check_rope(config.hf)
    whole, report = _loaded(auto, checkpoint, config, kind, plan)
    module = classes.of_tokens(whole) if kind == "embed" else whole
    _audit(whole, module, report, config, unread, checkpoint.name)
    module.requires_grad_(False).eval().to(plan.device)
    size = config.hidden_size if kind == "embed" else int(config.hf.num_labels)
    model = Model(module, kind, size, gives_segments=config.segments == "given")
    if kind == "embed":
        # One forward of a short text: whether the rows are what config.json says shows in no other way.
        words = Encoded(np.zeros(4, np.int32))
        model(Packed.of(Batch.pack([words], [ReadKey("embed")]), plan.device))
    return model


def _loaded(auto: Any, checkpoint: Checkpoint, config: Config, kind: Kind, plan: Plan) -> tuple[Any, dict[str, Any]]:
    made = type(classes.empty(config.hf, kind, trusts_code=config.trusts_code))
    # Nothing reads the row that poolers make of a text, and base models are often stored without one.
    has_pooler = "add_pooling_layer" in inspect.signature(made.__init__).parameters
    extra = {"add_pooling_layer": False} if kind == "embed" and has_pooler else {}
    with _quiet():
        try:
            found: tuple[Any, dict[str, Any]] = auto.from_pretrained(
                str(checkpoint.folder),
                config=config.hf,
                dtype=plan.dtype,
                local_files_only=True,
                trust_remote_code=config.trusts_code,
                output_loading_info=True,
                **extra,
            )
        except (RuntimeError, ValueError, OSError, KeyError) as error:
            raise WeightMismatch(
                f"transformers cannot load the weights of {checkpoint.name}: {error}",
                fix="Fetch the checkpoint again, or name one whose weights belong to its config.json.",
                param="model",
            ) from error
    return found


def _audit(whole: Any, module: Any, report: dict[str, Any], config: Config, unread: Collection[str], name: str) -> None:
    """Stop where something that is read was not stored, or where what was stored belongs to nothing that is known."""
    running = {id(tensor) for tensor in module.state_dict(keep_vars=True).values()}
    read = {key for key, tensor in whole.state_dict(keep_vars=True).items() if id(tensor) in running}
    prefix = rf"^{re.escape(whole.base_model_prefix)}\."
    declared = {re.sub(prefix, "", key) for key in _declared(config)} | set(unread)
    missing = sorted(set(report["missing_keys"]) & read)
    unused = sorted(key for key in report["unexpected_keys"] if re.sub(prefix, "", key) not in declared)
    if missing or unused:
        listed = (
            f"{said} {', '.join(keys[:_MOST_LISTED])}"
            for said, keys in (("lacks", missing), ("has no use for", unused))
            if keys
        )
        raise WeightMismatch(
            f"{type(whole).__name__} of transformers {' and '.join(listed)} ({name}).",
            allowed="Each tensor is stored and read, or belongs to a part of the class that config.json names.",
            fix="Fetch the checkpoint again, or correct `architectures` in its config.json.",
            param="model",
        )


def _declared(config: Config) -> set[str]:
    """Names of the tensors of the class that `config.json` names, of which a part may go unread; none if unknown."""
    import transformers

    name = str((getattr(config.hf, "architectures", None) or [""])[0])
    own = (getattr(config.hf, "auto_map", None) or {}).values() if config.trusts_code else ()
    code = next((place for place in own if isinstance(place, str) and place.endswith(f".{name}")), None)
    if code is not None:
        from transformers.dynamic_module_utils import get_class_from_dynamic_module

        kind: Any = get_class_from_dynamic_module(code, config.hf.name_or_path)
    else:
        kind = getattr(transformers, name, None) if name else None
    if kind is None:
        return set()
    with torch.device("meta"):
        return set(kind(config.hf).state_dict())


def _check_rope(hf: Any) -> None:
    stated = getattr(hf, "rope_parameters", None) or getattr(hf, "rope_scaling", None)
    if isinstance(stated, dict) and stated.get("rope_type", stated.get("type")) == "dynamic":
        raise ConfigError(
            "Dynamic scaling of rotary positions makes transformers' rows depend on the texts before.",
            allowed="Any other scaling.",
            fix="Leave model_impl out if Cenote has a file for the family.",
            param="model_impl",
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the loader's progress bar and table of keys: the audit says what they would say."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
