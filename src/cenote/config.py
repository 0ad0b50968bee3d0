"""Every setting, once: its default, what it means, its flag and its environment variable.

A settings class is a frozen dataclass whose fields carry their help. `resolve` fills one from what the user gave, then
the environment, then the defaults, and remembers which. Nothing else in Cenote reads the environment for settings.
"""

from __future__ import annotations

import os
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import Field, InitVar, dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

from .errors import ConfigError
from .values import at_least, checked, named_values, parsed

ENV_PREFIX = "CENOTE_"

OnLong = Literal["refuse", "cut", "chunk"]
"""What happens to an input with more tokens than the limit."""


Quantization = Literal["none", "int8"]
"""How linear layers multiply: in the model's precision, or in 8-bit integers."""

KernelChoice = Literal["auto", "off", "avx2", "avx512", "avx512_vnni"]
"""Which of our own kernels compute: the best that this CPU has, none, or those of one instruction set."""

_SEQ_POOLINGS = ("CLS", "LAST", "MEAN", "MAX", "MEAN_SQRT_LEN", "WEIGHTEDMEAN")
"""How hidden states become one row: the reference's three modes and the others of sentence-transformers."""

TokPooling = Literal["ALL", "STEP"]
"""Which tokens have rows: all, or those that end a step."""


def setting(default: Any, help: str, *, metavar: str = "", secret: bool = False, old: str = "") -> Any:
    """A dataclass field that is a setting: `help` is one line for `--help` and the docs, `old` a name that warns."""
    return field(default=default, metadata={"help": help, "metavar": metavar, "secret": secret, "old": old})


@dataclass(frozen=True)
class PoolerConfig:
    """What a user decides about reading a checkpoint; a field that is None leaves it to the checkpoint.

    Fields, values and messages are those of the reference's class of this name. What it removed (`normalize`,
    `softmax`, `activation`, `logit_bias`) is refused, and the message says what to use.

    Raises:
        ConfigError: A value is not allowed, two fields exclude each other, or one was removed.
    """

    REMOVED: ClassVar[Mapping[str, str]] = {
        "normalize": "use_activation",
        "softmax": "use_activation",
        "activation": "use_activation",
        "logit_bias": "logit_mean` and `logit_sigma",
    }

    task: str | None = setting(None, "Task where a request names none; forbids no other.")
    pooling_type: str | None = setting(None, "Short for one of the next two.", metavar="MODE")
    seq_pooling_type: str | None = setting(
        None,
        f"How hidden states become the one row of a text: {', '.join(_SEQ_POOLINGS)}, or a plugin's.",
        metavar="MODE",
    )
    tok_pooling_type: TokPooling | None = setting(None, "Which tokens have rows: all, or the ends of steps.")
    use_activation: bool | None = setting(
        None, "Whether vectors are normalised, or a classifier's activation is applied, where a request does not say."
    )
    enable_flash_late_interaction: bool = setting(True, "Accepted; scores are the same either way.")
    dimensions: int | None = setting(None, "Size that vectors are cut to where a request names none.")
    enable_chunked_processing: bool = setting(False, "Embed an input longer than the model in pieces.")
    max_embed_len: int | None = setting(None, "Longest input of the embedding routes in tokens, all pieces together.")
    logit_mean: float | None = setting(None, "Subtracted from the logits of a classifier.")
    logit_sigma: float | None = setting(None, "The logits of a classifier are divided by it; not 0.")
    step_tag_id: int | None = setting(None, "With STEP, the token whose positions have rows.")
    returned_token_ids: tuple[int, ...] | None = setting(None, "With STEP, the columns that rows keep.")
    normalize: InitVar[bool | None] = None
    softmax: InitVar[bool | None] = None
    activation: InitVar[bool | None] = None
    logit_bias: InitVar[float | None] = None

    def __post_init__(
        self, normalize: bool | None, softmax: bool | None, activation: bool | None, logit_bias: float | None
    ) -> None:
        removed = {"normalize": normalize, "softmax": softmax, "activation": activation, "logit_bias": logit_bias}
        for name, value in removed.items():
            if value is not None:
                raise ConfigError(f"Parameter `{name}` was removed; use `{self.REMOVED[name]}` instead.", param=name)
        hints = typing.get_type_hints(type(self))
        for f in fields(self):
            given: Any = getattr(self, f.name)
            if f.name.endswith("pooling_type") and isinstance(given, str):
                given = _pooling_type(f.name, given)
            if given is not None:
                object.__setattr__(self, f.name, checked(f.name, given, hints[f.name]))
        self._check()

    def _check(self) -> None:
        if self.pooling_type is not None:
            name = "tok_pooling_type" if self.pooling_type in typing.get_args(TokPooling) else "seq_pooling_type"
            if getattr(self, name) is not None:
                raise ConfigError(f"Cannot set both `pooling_type` and `{name}`.", param="pooling_type")
            object.__setattr__(self, name, self.pooling_type)
            object.__setattr__(self, "pooling_type", None)
        if self.logit_sigma == 0:
            raise ConfigError("logit_sigma cannot be 0 (division by zero).", param="logit_sigma")
        for name in ("dimensions", "max_embed_len"):
            if (value := getattr(self, name)) is not None:
                at_least(1, name, value)


def _pooling_type(name: str, given: str) -> str:
    """A way to pool, in capitals as the reference writes them: one of ours or, for rows of texts, a plugin's."""
    from . import plugins  # which asks this module what is allowed

    of_texts, of_tokens = name != "tok_pooling_type", name != "seq_pooling_type"
    known = (*(_SEQ_POOLINGS if of_texts else ()), *(typing.get_args(TokPooling) if of_tokens else ()))
    if given.upper() in known:
        return given.upper()
    guests = plugins.poolings() if of_texts else {}
    if given.lower() not in guests:
        allowed = ", ".join((*known, *(guest.upper() for guest in guests)))
        raise ConfigError(f"{name}={given.upper()!r}.", allowed=f"Allowed are {allowed}.", param=name)
    plugins.pooling(given.lower())
    return given.upper()


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
    on_long: OnLong | None = setting(
        None, "What to do with longer inputs: refuse, cut, or chunk (embed in pieces); unset, each door decides."
    )
    chunk_overlap: int = setting(0, "Tokens that a piece of a longer input shares with the one before.")
    pooler_config: PoolerConfig = setting(
        PoolerConfig(),
        "How the checkpoint is read, as JSON; each field is a flag too, and wins.",
        metavar="JSON",
        old="override_pooler_config",
    )
    allow_any_dimensions: bool = setting(
        False, "Let requests cut vectors to any size, also where the model declares no such sizes."
    )
    chat_template: str | None = setting(
        None, "Jinja template, inline or its path, for conversations and for the pairs of a cross-encoder."
    )
    calibration: str | None = setting(
        None, "File of `cenote calibrate`: the ranges of int8 and uint8 vectors; unset, those of sample texts."
    )
    io_processor_plugin: str | None = setting(
        None, "IO processor plugin that answers requests with `data`; unset, the one that config.json names, if any."
    )
    model_impl: Literal["auto", "cenote", "transformers"] = setting(
        "auto", "Who computes: Cenote, or transformers (extra `transformers`); auto is Cenote where it has the family."
    )
    trust_remote_code: bool = setting(
        False, "Let transformers run a checkpoint's own Python code; without it, one that needs it is refused."
    )


@dataclass(frozen=True)
class MachineSettings:
    """What decides how the machine is used; shared by all models of a process."""

    device: str = setting("auto", "auto, cpu, cuda or cuda:N.")
    quantization: Quantization = setting(
        "none", "int8: linear layers of the transformer in 8 bits, on the CPU; faster, and vectors change a little."
    )
    kernels: KernelChoice = setting(
        "auto", "Kernels of the package cenote-kernels: auto (the best for this CPU), off, avx2, avx512 or avx512_vnni."
    )
    profile: bool = setting(
        True, "Use what `cenote tune` found for this model on this machine, where nothing else is asked for."
    )
    num_workers: int = setting(0, "Worker threads; 0 means one per core on the CPU, one per device elsewhere.")
    threads_per_worker: int = setting(0, "Compute threads inside each worker; 0 shares the cores among the workers.")
    tokenizer_threads: int = setting(0, "Threads that tokenise; 0 means one per core, at most 8.")
    max_batch_tokens: int = setting(0, "Token budget of a batch; 0 means 1024 on the CPU, 16384 elsewhere.")
    max_batch_seqs: int = setting(512, "Most sequences in a batch.")
    keep_freed_memory: bool = setting(
        True, "Keep freed activations in the process for the next batch (Linux, CPU): faster, up to 256 MiB more."
    )
    share_prefixes: bool = setting(
        True, "Compute once what texts of a batch begin with alike (language models that look back only, on the CPU)."
    )
    max_call_tokens: int = setting(
        0, "Most tokens of one call or request, taken as a fourth of its bytes before any work; 0 is no limit."
    )
    max_queue_tokens: int = setting(
        4_000_000, "Tokens that may wait; beyond it a server answers 429 and an offline call waits."
    )

    cache_bytes: int = setting(
        0, "Memory for rows of inputs that come again, in bytes a model; 0 means that nothing is kept."
    )
    max_forward_s: float = setting(
        600.0,
        "Seconds after which a batch counts as stuck: all calls end with an error and a server exits; 0 for never.",
    )

    def __post_init__(self) -> None:
        # Without a thread, or with room for no sequence, every call would wait for ever.
        for name in (
            "num_workers",
            "threads_per_worker",
            "tokenizer_threads",
            "max_batch_tokens",
            "max_queue_tokens",
            "cache_bytes",
        ):
            at_least(0, name, getattr(self, name))
        at_least(1, "max_batch_seqs", self.max_batch_seqs)
        at_least(0, "max_forward_s", self.max_forward_s)


@dataclass(frozen=True)
class ServerSettings:
    """What decides how `cenote serve` listens."""

    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8000, "Port to listen on; 0 takes a free one.")
    uds: str | None = setting(None, "Unix socket to listen on, in place of host and port.", metavar="PATH")
    root_path: str = setting("", "Path under which a proxy serves this; stripped from requests that still have it.")
    ssl_keyfile: str | None = setting(None, "Private key for TLS, in PEM form.", metavar="FILE")
    ssl_certfile: str | None = setting(None, "Certificate for TLS, in PEM form.", metavar="FILE")
    served_model_name: tuple[str, ...] = setting((), "Name clients use for the model; repeat for aliases.")
    any_model_name: bool = setting(False, "Answer requests for any model's name with the only model that is served.")
    model_alias: tuple[str, ...] = setting((), "Further name of the model, beside its own; repeat for several.")
    api_key: tuple[str, ...] = setting((), "Key that clients must send; repeat for several.", secret=True)
    api_key_file: str | None = setting(None, "File of further keys, one a line; # starts a comment.", metavar="FILE")
    allowed_origins: tuple[str, ...] = setting((), "Origin of web pages that may ask (CORS), or *; repeat for several.")
    allowed_methods: tuple[str, ...] = setting(("*",), "Method that they may use; repeat for several.")
    allowed_headers: tuple[str, ...] = setting(("*",), "Header that they may send; repeat for several.")
    allow_credentials: bool = setting(False, "Let those pages send cookies and keys of the browser.")
    openai_token_ids: str = setting(
        "native",
        "What token ids of /v1/embeddings are: native, tiktoken (cl100k_base, read as text), or tiktoken:ENCODING.",
    )
    trust_request_chat_template: bool = setting(False, "Let requests bring their own chat templates.")
    max_body_bytes: int = setting(64 * 1024 * 1024, "Largest request body, unpacked; larger ones get 413.")
    max_inputs: int = setting(100_000, "Most texts of a request; more are refused before any work; 0 is no limit.")
    gzip_min_bytes: int = setting(
        8192, "Smallest answer (up to 1 MiB) that is packed for clients that take gzip; 0: none."
    )
    drain_s: float = setting(30.0, "Seconds that running requests get to finish after SIGTERM.")
    log_level: Literal["debug", "info", "warning", "error"] = setting("info", "Least severe message that is logged.")

    def __post_init__(self) -> None:
        at_least(0, "max_inputs", self.max_inputs)


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
    env = environment() if env is None else env
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in fields(cast(Any, cls))}
    user = _renamed(user, {f.metadata["old"]: f.name for f in known.values() if f.metadata["old"]})
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
        if variable in env and hints[name] is PoolerConfig:
            # Fields of it have sources of their own: what the user gave wins one by one.
            given = named_values(variable, env[variable]) | named_values(name, {} if given is None else given)
        if given is not None:
            values[name], sources[name] = checked(name, given, hints[name]), "user"
        elif variable in env:
            values[name], sources[name] = parsed(variable, env[variable], hints[name]), f"env {variable}"
        else:
            sources[name] = "default"
    settings = cls(**values)
    object.__setattr__(settings, _SOURCES, sources)
    return Resolved(settings, sources)


_SOURCES = "_sources"  # of a settings object that was resolved; no field, so that equal values stay equal


def source_of(settings: Any, name: str) -> str:
    """Where a value comes from; in an object made by hand, what differs from its default is the user's."""
    known: Mapping[str, str] = getattr(settings, _SOURCES, {})
    if name in known:
        return known[name]
    default = next(f.default for f in fields(settings) if f.name == name)
    return "default" if getattr(settings, name) == default else "user"


def changed(settings: T, values: Mapping[str, Any], source: str) -> T:
    """A settings object with other `values`, which come from `source`."""
    names = [f.name for f in fields(cast(Any, settings))]
    sources = {name: source_of(settings, name) for name in names} | dict.fromkeys(values, source)
    twin = cast(T, replace(cast(Any, settings), **values))
    object.__setattr__(twin, _SOURCES, sources)
    return twin


def _renamed(user: Mapping[str, Any], new_names: Mapping[str, str]) -> Mapping[str, Any]:
    for old in [name for name in user if name in new_names and user[name] is not None]:
        new = new_names[old]
        if user.get(new) is not None:
            raise ConfigError(f"Both {old} and {new} are given.", fix=f"{old} is an old name; keep {new}.", param=old)
        warnings.warn(f"{old} is an old name, say {new}.", DeprecationWarning, stacklevel=4)
        user = {**user, new: user[old]}
    return {name: value for name, value in user.items() if name not in new_names}


def allowed_plugins(env: Mapping[str, str] | None = None) -> tuple[frozenset[str] | None, bool]:
    """Names of the installed plugins that may be used, None for all, and whether each of them must be installed.

    `CENOTE_PLUGINS` lists them with commas between; else `VLLM_PLUGINS` does, which may name plugins of the reference
    that mean nothing here.

    Args:
        env: Stands in for the process environment.
    """
    env = os.environ if env is None else env
    own = ENV_PREFIX + "PLUGINS"
    listed = env.get(own, env.get("VLLM_PLUGINS"))
    if listed is None:
        return None, False
    return frozenset(name for part in listed.split(",") if (name := part.strip())), own in env


def environment() -> Mapping[str, str]:
    """The environment of this process."""
    return os.environ


def env_name(field_name: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + field_name.upper()


def help_of(f: Field[Any]) -> str:
    """The one line that explains a setting."""
    return str(f.metadata["help"])
