"""`cenote inspect`, `download` and `env`: what a model is, where its files are, what this machine has."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import Any

import click
import orjson

from .. import checkpoint, plugins
from ..config import MachineSettings, ModelSettings, ShellSettings
from ..errors import ConfigError
from .options import Given, settings
from .version import version

_PACKAGES = ("torch", "tokenizers", "safetensors", "huggingface_hub", "numpy", "transformers", "pyarrow")


@click.command()
@click.argument("name", metavar="[MODEL]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings(ModelSettings, MachineSettings, ShellSettings)
def inspect(given: Given, name: str | None, as_json: bool) -> None:
    """Print everything that is decided about a model, each value with its source. No weights are loaded."""
    found = inspected(given.with_model(name))
    if as_json:
        click.echo(orjson.dumps(found, default=str, option=orjson.OPT_INDENT_2))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(str(found["model"]["value"])), title_justify="left")
    for heading in ("value of", "is", "because of"):
        table.add_column(heading, overflow="fold")
    for key, entry in found.items():
        table.add_row(key, escape(_said(entry["value"])), escape(entry["source"]))
    Console().print(table)


def inspected(given: Given) -> dict[str, dict[str, Any]]:
    """Name of a value -> `value` and `source`, for one model on this machine."""
    from .. import profiles
    from ..device import plan
    from ..fingerprint import fingerprint
    from ..recipe import resolve

    model, machine = given.settings(ModelSettings), given.settings(MachineSettings)
    files = checkpoint.open_checkpoint(model.model, model.revision, with_code=model.trust_remote_code)
    recipe = resolve(files, model)
    words = checkpoint.open_checkpoint(model.tokenizer) if model.tokenizer else recipe.transformer
    model, machine = profiles.applied(recipe, words, model, machine)
    recipe = resolve(files, model)
    here = plan(machine, recipe.dtype, recipe.stored_dtype, native=recipe.model_impl == "cenote")
    entries = {
        "model": {"value": recipe.name, "source": "user" if model.model else "default: the embedded model"},
        "folder": {"value": str(files.folder), "source": "where the files are"},
        "hf_overrides": _overridden(recipe.transformer, model),
        **{name: {"value": value, "source": source} for name, (value, source) in recipe.decided().items()},
        "tasks": {"value": list(recipe.tasks), "source": _tasks_source(recipe.tasks)},
    }
    told = {"value": fingerprint(recipe, words, machine), "source": "weights, tokenizer and all that is decided here"}
    entries["fingerprint"] = told
    entries["dtype"] = {"value": str(here.dtype).removeprefix("torch."), "source": here.reasons["dtype"]}
    entries["kernels"] = {"value": here.kernels or "none", "source": here.reasons["kernels"]}
    entries["device"] = {"value": str(here.device), "source": here.reasons["device"]}
    for name in ("num_workers", "threads_per_worker", "max_batch_tokens"):
        entries[name] = {"value": getattr(here, name), "source": profiles.source(machine, name)}
    return entries


def _tasks_source(tasks: tuple[str, ...]) -> str:
    brought = {task: plugins.source("cenote_tasks", task) for task in tasks}
    return ", ".join(("the checkpoint", *(f"{task} of {plugin}" for task, plugin in brought.items() if plugin)))


def _overridden(files: checkpoint.Checkpoint, model: ModelSettings) -> dict[str, Any]:
    value = {key: files.config.get(key) for key in sorted(files.overridden)}
    return {"value": value, "source": "default" if model.hf_overrides is None else "user or environment"}


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{name}: {text!r}" for name, text in value.items()) or "none"
    if isinstance(value, list):
        return "\n".join(str(part) for part in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


@click.command()
@click.argument("name", metavar="MODEL")
@click.option("--revision", help="Branch, tag or commit.")
@settings(ShellSettings)
def download(given: Given, name: str, revision: str | None) -> None:
    """Fetch a model from the hub into its cache and print the folder. What is there already is not fetched again."""
    if os.path.isdir(name):
        raise ConfigError(f"{name} is a folder already.", allowed="MODEL is a hub id.", param="MODEL")
    click.echo(checkpoint.download(name, revision))


@click.command()
@settings(ShellSettings)
def env(given: Given) -> None:
    """Print versions, cores and devices, for a bug report."""
    import torch

    from ..cores import num_cores

    lines = {"cenote": version(), "python": sys.version.split()[0], "platform": platform.platform()}
    lines |= {package: _installed(package) for package in _PACKAGES}
    lines["cores"] = f"{num_cores()} of {os.cpu_count()}"
    lines["cpu capability"] = torch.backends.cpu.get_cpu_capability()
    lines["cuda"] = ", ".join(torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())) or "none"
    for name, value in lines.items():
        click.echo(f"{name:<16} {value}")


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
