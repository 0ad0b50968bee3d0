"""Who computes a checkpoint: a file of `models`, or `transformers` itself where there is none or the user says so."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from . import tokenizer_files
from .checkpoint import Checkpoint
from .config import ModelSettings
from .errors import ConfigError, UnknownArchitecture

if TYPE_CHECKING:
    from .label_tokens import LabelTokens
    from .models import Architecture, ModelConfig

log = logging.getLogger(__name__)

Whose = Literal["cenote", "transformers"]

_NOT_OF_TEXTS: Final = (
    *("CLIPModel", "SiglipModel", "Siglip2Model", "EmbeddingGemma2Model", "JinaEmbeddingsV5OmniModel"),
    *("ColPaliForRetrieval", "ColModernVBertForRetrieval", "ColQwen2ForRetrieval", "ColQwen3", "ColQwen3_5"),
    *("OpsColQwen3Model", "Qwen3VLNemotronEmbedModel", "LlamaNemotronVLModel"),
    *("LlamaNemotronVLForSequenceClassification", "JinaVLForRanking", "ClefOmniForJointSchema"),
    *("Qwen3ASRForcedAlignerForTokenClassification", "PrithviGeoSpatialMAE", "Terratorch"),
)
"""Classes of embedders and rerankers whose checkpoints were trained to read images or sound, with texts or without."""


class Implementation(NamedTuple):
    """What serves a checkpoint.

    Args:
        architecture: A file of `models`, or what stands for one.
        config: Of the checkpoint.
        whose: Who wrote it.
    """

    architecture: Architecture
    config: ModelConfig
    whose: Whose


def implemented(
    transformer: Checkpoint, words: Checkpoint, settings: ModelSettings, sources: dict[str, str]
) -> Implementation:
    """What serves a checkpoint.

    Args:
        transformer: The files of the transformer.
        words: Those of the tokenizer.
        sources: Filled with the source of the answer.

    Raises:
        UnknownArchitecture: Nobody serves it.
        ConfigError: It needs code of its own that may not run, or what the user wants is not to be had.
        CheckpointError: Its `config.json` lacks something or says what is not served.
    """
    from . import fallback, models

    asked, raw = settings.model_impl, transformer.config
    _check_of_texts(raw)
    native = models.known(raw)
    sources["model_impl"] = "user"
    if asked == "auto":
        sources["model_impl"] = (
            f"default: Cenote has no file for model_type={raw.get('model_type')!r}"
            if native is None
            else "default: Cenote has this family"
        )
    if asked == "cenote" or (asked == "auto" and native is not None):
        architecture = models.find(raw)
        return Implementation(architecture, _config(architecture, transformer), "cenote")
    own = None if native is None else _config(native, transformer)
    makes_segments = tokenizer_files.may_have_segments(words)
    trusts_code = settings.trust_remote_code
    config = fallback.Config.of(transformer, own, trusts_code=trusts_code, makes_segments=makes_segments)
    log.info("%s is run by transformers (%s).", transformer.name, sources["model_impl"])
    # The package stands where a file of `models` stands, but its config is read from more than config.json.
    return Implementation(cast("Architecture", cast(Any, fallback)), cast("ModelConfig", config), "transformers")


def _check_of_texts(raw: Mapping[str, Any]) -> None:
    name = str((raw.get("architectures") or [""])[0])
    if name in _NOT_OF_TEXTS:
        raise UnknownArchitecture(
            f"config.json says architectures={[name]}, a model that reads images or sound.",
            allowed="Cenote reads texts alone.",
            fix="Name a checkpoint of texts.",
            param="model",
        )


def _config(architecture: Architecture, transformer: Checkpoint) -> ModelConfig:
    from . import models, weights

    sized = {"shapes": weights.stored_shapes(transformer)} if models.sized_by_weights(architecture) else {}
    return architecture.Config.from_hf({**transformer.config, **sized})


def check_head(whose: Whose, tokens: LabelTokens | None) -> None:
    """Raise `ConfigError` where words are to be labels and transformers is to compute."""
    if whose == "transformers" and tokens is not None:
        raise ConfigError(
            f"The labels are tokens by {tokens.source}, and transformers is to run the model.",
            allowed="Cenote reads rows of language-model heads in its own implementations.",
            fix="Leave model_impl out if Cenote has a file for the family, or pass `--convert embed` to embed with it.",
            param="model_impl",
        )
