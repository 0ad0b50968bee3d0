"""What every test stands on: no network, no settings from the shell, and threads that fit beside another worker."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest_plugins = ["support.fixtures"]

ROOT = Path(__file__).resolve().parent.parent

# Before anything imports torch or huggingface_hub: both read the environment once, at import.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_ASSETS_CACHE"] = str(ROOT / ".pytest_cache" / "assets")  # no profile of this machine's user
os.environ.setdefault("OMP_NUM_THREADS", "1")
for name in [name for name in os.environ if name.startswith("CENOTE_")]:
    del os.environ[name]


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def subprocess_env() -> dict[str, str]:
    """Environment of a child process: it finds Cenote whether or not it is installed, and its commands first."""
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    commands = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PATH": os.pathsep.join(filter(None, commands)),
    }


@pytest.fixture(scope="session")
def cenote_env(subprocess_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which the command `cenote` is this checkout's, also where Cenote is not installed."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "cenote"
    command.write_text(f"#!{sys.executable}\nfrom cenote.cli import main\n\nmain()\n", encoding="utf-8")
    command.chmod(0o755)
    return {**subprocess_env, "PATH": os.pathsep.join([str(folder), subprocess_env["PATH"]])}
