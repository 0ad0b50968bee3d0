"""Everything that is decided about a checkpoint, once, each value with its source."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from . import (
    conversion,
    hf,
    implementation,
    label_tokens,
    limits,
    m3,
    pairing,
    pooler,
    prompting,
    routes,
    sparse,
    templates,
)
from . import modules as st
from .checkpoint import Checkpoint, open_checkpoint, with_base
from .classifying import Classifying, Made, classifying
from .config import ModelSettings, source_of
from .errors import BadInput, CheckpointError, ConfigError
from .modules import routing
from .modules.late_interaction import LateInteraction, without_modules
from .modules.routing import Routing
from .sparse import Sparse
from .steps import Dense, MaskedLM, Nature, Pooling, PresentWords, Step, WordWeights
from .tasks import embed, find, names

if TYPE_CHECKING:
    from .models import Architecture, ModelConfig

log = logging.getLogger(__name__)

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
"""What a checkpoint may name as its `similarity_fn_name`."""

# Objects that hold the values beside them.
_NOT_TOLD = ("checkpoint", "transformer", "model", "name", "sources", "classifier", "routing")


@dataclass(frozen=True)
class Recipe:
    """What a checkpoint is and how it is read.

    Args:
        name: What the user called it.
        checkpoint: Its files; those of the transformer may lie in a subfolder.
        transformer: The files of the transformer itself.
        architecture: The class that `config.json` names.
        model_type: The family that `config.json` names.
        model_impl: Who computes it: a file of `models`, or transformers.
        convert: What it is made into, `embed` or `classify`.
        model: The architecture's config.
        causal: Whether a token sees no later one.
        steps: What comes after the backbone, one pooling among it unless it is a late-interaction model; () for a
            classifier.
        normalize: Whether the last step is a Normalize, which a request may switch off; it is not in `steps`.
        max_len: Longest input in tokens, special tokens counted.
        embedding_size: Size of a finished row; 0 for a classifier.
        dtype: Precision that the user asked for, or `auto`, or float32 where float16 is stored and overflows.
        stored_dtype: Precision of the stored weights.
        do_lower_case: Whether text is lower-cased before tokenising.
        prompts: Name of a prompt -> text put before an input.
        default_prompt_name: The prompt used where a request names none.
        similarity: The similarity that the checkpoint names.
        matryoshka_dims: Sizes that rows may be cut to; () for none, None for any.
        classifier: What its logits mean; None for an embedder.
        masked_lm: Its masked-language-model head; None where it has none or nothing reads it.
        sparse: What makes its sparse rows; None where it has none.
        multi_vector: What makes vectors of tokens, all but the first; None where they are made as a text's are.
        dimensions: Size that rows are cut to where a request names none; None for the full size.
        max_embed_len: Longest input of the embedding routes in tokens; None for `max_len`.
        late_interaction: How a late-interaction model reads queries and documents; None for any other model.
        chunks: Whether longer texts are embedded in pieces where nobody says what to do with them.
        chunk_overlap: Tokens that a piece of a longer text shares with the one before.
        chat_template: The user's own, for conversations; None for the tokenizer's.
        pair_template: Makes one text of the two of a cross-encoder; None where its tokenizer joins them.
        default_task: The task where a request names none; "" until all else is decided.
        sources: Name of a value -> where it comes from.
        routing: Which route reads which text; None where all are read alike.
        routes: Name of each route -> the recipe of it alone, the default one first, whose values stand here too.
    """

    name: str
    checkpoint: Checkpoint
    transformer: Checkpoint
    architecture: str
    model_type: str
    model_impl: implementation.Whose
    convert: conversion.Kind
    model: ModelConfig
    causal: bool
    steps: tuple[Step, ...]
    normalize: bool
    max_len: int
    embedding_size: int
    dtype: str
    stored_dtype: str
    do_lower_case: bool
    prompts: Mapping[str, str]
    default_prompt_name: str | None
    similarity: str
    matryoshka_dims: tuple[int, ...] | None
    dimensions: int | None
    max_embed_len: int | None
    chunks: bool
    chunk_overlap: int
    classifier: Classifying | None
    late_interaction: LateInteraction | None
    masked_lm: MaskedLM | None
    sparse: Sparse | None
    multi_vector: Dense | None
    chat_template: str | None
    pair_template: str | None
    default_task: str
    sources: Mapping[str, str]
    routing: Routing | None = None
    routes: Mapping[str, Recipe] = field(default_factory=dict)

    @property
    def by_route(self) -> Mapping[str, Recipe]:
        """Name of each route, "" where there are none -> how it reads a text."""
        return self.routes or {"": self}

    @cached_property
    def pooling(self) -> Pooling | None:
        """The pooling step; None for a classifier, and where the backbone gives one row per text."""
        return next((step for step in self.steps if isinstance(step, Pooling)), None)

    @cached_property
    def adapters(self) -> Mapping[str, str]:
        """Name of each adapter that texts can be read with -> what is put before such a text; in the stored order."""
        return dict(self.model.nature.adapters)

    @cached_property
    def num_words(self) -> int:
        """Every token id is below it: rows of the table of words, and weights of words where a step has them."""
        words = self.sparse.words if self.sparse else None
        weighted = (step for step in (*self.steps, words) if isinstance(step, (WordWeights, PresentWords)))
        return min((self.model.vocab_size, *(len(step.weights) for step in weighted)))

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """What this checkpoint can be read as; all at once."""
        return tuple(name for name in names() if all(find(name).serves(one) for one in self.by_route.values()))

    def named(self, name: str) -> Recipe:
        """The same under another name."""
        alone = {route: replace(one, name=name) for route, one in self.routes.items()}
        return replace(self, name=name, routes=alone)

    def decided(self) -> dict[str, tuple[Any, str]]:
        """Name of a value -> the value in plain types, and where it comes from; what `cenote inspect` prints."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NOT_TOLD}
        values["masked_lm"] = None if self.masked_lm is None else self.masked_lm.decoder
        values["sparse"] = None if self.sparse is None else f"{self.sparse.size} dimensions, {self.sparse.step}"
        values["multi_vector"] = self.multi_vector and self.multi_vector.out_features
        values["pooling"] = (
            " and ".join(self.pooling.modes) if self.pooling else "bag" if "embed" in self.tasks else None
        )
        if self.classifier is not None:
            values |= {f.name: getattr(self.classifier, f.name) for f in fields(self.classifier) if f.name != "head"}
        values["routes"] = {name: f"{one.model_type}, {len(one.steps)} steps" for name, one in self.routes.items()}
        values["default_route"] = None if self.routing is None else self.routing.default
        values["classifier"] = None if self.classifier is None else f"of {self.classifier.head}s"
        return {name: (_plain(values[name]), source) for name, source in self.sources.items()}


def resolve(checkpoint: Checkpoint, settings: ModelSettings) -> Recipe:
    """Decide everything about `checkpoint`.

    Raises:
        CheckpointError: Something in it is missing, unknown or contradicts itself.
        ConfigError: A setting asks for what the checkpoint cannot do.
    """
    routed = routing.read(checkpoint)
    if routed is None:
        return _resolved(checkpoint, st.read(checkpoint), settings)
    rules, listed = routed
    alone = {name: _resolved(checkpoint, st.read(checkpoint, one), settings) for name, one in listed.items()}
    return routes.joined(alone, rules, settings)


def _resolved(checkpoint: Checkpoint, listed: st.Modules | None, settings: ModelSettings) -> Recipe:
    from . import models, weights

    transformer = _backbone(checkpoint, listed, settings)
    tokenizer = open_checkpoint(settings.tokenizer) if settings.tokenizer else transformer
    sources: dict[str, str] = {"architecture": "config.json: architectures", "model_type": "config.json: model_type"}
    architecture, model, whose = served = implementation.implemented(transformer, tokenizer, settings, sources)
    settings_st: Mapping[str, Any] = listed.settings if listed else {}
    kind, classifier = _converted(listed, transformer, tokenizer, served, settings, sources)
    nature, asked, raw = model.nature, settings.pooler_config, transformer.config
    name = str((raw.get("architectures") or [""])[0])
    late = None if classifier else listed.late_interaction if listed else without_modules(transformer, tokenizer)
    words = _words(not (classifier or late), listed, architecture, name, model, transformer, tokenizer, sources)
    steps, normalize = pooler.steps(listed, late, classifier, words.alone, transformer, nature, asked, sources)
    prompts, default_prompt = _prompts(settings_st, raw, late, sources)
    _say_sources(listed, nature, sources)
    chat_template = _chat_template(settings, sources)
    stored_dtype = weights.stored_dtype(transformer) if models.stores(architecture) else "float32"
    max_len = limits.max_len(settings, listed, transformer, model, sources)
    found = Recipe(
        name=checkpoint.name,
        checkpoint=checkpoint,
        transformer=transformer,
        architecture=name or "unknown",
        model_type=str(raw.get("model_type")),
        model_impl=whose,
        convert=kind,
        model=model,
        causal=nature.causal,
        steps=steps,
        normalize=normalize,
        max_len=max_len,
        embedding_size=pooler.embedding_size(steps, model.hidden_size, sources) if classifier is None else 0,
        dtype=_dtype(settings.dtype, source_of(settings, "dtype"), stored_dtype, nature, sources),
        stored_dtype=stored_dtype,
        do_lower_case=bool(listed and listed.first.do_lower_case),
        prompts=prompts,
        default_prompt_name=default_prompt,
        similarity=_similarity(settings_st, late, sources),
        matryoshka_dims=pooler.matryoshka_dims(raw, settings, checkpoint.name, sources),
        dimensions=pooler.dimensions(settings_st, asked, sources),
        **pooler.lengths(settings, max_len, sources),
        classifier=classifier,
        late_interaction=late,
        masked_lm=words.masked_lm,
        sparse=words.sparse,
        multi_vector=words.multi_vector,
        chat_template=chat_template,
        pair_template=pairing.template_of(transformer, listed, classifier, chat_template, sources),
        default_task="",
        sources=sources,
    )
    return _completed(found, asked.task, sources)


def _backbone(checkpoint: Checkpoint, listed: st.Modules | None, settings: ModelSettings) -> Checkpoint:
    """The files of the backbone, which may lie in a folder of their own."""
    override = hf.override_of(settings.hf_overrides)
    folder, stated = (listed.folder, listed.first.stated) if listed else ("", None)
    return with_base(Checkpoint(checkpoint.name, checkpoint.folder / folder, checkpoint.revision, override, stated))


def _converted(
    listed: st.Modules | None,
    transformer: Checkpoint,
    tokenizer: Checkpoint,
    served: implementation.Implementation,
    settings: ModelSettings,
    sources: dict[str, str],
) -> tuple[conversion.Kind, Classifying | None]:
    """What the checkpoint is made into, and its classifier if it is made into one."""
    from . import models

    raw, tokens = transformer.config, None
    if settings.convert != "embed":
        module, returned = listed.logit_score if listed else None, settings.pooler_config.returned_token_ids
        tokens = label_tokens.find(transformer, tokenizer, module, listed is not None, served.config, returned)
        implementation.check_head(served.whose, tokens)
    name = str((raw.get("architectures") or [""])[0])
    reward = models.reward(served.architecture, name)
    pools = listed is not None and bool(listed.steps or listed.sparse)
    kind = conversion.kind_of(name, pools, tokens, reward is not None, settings, sources)
    _check_belongs(listed, kind, raw, settings)
    heads = models.heads(served.architecture, served.config)
    made_of = Made(heads, tokens, reward, own_logits=served.whose == "transformers")
    return kind, classifying(made_of, raw, listed.settings if listed else {}, kind, settings, sources)


def _chat_template(settings: ModelSettings, sources: dict[str, str]) -> str | None:
    sources["chat_template"] = "default: the tokenizer's" if settings.chat_template is None else "user"
    return None if settings.chat_template is None else templates.from_setting(settings.chat_template)


def _words(
    embeds: bool,
    listed: st.Modules | None,
    architecture: Architecture,
    name: str,
    model: ModelConfig,
    transformer: Checkpoint,
    tokenizer: Checkpoint,
    sources: dict[str, str],
) -> sparse.Reading:
    from . import weights

    sources["multi_vector"] = "none: tokens have vectors as texts have them, if any"
    beside = m3.find(transformer, tokenizer, model) if embeds else None
    if beside is not None:
        sources["masked_lm"] = "none: the checkpoint is no masked language model"
        sources["sparse"], sources["multi_vector"] = m3.FILES
        return sparse.Reading(sparse=beside.sparse, multi_vector=beside.vectors)
    is_stored = partial(weights.stores, transformer, architecture.PREFIXES)
    return sparse.reading(embeds and not listed, listed, name, model, is_stored, sources)


def _say_sources(listed: st.Modules | None, nature: Nature, sources: dict[str, str]) -> None:
    sources["do_lower_case"] = "sentence_bert_config.json" if listed and listed.first.do_lower_case else "default"
    sources["causal"] = nature.causal_source
    sources["stored_dtype"] = "the weights"


def _completed(found: Recipe, asked_task: str | None, sources: dict[str, str]) -> Recipe:
    for value, source in sources.items():
        file, _, key = source.partition(": ")
        if file == "config.json" and key in found.transformer.overridden:
            sources[value] = f"hf_overrides: {key}"
    found = replace(found, default_task=pooler.default_task(found, asked_task, sources))
    _check_dimensions(found)
    _tell(found)
    return found


def _check_dimensions(found: Recipe) -> None:
    if found.sources["dimensions"] != "user":
        return
    try:
        embed.Params(dimensions=found.dimensions).check(found)
    except BadInput as error:
        raise ConfigError(error.what, fix=error.fix, param="pooler_config.dimensions") from error


def _tell(found: Recipe) -> None:
    """Say once how the checkpoint is read, and why."""
    decided = found.decided()
    names = ("default_task", "pooling", "use_activation" if found.classifier else "normalize", "dimensions")
    said = [f"{name} {decided[name][0]} ({decided[name][1]})" for name in names if name in decided]
    log.info("%s is read with %s; supported tasks: %s.", found.name, ", ".join(said), ", ".join(found.tasks))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return [part if isinstance(part, (str, int)) else repr(part) for part in value]
    return value


def _check_belongs(
    listed: st.Modules | None, kind: conversion.Kind, raw: Mapping[str, Any], settings: ModelSettings
) -> None:
    if listed is not None and not (listed.steps or listed.sparse) and kind == "embed" and settings.convert != "embed":
        raise CheckpointError(
            f"modules.json lists a classifier, but config.json says architectures={raw.get('architectures')}.",
            allowed="A classifier is a *ForSequenceClassification.",
            fix="The files of the folder do not belong together; fetch it again.",
        )


def _dtype(asked: str, source: str, stored: str, nature: Nature, sources: dict[str, str]) -> str:
    sources["dtype"] = source
    if nature.why_not_float16 is None:
        return asked
    if asked in ("float16", "half"):
        raise ConfigError(
            f"dtype={asked!r}, but {nature.why_not_float16}.",
            allowed="Allowed here are auto, float32 and bfloat16.",
            fix="Leave dtype out, or ask for bfloat16.",
            param="dtype",
        )
    if asked == "auto" and stored == "float16":
        sources["dtype"] = f"stored as float16, but {nature.why_not_float16}"
        return "float32"
    return asked


def _prompts(
    settings: Mapping[str, Any], raw: Mapping[str, Any], late: LateInteraction | None, sources: dict[str, str]
) -> tuple[dict[str, str], str | None]:
    if late is None:
        return prompting.declared(settings, raw, sources)
    found = prompting.declared({**settings, "prompts": late.prompts}, raw, sources)
    sources["prompts"] = sources["late_interaction"]
    return found


def _similarity(settings: Mapping[str, Any], late: LateInteraction | None, sources: dict[str, str]) -> str:
    name = settings.get("similarity_fn_name")
    sources["similarity"] = "config_sentence_transformers.json" if name else "default"
    if late is not None:
        sources["similarity"] = "config_sentence_transformers.json" if name == late.similarity else "default"
        return late.similarity
    if name and name not in SIMILARITIES:
        raise CheckpointError(
            f"config_sentence_transformers.json says similarity_fn_name={name!r}.",
            allowed=f"Known are {', '.join(SIMILARITIES)}.",
        )
    return str(name or SIMILARITIES[0])
