"""The version of the installed package."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """What is installed, or "unknown" where Cenote runs from a source folder that was never installed."""
    try:
        return metadata.version("cenote")
    except metadata.PackageNotFoundError:
        return "unknown"
