"""`cenote embed` with models that make sparse vectors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cenote import LLM
from support.fixtures import Tiny
from support.rows import BATCH_LIMIT, assert_equal

from .conftest import Cenote

TEXTS = ["a first text", "of the class", ""]
SPLADE = '{"architectures": ["BertSpladeSparseEmbeddingModel"]}'


@pytest.fixture(scope="module")
def folder(tiny: Tiny) -> str:
    """A masked language model of BERT's."""
    return str(tiny("bert", head="masked_lm"))


def test_lines_hold_dimensions_values_and_words(cenote: Cenote, folder: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(f'{{"id": "{n}", "text": "{t}"}}\n' for n, t in enumerate(TEXTS)))
    flags = ("--model", folder, "--sparse", "--top-k", "7", "--threshold", "0.2", "--quiet")
    cenote("embed", *flags, "--input", "in.jsonl", "--output", "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    with LLM(folder) as llm:
        expected = llm.embed_sparse(TEXTS, top_k=7, threshold=0.2, use_tqdm=False)
    for number, (line, out) in enumerate(zip(lines, expected, strict=True)):
        assert (line["index"], line["id"], line["tokens"]) == (number, str(number), len(out.prompt_token_ids))
        assert (line["indices"], line["words"]) == (out.outputs.indices, out.outputs.tokens)
        assert_equal([line["values"]], [out.outputs.values], BATCH_LIMIT)


def test_a_table_shows_the_largest_words(cenote: Cenote, folder: str) -> None:
    flags = ("--model", folder, "--format", "table", "--hf-overrides", SPLADE)
    shown = cenote("embed", *flags, *TEXTS[:2]).output
    with LLM(folder) as llm:
        (out,) = llm.embed_sparse(TEXTS[:1], use_tqdm=False)
    assert out.outputs.tokens is not None
    best = max(zip(out.outputs.values, out.outputs.tokens, strict=True))
    assert f"{best[0]:.4f}" in shown
    assert best[1] in shown
    assert "word" in shown


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--top-k", "3"), "--top-k is for sparse vectors"),
        (("--sparse", "--dimensions", "3"), "--dimensions is for other vectors"),
        (("--sparse", "--output", "rows.npy"), "A .npy holds no sparse vectors"),
    ],
)
def test_flags_that_do_not_fit(cenote: Cenote, folder: str, flags: tuple[str, ...], message: str) -> None:
    assert message in cenote("embed", "--model", folder, *flags, "a", expect=2).output


def test_other_models_make_none(cenote: Cenote) -> None:
    assert "makes no sparse vectors" in cenote("embed", "--sparse", "a", expect=2).output
