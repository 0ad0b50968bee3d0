"""What a checkpoint is made into: an embedder or a classifier, by its architecture's name unless the user says so."""

from __future__ import annotations

from typing import Final, Literal

from .config import ModelSettings
from .errors import ConfigError
from .label_tokens import LabelTokens

Kind = Literal["embed", "classify"]

_GENERATES: Final = ("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel")
_CLASSIFIES: Final = ("ForSequenceClassification", "ForTokenClassification", "ClassificationModel")


def check_runner(runner: str) -> None:
    """Raise `ConfigError`, in the reference's words, where `runner` asks for anything but pooling."""
    if runner not in ("auto", "pooling"):
        raise ConfigError(
            f"This model does not support `--runner {runner}`.",
            allowed="Allowed are auto and pooling: Cenote embeds, classifies and scores, and generates nothing.",
            fix="Leave it out, and say with `--convert embed` or `--convert classify` what the model is for.",
            param="runner",
        )


def kind_of(
    architecture: str,
    pools: bool,
    tokens: LabelTokens | None,
    rewards: bool,
    settings: ModelSettings,
    sources: dict[str, str],
) -> Kind:
    """What the checkpoint of `architecture` is made into.

    Args:
        architecture: The class that `config.json` names, "" where it names none.
        pools: Whether `modules.json` pools.
        tokens: Words whose logits are classes, if something says that there are any.
        rewards: Whether it is a reward model that is known.
        sources: Filled with the source of the answer.

    Raises:
        ConfigError: The model is not to be converted, and generates as it is.
    """
    check_runner(settings.runner)
    generates = architecture.endswith(_GENERATES)
    if settings.convert == "none" and generates and tokens is None and not pools:
        raise ConfigError(
            f"This model does not support `--runner pooling`. {architecture} with convert='none' would generate text.",
            fix="Pass `--convert <embed|classify>`, or leave it out.",
            param="convert",
        )
    if settings.convert != "auto":
        sources["convert"] = "user"
    if settings.convert in ("embed", "classify"):
        return settings.convert
    if pools:
        sources["convert"] = "modules.json"
        return "embed"
    if tokens is not None:
        sources["convert"] = tokens.source
        return "classify"
    sources["convert"] = "config.json: architectures"
    return "classify" if rewards or architecture.endswith(_CLASSIFIES) else "embed"
