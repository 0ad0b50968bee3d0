"""Every setting, once: its default, what it means, its flag and its environment variable.

A settings class is a frozen dataclass whose fields carry their help. `resolve` fills one from what the user gave, then
the environment, then the defaults, and remembers which. Nothing else in Cenote reads the environment for settings.
"""

from __future__ import annotations

import json
import os
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Generic, Literal, TypeVar, cast

from .errors import ConfigError

ENV_PREFIX = "CENOTE_"

OnLong = Literal["refuse", "cut"]
"""What happens to an input with more tokens than the limit."""


def setting(default: Any, help: str, *, metavar: str = "", secret: bool = False) -> Any:
    """A dataclass field that is a setting: `help` is one line for `--help` and the docs."""
    return field(default=default, metadata={"help": help, "metavar": metavar, "secret": secret})


@dataclass(frozen=True)
class ModelSettings:
    """What decides how one checkpoint is served."""

    model: str = setting(
        "", "Folder or hub id of the model; empty means the embedded all-MiniLM-L6-v2 (extra `demo`).", metavar="MODEL"
    )
    revision: str | None = setting(None, "Branch, tag or commit of a hub model.")
    tokenizer: str | None = setting(None, "Folder or hub id of the tokenizer, if it is not the model's.")
    runner: str = setting("auto", "auto or pooling, which are the same: every model here is pooled.", metavar="RUNNER")
    convert: Literal["auto", "none", "embed", "classify"] = setting(
        "auto", "What a checkpoint is made into; auto goes by its architecture: a *ForCausalLM embeds."
    )
    hf_overrides: dict[str, Any] | Callable[[Any], Any] | None = setting(
        None, "JSON object merged into config.json, objects inside it too; in Python also a function.", metavar="JSON"
    )
    dtype: str = setting("auto", "auto, float32, float16 or bfloat16; auto keeps the stored precision.")
    max_model_len: int | None = setting(None, "Longest input in tokens; never above what the model can do.")
    on_long: OnLong | None = setting(None, "What to do with longer inputs: refuse or cut; unset, each door decides.")
    use_activation: bool | None = setting(
        None, "Whether classifiers apply their activation where a request does not say; unset means yes."
    )
    logit_mean: float | None = setting(None, "Subtracted from the logits of a classifier.")
    logit_sigma: float | None = setting(None, "The logits of a classifier are divided by it; not 0.")
    chat_template: str | None = setting(
        None, "Jinja template, inline or its path, for conversations and for the pairs of a cross-encoder."
    )
    trust_remote_code: bool = setting(False, "Accepted for the reference's users; no remote code is ever needed.")


@dataclass(frozen=True)
class MachineSettings:
    """What decides how the machine is used; shared by all models of a process."""

    device: str = setting("auto", "auto, cpu, cuda or cuda:N.")
    num_workers: int = setting(0, "Worker threads; 0 means one per core on the CPU, one per device elsewhere.")
    threads_per_worker: int = setting(0, "Compute threads inside each worker; 0 shares the cores among the workers.")
    tokenizer_threads: int = setting(0, "Threads that tokenise; 0 means one per core, at most 8.")
    max_batch_tokens: int = setting(0, "Token budget of a batch; 0 means 1024 on the CPU, 16384 elsewhere.")
    max_batch_seqs: int = setting(512, "Most sequences in a batch.")
    keep_freed_memory: bool = setting(
        True, "Keep freed activations in the process for the next batch (Linux, CPU): faster, up to 256 MiB more."
    )
    max_queue_tokens: int = setting(
        4_000_000, "Tokens that may wait; beyond it a server answers 429 and an offline call waits."
    )

    def __post_init__(self) -> None:
        # Without a thread, or with room for no sequence, every call would wait for ever.
        for name in ("num_workers", "threads_per_worker", "tokenizer_threads", "max_batch_tokens", "max_queue_tokens"):
            _at_least(0, name, getattr(self, name))
        _at_least(1, "max_batch_seqs", self.max_batch_seqs)


@dataclass(frozen=True)
class ServerSettings:
    """What decides how `cenote serve` listens."""

    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8000, "Port to listen on; 0 takes a free one.")
    served_model_name: tuple[str, ...] = setting((), "Name clients use for the model; repeat for aliases.")
    any_model_name: bool = setting(False, "Answer requests for any model's name with the only model that is served.")
    api_key: tuple[str, ...] = setting((), "Key that clients must send; repeat for several.", secret=True)
    trust_request_chat_template: bool = setting(False, "Let requests bring their own chat templates.")
    max_body_bytes: int = setting(64 * 1024 * 1024, "Largest request body; larger ones get 413.")
    drain_s: float = setting(30.0, "Seconds that running requests get to finish after SIGTERM.")
    log_level: Literal["debug", "info", "warning", "error"] = setting("info", "Least severe message that is logged.")


@dataclass(frozen=True)
class ShellSettings:
    """What decides how much the command line says."""

    quiet: bool = setting(False, "No progress bar and no summary.")
    debug: bool = setting(False, "Show the traceback of an error.")


T = TypeVar("T")


@dataclass(frozen=True)
class Resolved(Generic[T]):
    """A settings object and where each of its values comes from: `user`, `env NAME` or `default`."""

    settings: T
    sources: Mapping[str, str]


def resolve(cls: type[T], user: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Resolved[T]:
    """Fill `cls` from `user`, then the environment, then its defaults.

    Args:
        cls: One of the settings classes of this module.
        user: Values by field name; None counts as not given.
        env: Stands in for the process environment.

    Raises:
        ConfigError: A name is unknown, or a value does not have the type of its field.
    """
    env = os.environ if env is None else env
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in fields(cast(Any, cls))}
    unknown = sorted(set(user) - set(known))
    if unknown:
        raise ConfigError(
            f"Unknown setting {', '.join(unknown)}.", allowed=f"Known are {', '.join(known)}.", param=unknown[0]
        )
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name in known:
        given = user.get(name)
        variable = env_name(name)
        if given is not None:
            values[name], sources[name] = _checked(name, given, hints[name]), "user"
        elif variable in env:
            values[name], sources[name] = _parsed(variable, env[variable], hints[name]), f"env {variable}"
        else:
            sources[name] = "default"
    return Resolved(cls(**values), sources)


def env_name(field_name: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + field_name.upper()


def help_of(f: Field[Any]) -> str:
    """The one line that explains a setting."""
    return str(f.metadata["help"])


def choices_of(hint: Any) -> tuple[str, ...]:
    """The literal values that a type hint allows, or () if it allows any."""
    for part in _members(hint):
        if typing.get_origin(part) is Literal:
            return tuple(str(choice) for choice in typing.get_args(part))
    return ()


def _members(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(typing.get_args(hint))
    return (hint,)


def _checked(name: str, value: Any, hint: Any) -> Any:
    choices = choices_of(hint)
    if choices:
        if value not in choices:
            raise ConfigError(f"{name}={value!r}.", allowed=f"Allowed are {', '.join(choices)}.", param=name)
        return value
    kinds = tuple(typing.get_origin(part) or part for part in _members(hint))
    if dict in kinds and isinstance(value, str):
        return _json_object(name, value)
    if tuple in kinds and isinstance(value, (str, list)):
        return (value,) if isinstance(value, str) else tuple(value)
    if float in kinds and type(value) is int:
        return float(value)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
        raise ConfigError(
            f"{name}={value!r} is of type {type(value).__name__}.", allowed=f"It takes {wanted}.", param=name
        )
    return value


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        found = error
    if not isinstance(found, dict):
        raise ConfigError(f"{name}={text!r}.", allowed="It is a JSON object.", param=name)
    return found


def _at_least(least: int, name: str, value: int) -> None:
    if value < least:
        raise ConfigError(f"{name}={value}.", allowed=f"It is at least {least}.", param=name)


_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


def _parsed(variable: str, text: str, hint: Any) -> Any:
    kinds = tuple(typing.get_origin(part) or part for part in _members(hint))
    try:
        if tuple in kinds:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if bool in kinds:
            return {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}[text.lower()]
        if int in kinds:
            return int(text)
        if float in kinds:
            return float(text)
    except (KeyError, ValueError):
        raise ConfigError(f"{variable}={text!r} cannot be read.", allowed=f"It takes {hint}.", param=variable) from None
    return _checked(variable, text, hint)
