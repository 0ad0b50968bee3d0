"""Profiles of models, as `cenote tune` would leave them, without the measuring."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cenote import profiles
from cenote.checkpoint import open_checkpoint
from cenote.config import MachineSettings, ModelSettings
from cenote.recipe import resolve


def keep_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let profiles lie in `folder`, also for child processes; returns where exactly."""
    monkeypatch.setenv("HF_ASSETS_CACHE", str(folder))
    where = folder / "cenote" / "profiles" / "default"
    where.mkdir(parents=True)
    monkeypatch.setattr(profiles, "folder", lambda: where)
    return where


def leave(model: Path, settings: dict[str, Any], **changes: Any) -> Path:
    """Keep a profile with these settings for the model in a folder; `changes` are fields that a real one lacks."""
    files = open_checkpoint(str(model))
    recipe = resolve(files, ModelSettings(model=str(model)))
    profile = profiles.of(recipe, recipe.transformer, MachineSettings(device="cpu"), settings, "all")
    profiles.save(replace(profile, **changes))
    return profile.path
