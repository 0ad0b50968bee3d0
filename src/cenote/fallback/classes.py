"""Which class of `transformers` serves a checkpoint, and what can be told from it without weights."""

from __future__ import annotations

import inspect
from typing import Any, Final, Literal

import torch
from torch import nn

from .. import models
from ..checkpoint import Checkpoint
from ..errors import CheckpointError, ConfigError, MissingExtra
from ..hf import sees_all

Kind = Literal["embed", "sequence", "token"]
"""What is asked of a model: hidden states, logits of texts, logits of tokens."""

_AUTO: Final[dict[Kind, str]] = {
    "embed": "AutoModel",
    "sequence": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
}


def config_of(checkpoint: Checkpoint, *, trusts_code: bool) -> Any:
    """`config.json`, overrides applied, as a config of transformers.

    Raises:
        MissingExtra: transformers is not installed.
        UnknownArchitecture: It does not know the family.
        ConfigError: The family is known to the checkpoint's own code alone, which may not run.
        CheckpointError: It refuses the values, or the weights are quantised.
    """
    transformers = _transformers(checkpoint)
    raw = checkpoint.config
    if raw.get("quantization_config") is not None:
        raise CheckpointError("config.json says quantization_config, and quantised weights are not supported here.")
    own = (raw.get("auto_map") or {}).get("AutoConfig")
    if (named := sees_all(raw)) is not None and not (own and trusts_code):
        raise CheckpointError(
            f"{checkpoint.name} is made so that each token sees all others ({named}), and its family in transformers "
            "is causal.",
            fix="Leave model_impl out if Cenote has a file for the family, or pass `--trust-remote-code`.",
            param="model_impl",
        )
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    model_type = str(raw.get("model_type", ""))
    if own and trusts_code:
        from transformers.dynamic_module_utils import get_class_from_dynamic_module

        config_class: Any = get_class_from_dynamic_module(own, str(checkpoint.folder))
    elif model_type in known:
        config_class = known[model_type]
    elif own:
        raise _untrusted(checkpoint.name, own)
    else:
        raise models.unknown(raw, f", and what transformers {transformers.__version__} knows")
    try:
        found = config_class.from_dict(raw)
    # Classes check their values each in its own way, those of remote code in any.
    except Exception as error:
        raise CheckpointError(f"transformers refuses config.json of {checkpoint.name}: {error}") from error
    found.name_or_path = str(checkpoint.folder)
    found.architectures = found.architectures or []
    if hasattr(found, "use_cache"):
        found.use_cache = False  # each text is read once
    return found


def auto_class(hf: Any, kind: Kind, *, trusts_code: bool) -> Any:
    """The class of transformers that makes models of a kind.

    Raises:
        ConfigError: Only the checkpoint's own code has one, which may not run.
        CheckpointError: There is none.
    """
    import transformers

    if not is_known(hf, kind, trusts_code=trusts_code):
        own = (getattr(hf, "auto_map", None) or {}).get(_AUTO[kind])
        if own:
            raise _untrusted(hf.name_or_path, own)
        raise CheckpointError(f"transformers has no {_AUTO[kind]} for model_type={hf.model_type!r}.", param="model")
    return getattr(transformers, _AUTO[kind])


def is_known(hf: Any, kind: Kind, *, trusts_code: bool) -> bool:
    """Whether there is a model of that kind."""
    import transformers

    own = trusts_code and _AUTO[kind] in (getattr(hf, "auto_map", None) or {})
    return own or type(hf) in getattr(transformers, _AUTO[kind])._model_mapping


def empty(hf: Any, kind: Kind, *, trusts_code: bool) -> Any:
    """The whole model without weights, on the meta device.

    Raises:
        ConfigError, CheckpointError: As `auto_class`, or the values make no model.
    """
    auto = auto_class(hf, kind, trusts_code=trusts_code)
    try:
        with torch.device("meta"):
            return auto.from_config(hf, trust_remote_code=trusts_code)
    # As above: what a class says of values that it cannot be made of is its own affair.
    except Exception as error:
        what = f"transformers can make no model of config.json of {hf.name_or_path}"
        raise CheckpointError(f"{what}: {type(error).__name__}: {error}", param="model") from error


def of_tokens(model: Any) -> Any:
    """What makes hidden states of tokens: the model, or its encoder where it has a decoder too."""
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model


def takes(module: nn.Module, argument: str) -> bool:
    """Whether its forward has an argument of that name."""
    return argument in inspect.signature(module.forward).parameters


def hidden_size(hf: Any) -> int | None:
    """`D`, or None where the config names none."""
    inner = hf if getattr(hf, "hidden_size", None) is not None else hf.get_text_config()
    size = getattr(inner, "hidden_size", None)
    return size if isinstance(size, int) else None


def is_causal(hf: Any) -> bool:
    """Whether a token sees no later one."""
    from transformers.models.auto import modeling_auto as auto

    if getattr(hf, "is_encoder_decoder", False) or getattr(hf, "use_bidirectional_attention", None) is True:
        return False
    if getattr(hf, "attn_type", None) == "bi":  # XLNet, which predicts words without being causal
        return False
    if isinstance(stated := getattr(hf, "is_causal", None), bool):
        return stated
    if getattr(hf, "is_decoder", False):
        return True
    if hf.model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return hf.model_type not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return str((getattr(hf, "architectures", None) or [""])[0]).endswith("ForCausalLM")


def padding_position(module: nn.Module) -> int | None:
    """The row of a table of positions that stands for padding, before the first of a text, as RoBERTa has it."""
    for name, table in module.named_modules():
        if isinstance(table, nn.Embedding) and "position" in name.rpartition(".")[2] and table.padding_idx is not None:
            return table.padding_idx
    return None


def _transformers(checkpoint: Checkpoint) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra(
            f"config.json of {checkpoint.name} says model_type={checkpoint.config.get('model_type')!r}, which needs "
            "transformers, and that is not installed.",
            fix="`pip install 'cenote[transformers]'`.",
            param="model",
        ) from error
    return transformers


def _untrusted(name: str, own: str) -> ConfigError:
    return ConfigError(
        f"{name} can only be read by Python code of its own ({own}), which does not run unless you trust it.",
        allowed="Code of a checkpoint can do whatever you can do, a local folder's too.",
        fix="Read it, then pass `--trust-remote-code`.",
        param="trust_remote_code",
    )
