"""How long an input may be: what the user, the checkpoint and the architecture say. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .checkpoint import Checkpoint
from .config import ModelSettings
from .errors import ConfigError
from .modules import Modules

if TYPE_CHECKING:
    from .models import ModelConfig

# A tokenizer that states no limit says a number of this size.
_ABSURD: Final = 10**9
# The bounds of a batch are int32.
_UNLIMITED: Final = 2**31 - 1


def max_len(
    settings: ModelSettings,
    listed: Modules | None,
    transformer: Checkpoint,
    model: ModelConfig,
    sources: dict[str, str],
) -> int:
    """Longest input in tokens, special tokens counted.

    Raises:
        ConfigError: The user asks for more positions than the model has.
    """
    position_limit = model.position_limit
    found: dict[str, int] = {}
    if listed and listed.first.max_seq_length:
        found[f"{listed.first.limit_file}: max_seq_length"] = listed.first.max_seq_length
    elif not model.nature.bag:
        stated = (transformer.json("tokenizer_config.json") or {}).get("model_max_length")
        if isinstance(stated, (int, float)) and 0 < stated < _ABSURD:
            found["tokenizer_config.json: model_max_length"] = int(stated)
    if position_limit is not None:
        found["config.json: positions"] = position_limit
    if settings.max_model_len is not None:
        return _users(settings.max_model_len, position_limit, sources)
    if model.nature.bag:
        sources["max_len"] = "the architecture: texts of any length"
        return _UNLIMITED
    if not found:
        sources["max_len"] = "default: nothing states a limit"
        return 2048
    source = min(found, key=lambda name: found[name])
    sources["max_len"] = source
    return found[source]


def _users(wanted: int, position_limit: int | None, sources: dict[str, str]) -> int:
    if wanted < 1 or (position_limit is not None and wanted > position_limit):
        raise ConfigError(
            f"User-specified max_model_len ({wanted}) is greater than the derived max_model_len ({position_limit})."
            if wanted >= 1
            else f"max_model_len={wanted}.",
            allowed="It is at least 1 and at most the number of positions that the model has.",
            param="max_model_len",
        )
    sources["max_len"] = "user"
    return wanted
