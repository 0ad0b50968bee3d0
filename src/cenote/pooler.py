"""How rows are read off hidden states: what the user, the checkpoint and the architecture say, in that order. No torch.

Each value is decided by itself: a user who names the pooling keeps the checkpoint's Dense layers and its normalising.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import plugins
from .checkpoint import Checkpoint
from .classifying import Classifying
from .config import ModelSettings, PoolerConfig
from .errors import CheckpointError, ConfigError, UnsupportedTask
from .modules import Modules
from .modules.late_interaction import LateInteraction, projection, steps_without_modules
from .steps import CNN, LSTM, Bag, Dense, Nature, Normalize, Pooling, Step, layers_read, size_after

if TYPE_CHECKING:
    from .recipe import Recipe

log = logging.getLogger(__name__)

_POOLED = {
    "cls": "first token is pooled (cls)",
    "last": "last token is pooled (last)",
    "mean": "tokens are pooled (mean)",
}


def check(asked: PoolerConfig, classifier: Classifying | None, name: str) -> None:
    """Refuse fields that would change nothing, or that are not served.

    Raises:
        ConfigError: One is for another kind of checkpoint, or asks for what Cenote does not have.
    """
    if not asked.enable_flash_late_interaction:
        log.info("enable_flash_late_interaction changes nothing here.")
    steps_wise = classifier is not None and classifier.head == "token"
    if asked.tok_pooling_type == "STEP" and not steps_wise:
        raise _refused("tok_pooling_type", f"is 'STEP', which {name} cannot be read with", "Leave it out.")
    if asked.step_tag_id is not None and (classifier is None or classifier.step_tag_id is None):
        raise _refused("step_tag_id", "is given without STEP pooling", "Leave it out.")
    if asked.returned_token_ids is not None and not (steps_wise and classifier and classifier.tokens):
        raise _refused("returned_token_ids", f"is given, but {name} has no logits of tokens to choose from",
                       "Leave it out, or convert='auto' if you set that.")  # fmt: skip
    if asked.seq_pooling_type is not None and classifier is not None and classifier.own_logits:
        raise _refused("seq_pooling_type", f"is given, but {name} gives its logits itself", "Leave it out.")
    wrong, kind = _meaningless(classifier)
    for field in wrong:
        if getattr(asked, field) is not None:
            raise _refused(field, f"is given, but {name} is {kind}", "Leave it out.")


def _meaningless(classifier: Classifying | None) -> tuple[tuple[str, ...], str]:
    """Fields that say nothing about a kind of checkpoint, and what that kind is."""
    if classifier is None:
        return ("logit_mean", "logit_sigma"), "an embedder"
    if classifier.head == "token":
        return ("dimensions", "max_embed_len", "seq_pooling_type"), "a classifier of tokens"
    return ("dimensions", "max_embed_len"), "a classifier"


def _refused(field: str, why: str, fix: str) -> ConfigError:
    return ConfigError(f"pooler_config.{field} {why}.", fix=fix, param=f"pooler_config.{field}")


def steps(
    listed: Modules | None,
    late: LateInteraction | None,
    classifier: Classifying | None,
    why_none: str | None,
    transformer: Checkpoint,
    nature: Nature,
    asked: PoolerConfig,
    sources: dict[str, str],
) -> tuple[tuple[Step, ...], bool]:
    """The steps of an embedder, and whether a Normalize ends them, which is not among them.

    Args:
        why_none: Why what is no classifier is no embedder either, or None.

    Raises:
        CheckpointError: The steps are not those that sentence-transformers would take.
        ConfigError: As `check`.
    """
    check(asked, classifier, transformer.name)
    sources["late_interaction"] = "none: it has one row per text"
    why_none = why_none if classifier is None else "the checkpoint is a classifier"
    if why_none is not None:
        sources.update(dict.fromkeys(("steps", "normalize", "embedding_size"), f"none: {why_none}"))
        return (), False
    if late is not None:
        return _late_steps(listed, late, transformer, asked, sources)
    found, normalize = _pooled_steps(listed.steps if listed else (), transformer, nature, asked, sources)
    return (*_projected(transformer, nature), *found), normalize


def _projected(transformer: Checkpoint, nature: Nature) -> tuple[Step, ...]:
    """The layer that ends some backbones, as a step on the rows of tokens."""
    from . import weights

    shape = weights.stored_shapes(transformer).get(nature.projection) if nature.projection else None
    return () if shape is None else (projection(nature.projection, shape),)


def _late_steps(
    listed: Modules | None, late: LateInteraction, transformer: Checkpoint, asked: PoolerConfig, sources: dict[str, str]
) -> tuple[tuple[Step, ...], bool]:
    from . import weights

    if asked.seq_pooling_type is not None:
        raise _refused("seq_pooling_type", f"is given, but {transformer.name} has a vector per token", "Leave it out.")
    source = "modules.json" if listed else "config.json: architectures"
    sources.update(dict.fromkeys(("steps", "normalize", "late_interaction"), source))
    sources["pooling"] = "none: a vector per token"
    found = (
        listed.steps if listed else steps_without_modules(late, weights.stored_shapes(transformer), transformer.name)
    )
    normalize = bool(found) and isinstance(found[-1], Normalize)
    found = found[:-1] if normalize else found
    if asked.use_activation is not None:
        sources["normalize"] = "user"
        normalize = asked.use_activation
    return found, normalize


def _pooled_steps(
    listed: tuple[Step, ...], transformer: Checkpoint, nature: Nature, asked: PoolerConfig, sources: dict[str, str]
) -> tuple[tuple[Step, ...], bool]:
    source = "modules.json" if listed else "default: no modules.json"
    sources.update(dict.fromkeys(("steps", "pooling", "normalize"), source))
    if not listed:
        found: tuple[Step, ...] = (Bag() if nature.bag else Pooling((nature.pooled,), nature.pools_prompt),)
        normalize = nature.normalizes
    else:
        _check_layers(listed, transformer)
        # The last Normalize is applied to finished rows, where a request can cut them first or leave it out.
        normalize = isinstance(listed[-1], Normalize)
        found = listed[:-1] if normalize else listed
    if asked.seq_pooling_type is not None:
        if nature.bag:
            why = f"is given, but {transformer.name} makes one row per text by itself"
            raise _refused("seq_pooling_type", why, "Leave it out.")
        modes = (asked.seq_pooling_type.lower(),)
        if not any(isinstance(step, Pooling) for step in found):
            raise _refused("seq_pooling_type", f"is given, but {transformer.name} pools nothing", "Leave it out.")
        found = tuple(replace(step, modes=modes) if isinstance(step, Pooling) else step for step in found)
        sources["pooling"] = plugins.asked_by_user("cenote_poolings", *modes)
    if asked.use_activation is not None:
        normalize = asked.use_activation
        sources["normalize"] = "user"
    if not listed and not nature.bag:
        _say_default(transformer.name, nature, sources)
    return found, normalize


def _check_layers(listed: tuple[Step, ...], transformer: Checkpoint) -> None:
    if any(layers_read(step) for step in listed) and not transformer.config.get("output_hidden_states"):
        raise CheckpointError(
            f"{listed[0].path}/config.json of {transformer.name} weighs the layers, but config.json does not say "
            "output_hidden_states=true, so sentence-transformers would leave that module out.",
            fix="Set output_hidden_states in config.json if the layers are to be weighed, else take the module out.",
        )


def _say_default(name: str, nature: Nature, sources: Mapping[str, str]) -> None:
    said = [f"its {_POOLED[nature.pooled]}"] if not sources["pooling"].startswith("user") else []
    said += ["normalised"] if sources["normalize"] != "user" else []
    if said:
        log.info("%s has no modules.json: %s.", name, " and ".join(said))


def embedding_size(found: tuple[Step, ...], hidden_size: int, sources: dict[str, str]) -> int:
    """Size of a finished row.

    Raises:
        CheckpointError: The steps do not fit each other.
        ConfigError: They do not, since the user named another pooling.
    """
    sources["embedding_size"] = "config.json"
    size = hidden_size
    for step in found:
        try:
            size = size_after(step, size)
        except CheckpointError as error:
            if not sources["pooling"].startswith("user"):
                raise
            param = "pooler_config.seq_pooling_type"
            raise ConfigError(error.what, fix="Leave out seq_pooling_type.", param=param) from error
        if isinstance(step, (Dense, CNN, LSTM)):
            stored_as = getattr(step, "stored_as", "")
            sources["embedding_size"] = f"the shape of {stored_as}" if stored_as else f"the config of {step.path}"
    return size


def matryoshka_dims(
    raw: Mapping[str, Any], settings: ModelSettings, name: str, sources: dict[str, str]
) -> tuple[int, ...] | None:
    """Sizes that vectors may be cut to; () for none, None for any."""
    sizes = raw.get("matryoshka_dimensions")
    declared = isinstance(sizes, list) and bool(sizes)
    sources["matryoshka_dims"] = "config.json: matryoshka_dimensions"
    if settings.allow_any_dimensions:
        if not declared and not raw.get("is_matryoshka"):
            log.warning("%s declares no Matryoshka sizes; it may be cut to any, and may be worse for it.", name)
        sources["matryoshka_dims"] = "user: allow_any_dimensions"
        return None
    if isinstance(sizes, list) and sizes:
        return tuple(int(size) for size in sizes)
    if raw.get("is_matryoshka"):
        sources["matryoshka_dims"] = "config.json: is_matryoshka"
        return None
    sources["matryoshka_dims"] = "default"
    return ()


def dimensions(modules: Mapping[str, Any], asked: PoolerConfig, sources: dict[str, str]) -> int | None:
    """Size that vectors are cut to where a request names none.

    Args:
        modules: `config_sentence_transformers.json`.
    """
    if asked.dimensions is not None:
        sources["dimensions"] = "user"
        return asked.dimensions
    size = modules.get("truncate_dim")
    sources["dimensions"] = "default" if size is None else "config_sentence_transformers.json: truncate_dim"
    return None if size is None else int(size)


def _max_embed_len(asked: PoolerConfig, max_len: int, sources: dict[str, str]) -> int | None:
    """Longest input of the embedding routes in tokens, None for the model's.

    Raises:
        ConfigError: It is above the model's.
    """
    sources["max_embed_len"] = "default" if asked.max_embed_len is None else "user"
    if asked.max_embed_len is not None and asked.max_embed_len > max_len and not asked.enable_chunked_processing:
        raise ConfigError(
            f"pooler_config.max_embed_len ({asked.max_embed_len}) is greater than max_model_len ({max_len}).",
            fix="Set enable_chunked_processing, so that longer inputs are embedded in pieces, or a smaller limit.",
            param="pooler_config.max_embed_len",
        )
    return asked.max_embed_len


def lengths(settings: ModelSettings, max_len: int, sources: dict[str, str]) -> dict[str, Any]:
    """`max_embed_len`, `chunks` and `chunk_overlap` of the recipe.

    Raises:
        ConfigError: A limit is above the model's, or a piece would have no room for anything new.
    """
    limit = _max_embed_len(settings.pooler_config, max_len, sources)
    chunks, overlap = settings.pooler_config.enable_chunked_processing, settings.chunk_overlap
    sources["chunks"] = "user" if chunks else "default"
    sources["chunk_overlap"] = "user" if overlap else "default"
    if not 0 <= overlap < max_len:
        raise ConfigError(f"chunk_overlap={overlap}.", allowed=f"0 to {max_len - 1}.", param="chunk_overlap")
    return {"max_embed_len": limit, "chunks": chunks, "chunk_overlap": overlap}


def default_task(recipe: Recipe, asked: str | None, sources: dict[str, str]) -> str:
    """The task where a request names none; an old name warns.

    Raises:
        UnsupportedTask: The checkpoint does not serve it.
    """
    if asked is None:
        sources["default_task"] = "default: the first that the checkpoint serves"
        return "sparse" if recipe.sparse is not None and recipe.sparse.is_main else recipe.tasks[0]
    task, warning = renamed_task(asked, recipe)
    if task not in recipe.tasks:
        raise UnsupportedTask(
            f"Unsupported task: {asked!r}", allowed=f"Supported tasks: {recipe.tasks}", param="pooler_config.task"
        )
    if warning:
        warnings.warn(f"pooler_config: {warning}", DeprecationWarning, stacklevel=2)
    sources["default_task"] = "user"
    return task


def renamed_task(task: str, recipe: Recipe) -> tuple[str, str]:
    """What an old name of a task means for a checkpoint, and a warning that names the new one.

    A current name comes back as it is, with an empty warning.
    """
    classifier = recipe.classifier
    is_cross_encoder = classifier is not None and classifier.head == "sequence" and len(classifier.labels) == 1
    per_token = "token_classify" if classifier is not None else "token_embed"
    new = {
        "embedding": "embed",
        "score": "classify" if is_cross_encoder else "embed",
        "reward": per_token,
        "encode": per_token,
    }.get(task)
    if new is None:
        return task, ""
    if new in recipe.tasks:
        return new, f"task={task} is an old name, say task={new}"
    default = recipe.tasks[0]
    return default, f"task={task} is an old name of {new}, which this model does not serve; say task={default}"
