"""What `cenote inspect` says of eleven checkpoints that are made differently, as text.

`PYTHONPATH=src:tests python -m doors.inspected`, from the repository, writes the files of `tests/doors/snapshots`
anew; a test holds what is said to them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from cenote.cli.app import app
from support.checkpoints import tiny_transformer
from support.foreign import foreign
from support.sentence_folders import Dense, sentence_transformer

FOLDER: Final = Path(__file__).with_name("snapshots")
# What differs from machine to machine, or from folder to folder.
LEFT_OUT: Final = (
    *("model", "folder", "device", "kernels", "num_workers", "threads_per_worker", "max_batch_tokens", "fingerprint"),
)

Make = Callable[[Path], Path]
CHECKPOINTS: Final[Mapping[str, tuple[Make, tuple[str, ...]]]] = {
    "encoder-without-modules": (lambda to: tiny_transformer("bert", to), ()),
    "run-by-transformers": (lambda to: foreign("xlnet", to), ()),
    "language-model": (lambda to: tiny_transformer("qwen3", to, head="causal_lm"), ()),
    "sentence-transformer": (
        lambda to: sentence_transformer(to, normalize=True, prompts={"query": "q: "}, default_prompt_name="query"),
        (),
    ),
    "sentence-transformer-of-old": (
        lambda to: sentence_transformer(
            to, generation="old", model_type="mpnet", pooling="cls", max_seq_length=33, do_lower_case=True
        ),
        (),
    ),
    "joined-poolings-and-dense": (
        lambda to: sentence_transformer(to, pooling=["cls", "mean"], dense=Dense(28), layer_norm=True, normalize=True),
        (),
    ),
    "matryoshka-read-by-the-user": (
        lambda to: sentence_transformer(to, normalize=True, matryoshka_dimensions=[8, 16], similarity="dot"),
        ("--pooler-config", '{"task": "token_embed", "pooling_type": "LAST", "dimensions": 16}', "--max-model-len=50"),
    ),
    "instructions-in-the-config": (
        lambda to: sentence_transformer(to, task_instructions={"query": "find: ", "document": "store: "}),
        ("--pooler-config.use-activation=true", "--allow-any-dimensions"),
    ),
    "cross-encoder": (
        lambda to: tiny_transformer("bert", to, head="sequence_classification", num_labels=1),
        ("--pooler-config.logit-mean=0.5",),
    ),
    "several-labels": (
        lambda to: tiny_transformer(
            "roberta",
            to,
            head="sequence_classification",
            num_labels=2,
            id2label={0: "bad", 1: "good"},
            problem_type="multi_label_classification",
        ),
        ("--pooler-config.seq-pooling-type=mean", "--pooler-config.use-activation=false"),
    ),
    "token-classifier": (lambda to: tiny_transformer("electra", to, head="token_classification"), ()),
}


def said(name: str, folder: Path) -> str:
    """Make the checkpoint called `name` in `folder`, and give a line for each value and its source."""
    make, flags = CHECKPOINTS[name]
    result = CliRunner().invoke(app, ["inspect", "--json", str(make(folder)), *flags], prog_name="cenote")
    assert result.exit_code == 0, (result.output, result.exception)
    found: dict[str, dict[str, Any]] = json.loads(result.stdout)
    lines = [f"{key}: {json.dumps(e['value'])} <- {e['source']}" for key, e in found.items() if key not in LEFT_OUT]
    return "\n".join(sorted(lines)) + "\n"


def main() -> None:
    """Write all files anew."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for name in CHECKPOINTS:
        with tempfile.TemporaryDirectory() as scratch:
            (FOLDER / f"{name}.txt").write_text(said(name, Path(scratch) / "m"), encoding="utf-8")


if __name__ == "__main__":
    main()
