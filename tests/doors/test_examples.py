"""Every example runs with a tiny model, and prints what the model says."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cenote import LLM

from .conftest import LABELS

if TYPE_CHECKING:
    from support.fixtures import Tiny, TinySentence

Example = Callable[..., str]


@pytest.fixture
def example(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Example:
    """Runs `examples/NAME.py` with arguments, as a program, and gives what it printed."""

    def run(name: str, *arguments: str) -> str:
        path = str(root / "examples" / f"{name}.py")
        monkeypatch.setattr(sys, "argv", [path, *arguments])
        runpy.run_path(path, run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def embedder(tiny_sentence: TinySentence) -> str:
    return str(tiny_sentence(normalize=True))


def test_embed(example: Example, embedder: str) -> None:
    said = example("embed_offline", "--model", embedder)
    assert said.count(": 60 numbers, from ") == 3
    similarities = [float(number) for number in re.findall(r"-?\d\.\d*(?=[ \]])", said.split("[[", 1)[1])]
    assert len(similarities) == 9
    assert similarities[::4] == [1.0, 1.0, 1.0]


def test_encode(example: Example, embedder: str, classifier: str) -> None:
    shapes = re.findall(r": \[(.*)\] for (\d+) tokens", example("encode_offline", "--model", embedder))
    assert [shape for shape, _ in shapes] == ["60", "60", *(f"{tokens}, 60" for _, tokens in shapes[2:])]
    said = example("encode_offline", "--model", classifier)
    assert re.findall(r"^\w+", said, re.MULTILINE) == ["classify", "token_classify"]


def test_classify(example: Example, classifier: str) -> None:
    said = example("classify_offline", "--model", classifier)
    assert re.search(rf"late again\.': ({'|'.join(LABELS)}), of 3 labels: \[[\d., ]+\]\n", said)
    logits = [float(number) for number in said.rsplit("logits [", 1)[1].rstrip("]\n").split(", ")]
    assert len(logits) == 3
    assert abs(sum(logits) - 1) > 1e-3


@pytest.mark.parametrize("head", ["sequence_classification", "token_classification"])
def test_reward(example: Example, tiny: Tiny, head: str) -> None:
    said = example("reward_offline", "--model", str(tiny("bert", head=head, num_labels=1)))
    per_token = head == "token_classification"
    assert re.search(r"^'Yes\.': \[\[" if per_token else r"^'Yes\.': \[-?\d", said, re.MULTILINE)


def test_score(example: Example, embedder: str, cross_encoder: str) -> None:
    for model in (embedder, cross_encoder):
        said = example("score_offline", "--model", model)
        scores = sorted((float(score) for score in re.findall(r"^([+-][\d.]+) ", said, re.MULTILINE)), reverse=True)
        best = [float(score) for score in re.findall(r"document \d, ([+-][\d.]+):", said)]
        assert len(scores) == 3
        assert best == scores[:2]


def test_rag(example: Example, embedder: str, cross_encoder: str) -> None:
    passage = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "rag.py"))["passages"]()[11]
    small = ("--model", embedder, "--num-passages", "30", "--num-hits", "5")
    said = example("rag", passage, *small)
    assert said.startswith("Embedding 30 passages.\n")
    assert f"1. 1.0000 (hit 1) {passage[:40]}" in said
    assert len(re.findall(r"^[123]\. ", said, re.MULTILINE)) == 3
    reranked = example("rag", "what is a name?", *small, "--reranker", cross_encoder)
    assert len(re.findall(r"^[123]\. 0\.\d{4} \(hit [1-5]\)", reranked, re.MULTILINE)) == 3


def test_serve_and_ask(
    example: Example, embedder: str, cenote_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATH", "PYTHONPATH"):
        monkeypatch.setenv(name, cenote_env[name])
    said = example("serve_and_ask", "--model", embedder)
    with LLM(embedder) as llm:
        tokens = sum(len(output.prompt_token_ids) for output in llm.embed(
            ["Rainwater dissolves limestone.", "The roof of the cave falls in."], use_tqdm=False
        ))  # fmt: skip
    assert re.search(rf"^httpx: 2 vectors by \S+, {tokens} tokens$", said, re.MULTILINE)
    assert "openai: 2 vectors of 60 numbers" in said


def test_none_is_left_out(root: Path) -> None:
    tested = Path(__file__).read_text(encoding="utf-8")
    untested = [path.stem for path in (root / "examples").glob("*.py") if f'"{path.stem}"' not in tested]
    assert untested == []
