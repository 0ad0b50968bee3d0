"""Environment variables that containers of text-embeddings-inference are configured by, as variables of ours."""

from __future__ import annotations

import ipaddress
import json
import logging
from collections.abc import Mapping
from typing import Final

from ..config import env_name
from ..errors import ConfigError
from .other_flags import BY_VALUE, ELSEWHERE, SAME

log = logging.getLogger(__name__)

MODEL: Final = "MODEL_ID"
"""Without it the environment is not meant for such a server: the other names are too common."""

_KEPT: Final = (
    "REVISION",
    "DTYPE",
    "SERVED_MODEL_NAME",
    "MAX_BATCH_TOKENS",
    "PORT",
    "API_KEY",
)
"""Names that are those of our settings, but for our prefix."""

_TAKEN: Final = (
    "--model-id",
    "--hostname",
    "--payload-limit",
    "--max-client-batch-size",
    "--tokenization-workers",
    "--max-batch-requests",
    "--cors-allow-origin",
)
"""Flags of other names for settings of ours, as `other_flags` has them."""

_REFUSED: Final = ("--default-prompt", "--default-prompt-name", "--dense-path")
"""Flags that would change results."""

_SAID: Final = (
    "--max-concurrent-requests",
    "--prometheus-port",
    "--otlp-endpoint",
    "--otlp-service-name",
    "--json-output",
    "--huggingface-hub-cache",
    "--hf-api-token",
)
"""Flags that are done without, and said."""


def ours(env: Mapping[str, str]) -> dict[str, str]:
    """`env` with our variables for those of text-embeddings-inference, where `MODEL_ID` is among them.

    Variables of ours that are there already win.

    Raises:
        ConfigError: A variable would change results and means something that Cenote does in another way.
    """
    found = {env_name(name.lower()): env[name] for name in _KEPT if env.get(name)}
    for flag in _TAKEN:
        if value := env.get(_variable(flag)):
            found[_of_flag(SAME[flag])] = value
    host = env.get("HOSTNAME")
    if host and not _is_address(host):
        del found[_of_flag("--host")]  # a container's own name, not where to listen
    for flag in BY_VALUE:
        if value := env.get(_variable(flag)):
            found |= _by_value(flag, value.lower())
    for flag in (*_REFUSED, *_SAID):
        if env.get(_variable(flag)):
            _tell(flag)
    return {**found, **env}


def _by_value(flag: str, value: str) -> dict[str, str]:
    known = BY_VALUE[flag]
    if value not in known:
        name = _variable(flag)
        raise ConfigError(f"{name}={value}.", allowed=f"It takes {', '.join(known)}.", param=name)
    name, _, field = known[value][0].partition(".")
    given = known[value][1]
    return {_of_flag(name): json.dumps({field.replace("-", "_"): given}) if field else given}


def _tell(flag: str) -> None:
    name = _variable(flag)
    if flag in _REFUSED:
        raise ConfigError(f"{name} is a variable of another server.", fix=ELSEWHERE[flag], param=name)
    log.warning("%s is a variable of another server and has no effect. %s", name, ELSEWHERE[flag])


def _variable(flag: str) -> str:
    return flag[2:].replace("-", "_").upper()


def _of_flag(flag: str) -> str:
    return env_name(flag[2:].replace("-", "_"))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
