"""Profiles: what `cenote tune` found to serve a model best on a machine, kept beside the hub's cache. No torch.

A profile fills in settings that neither the user nor the environment gave. It is of one machine, one model and one
version; where any of these is another, it is not used, and the log says why.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import typing
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import config
from .config import MachineSettings, ModelSettings
from .cores import cpu_name, num_cores
from .errors import ConfigError
from .fingerprint import fingerprint
from .values import checked

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .forward import RunsBatches
    from .recipe import Recipe

log = logging.getLogger(__name__)

OF_MACHINE: Final = ("num_workers", "threads_per_worker", "max_batch_tokens", "quantization")
OF_MODEL: Final = ("dtype",)
_TOGETHER: Final = {"num_workers", "threads_per_worker"}
"""One of them without the other would be measured by nobody."""

_OF_SIZE: Final = ("num_workers", "threads_per_worker", "max_batch_tokens")
_DTYPES: Final = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Profile:
    """What was found for one model on one machine.

    Args:
        fingerprint: Of the model, with its own precision.
        weights_bytes: Size of its files of weights, by which most other models are told without reading them.
        machine: As of `this_machine`.
        versions: As of `these_versions`.
        settings: Names of `OF_MACHINE` and `OF_MODEL` -> values; empty where the defaults are best.
        goal: What was to be best.
        made: When, in ISO form.
        path: Its file.
    """

    fingerprint: str
    weights_bytes: int
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    goal: str
    made: str
    path: Path

    def why_not(self, machine: Mapping[str, Any]) -> str | None:
        """Why it is not for this machine and version, or None where it is."""
        for what, then, now in (("machine", self.machine, machine), ("version", self.versions, these_versions())):
            other = [name for name in now if then.get(name) != now[name]]
            if other:
                told = (f"{name} was {then.get(name)!r} and is {now[name]!r}" for name in other)
                return f"it is of another {what}: {', '.join(told)}"
        return None


def folder() -> Path:
    """Where profiles lie: where the hub's library lets others keep things, beside its own cache."""
    from huggingface_hub import cached_assets_path

    return cached_assets_path("cenote", namespace="profiles")


def this_machine(device: Any) -> dict[str, Any]:
    """What a profile must have been measured on: processor, cores, instruction set, device."""
    import torch

    name = "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)
    isa = torch.backends.cpu.get_cpu_capability()
    return {"processor": cpu_name(), "cores": num_cores(), "isa": isa, "device": name}


def these_versions() -> dict[str, str]:
    """What a profile must have been measured with."""
    found = {}
    for package in ("cenote", "torch"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "0+unknown"
    return found


def of(recipe: Recipe, words: Checkpoint, machine: MachineSettings, settings: Mapping[str, Any], goal: str) -> Profile:
    """The profile of a model on this machine, not yet saved.

    Args:
        words: Files of its tokenizer.
        machine: As it is without the profile.
        settings: What was found.
        goal: What was to be best.
    """
    here, name = this_machine(_device(recipe, machine)), fingerprint(recipe, words, machine)
    told = hashlib.sha256(json.dumps(here, sort_keys=True).encode()).hexdigest()[:8]
    made = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    path = folder() / f"{name}-{told}.json"
    return Profile(name, _weights_bytes(recipe), here, these_versions(), dict(settings), goal, made, path)


def save(profile: Profile) -> None:
    """Write it to its path; raises `OSError` where that cannot be."""
    said = {name: value for name, value in asdict(profile).items() if name != "path"}
    beside = profile.path.with_suffix(".new")  # moved, so that nobody reads half of it
    beside.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    beside.replace(profile.path)


def load(path: Path) -> Profile:
    """Read a profile.

    Raises:
        ConfigError: The file cannot be read, or is none.
    """
    try:
        profile = Profile(**json.loads(path.read_text(encoding="utf-8")), path=path)
        _check(profile)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"The profile {path} cannot be read: {error}", fix="Delete it, or make it anew with `cenote tune`."
        ) from error
    return profile


def applied(
    recipe: Recipe, words: Checkpoint, model: ModelSettings, machine: MachineSettings
) -> tuple[ModelSettings, MachineSettings]:
    """The settings with those of the profile that fits; as they are where there is none, or it is not wanted.

    A file that cannot be read is told in the log and passed by.
    """
    paths = _kept() if machine.profile else []
    size = _weights_bytes(recipe) if paths else 0
    near = [profile for profile in _readable(paths) if profile.weights_bytes == size]
    if not near:
        return model, machine
    name = fingerprint(recipe, words, machine)
    mine = [profile for profile in near if profile.fingerprint == name]
    if not mine:
        log.info("No profile for %s: those of its weights were made for other settings of the model.", recipe.name)
    here = this_machine(_device(recipe, machine))
    for profile in mine:
        why_not = profile.why_not(here)
        if why_not is None:
            return _filled(profile, model, machine)
        log.info("The profile %s is not used: %s. `cenote tune` makes a new one.", profile.path, why_not)
    return model, machine


def decided(machine: MachineSettings, runner: RunsBatches) -> dict[str, tuple[Any, str]]:
    """What a running model uses of what a profile may decide, each value with its source."""
    values = {name: getattr(runner, name, getattr(machine, name)) for name in OF_MACHINE}
    return {name: (value, source(machine, name)) for name, value in values.items()}


def source(machine: MachineSettings, name: str) -> str:
    """Where a value of `OF_MACHINE` comes from."""
    found = config.source_of(machine, name)
    return "default: this machine" if found == "default" and name in _OF_SIZE else found


def _filled(profile: Profile, model: ModelSettings, machine: MachineSettings) -> tuple[ModelSettings, MachineSettings]:
    free = {name for name in OF_MACHINE if config.source_of(machine, name) == "default"}
    free |= {name for name in OF_MODEL if config.source_of(model, name) == "default"}
    if not free >= _TOGETHER:
        free -= _TOGETHER
    taken = {name: value for name, value in profile.settings.items() if name in free}
    left = sorted(set(profile.settings) - set(taken))
    said = ", ".join(f"{name}={value}" for name, value in taken.items()) or "the defaults"
    besides = f"; {', '.join(left)} as given by the user or the environment" if left else ""
    log.info("By the profile %s: %s%s.", profile.path, said, besides)
    where = f"profile {profile.path}"
    return (
        config.changed(model, {name: value for name, value in taken.items() if name in OF_MODEL}, where),
        config.changed(machine, {name: value for name, value in taken.items() if name in OF_MACHINE}, where),
    )


def _kept() -> list[Path]:
    try:
        return sorted(folder().glob("*.json"))
    except OSError as error:  # the folder is made where it is missing, which a disk may not allow
        log.info("No profile is looked for: %s.", error)
        return []


def _readable(paths: list[Path]) -> Iterator[Profile]:
    for path in paths:
        try:
            yield load(path)
        except ConfigError as error:
            log.warning("%s It is ignored.", error)


def _check(profile: Profile) -> None:
    hints = typing.get_type_hints(MachineSettings)
    unknown = set(profile.settings) - {*OF_MACHINE, *OF_MODEL}
    if unknown:
        raise ValueError(f"it has settings that no profile has: {', '.join(sorted(unknown))}.")
    of_machine = {name: value for name, value in profile.settings.items() if name in OF_MACHINE}
    MachineSettings(**{name: checked(name, value, hints[name]) for name, value in of_machine.items()})
    if profile.settings.get("dtype", _DTYPES[0]) not in _DTYPES:
        raise ValueError(f"its dtype is {profile.settings['dtype']!r}, and may be {', '.join(_DTYPES)}.")
    for where in (profile.machine, profile.versions):
        where.items()


def _device(recipe: Recipe, machine: MachineSettings) -> Any:
    from .device import plan

    return plan(machine, recipe.dtype, recipe.stored_dtype).device


def _weights_bytes(recipe: Recipe) -> int:
    paths = [path for end in ("*.safetensors", "*.bin") for path in recipe.checkpoint.folder.rglob(end)]
    return sum(path.stat().st_size for path in paths)
