"""Flags of text-embeddings-inference and of the reference's server, as far as they say what flags of ours say."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from ..errors import ConfigError

log = logging.getLogger(__name__)

SAME: Final[Mapping[str, str]] = {
    "--model-id": "--model",
    "--hostname": "--host",
    "--payload-limit": "--max-body-bytes",
    "--max-client-batch-size": "--max-inputs",
    "--tokenization-workers": "--tokenizer-threads",
    "--max-batch-requests": "--max-batch-seqs",
    "--cors-allow-origin": "--allowed-origins",
    "--max-num-batched-tokens": "--max-batch-tokens",
    "--max-num-seqs": "--max-batch-seqs",
}
"""Flag -> ours that takes the same value."""

BY_VALUE: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "--auto-truncate": {"true": ("--on-long", "cut"), "false": ("--on-long", "refuse")},
    "--pooling": {
        "cls": ("--pooler-config.seq-pooling-type", "CLS"),
        "mean": ("--pooler-config.seq-pooling-type", "MEAN"),
        "last-token": ("--pooler-config.seq-pooling-type", "LAST"),
        "splade": ("--pooler-config.task", "sparse"),
    },
}
"""Flag and value -> ours, and its value."""

IDLE: Final[Mapping[str, bool]] = {
    "--disable-log-requests": False,
    "--disable-log-stats": False,
    "--disable-spans": False,
    "--enable-chunked-prefill": False,
    "--enable-prefix-caching": False,
    "--no-enable-chunked-prefill": False,
    "--no-enable-prefix-caching": False,
    "--enforce-eager": False,
    "--gpu-memory-utilization": True,
    "--kv-cache-memory-bytes": True,
    "--seed": True,
    "--swap-space": True,
    "--tokenizer-mode": True,
    "--uds-path": True,
}
"""Flag that tunes the other server and changes no result -> whether it takes a value."""

ELSEWHERE: Final[Mapping[str, str]] = {
    "--max-concurrent-requests": "--max-queue-tokens bounds what waits, in tokens.",
    "--default-prompt": "Requests choose with prompt, prompt_name or input_type.",
    "--default-prompt-name": "Requests choose with prompt, prompt_name or input_type.",
    "--dense-path": "All modules of modules.json run, as the checkpoint says.",
    "--hf-token": "Put the token into the environment variable HF_TOKEN.",
    "--hf-api-token": "Put the token into the environment variable HF_TOKEN.",
    "--huggingface-hub-cache": "Name the folder in the environment variable HF_HUB_CACHE.",
    "--prometheus-port": "/metrics is served on --port.",
    "--otlp-endpoint": "No traces are sent; the headers of each answer say where its time went.",
    "--otlp-service-name": "No traces are sent; the headers of each answer say where its time went.",
    "--json-output": "The log is lines of text; --log-level says how much.",
    "--tensor-parallel-size": "A model runs on one device; --device says which.",
    "--pipeline-parallel-size": "A model runs on one device; --device says which.",
    "--data-parallel-size": "Run a server for each device; --device says which.",
}
"""Flag that is refused -> what to do in its place."""

_NO_OTHER = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")
"""Of these, 1 asks for nothing."""


LISTS: Final = (
    "--served-model-name",
    "--model-alias",
    "--api-key",
    "--allowed-origins",
    "--allowed-methods",
    "--allowed-headers",
)
"""Flags of the reference that take several values in a row, or one that is a JSON list; ours are repeated."""


class WithOtherFlags(click.Command):
    """A command that also reads flags of other servers."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:  # click's
        return super().parse_args(context, ours(args))


def ours(args: Sequence[str]) -> list[str]:
    """A command line with flags of other servers put into ours.

    Raises:
        ConfigError: A flag means something that Cenote does in another way, or its value is not known.
    """
    left, found = list(args), list[str]()
    # Before the model is named, a word after a value is the model, and no further value.
    named = bool(left) and not left[0].startswith("-")
    while left:
        written = left.pop(0)
        flag, equals, inline = written.partition("=")
        flag = flag.replace("_", "-")
        if written == "--":
            return [*found, written, *left]
        value = inline if equals else (left[0] if left and not left[0].startswith("--") else None)
        named = named or flag in ("--model", "--model-id")
        if flag in LISTS and value is not None:
            if not equals:
                left.pop(0)
            more = _following(left) if named and not equals else []
            found += [part for one in _listed(flag, [value, *more]) for part in (flag, one)]
            continue
        read, takes_value = _read(flag, value)
        if read is None:
            found.append(written)
            continue
        found += read
        if takes_value and value is not None and not equals:
            left.pop(0)
    return found


def _following(left: list[str]) -> list[str]:
    """The values at the start of `left`, taken away."""
    taken = list[str]()
    while left and not left[0].startswith("--"):
        taken.append(left.pop(0))
    return taken


def _listed(flag: str, values: list[str]) -> list[str]:
    """`values`, or those of the JSON list that is the only one of them."""
    if len(values) > 1 or not values[0].startswith("["):
        return values
    try:
        listed = json.loads(values[0])
    except json.JSONDecodeError:
        listed = None
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise ConfigError(f"{flag} {values[0]}.", allowed='It takes texts, or a JSON list of them: ["*"].', param=flag)
    return listed


def _read(flag: str, value: str | None) -> tuple[list[str] | None, bool]:
    """Our flags for one of another server, None where it is none; and whether it takes its value away."""
    if flag in SAME:
        return [SAME[flag], *([] if value is None else [value])], True
    if flag == "--auto-truncate" and value not in BY_VALUE[flag]:
        return [*BY_VALUE[flag]["true"]], False  # older versions had a switch
    if flag in BY_VALUE:
        return [*_chosen(flag, value)], True
    if flag in IDLE:
        log.info("%s tunes another server and changes nothing here.", flag)
        return [], IDLE[flag]
    if flag in _NO_OTHER and value == "1":
        return [], True
    if flag in ELSEWHERE:
        raise ConfigError(f"{flag} is a flag of another server.", fix=ELSEWHERE[flag], param=flag)
    return None, False


def _chosen(flag: str, value: Any) -> tuple[str, str]:
    known = BY_VALUE[flag]
    if value not in known:
        raise ConfigError(f"{flag} {value or 'has no value'}.", allowed=f"It takes {', '.join(known)}.", param=flag)
    return known[value]
