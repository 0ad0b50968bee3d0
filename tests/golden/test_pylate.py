"""Vectors and scores of a ColBERT that PyLate saved, against those that PyLate gave (`make_pylate.py`)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote import LLM
from cenote.modules.late_interaction import TokenPooling
from cenote.token_pooling import pooled
from support.references import Float32
from support.rows import assert_equal
from support.saving import read_json, write_json

HERE = Path(__file__).resolve().parent / "pylate"
TEXTS = json.loads((HERE / "texts.json").read_text(encoding="utf-8"))


def golden(name: str) -> list[Float32]:
    with np.load(HERE / "rows.npz") as stored:
        return [stored[f"{name}_{index}"] for index in range(sum(key.startswith(f"{name}_") for key in stored))]


def token_rows(llm: LLM, texts: list[str], **more: Any) -> list[Float32]:
    outs = llm.encode(texts, pooling_task="token_embed", use_tqdm=False, **more)
    return [out.outputs.data.numpy() for out in outs]


@pytest.fixture(scope="module")
def colbert() -> Iterator[LLM]:
    with LLM(str(HERE / "model")) as llm:
        yield llm


def test_queries_and_documents_equal_pylate(colbert: LLM) -> None:
    assert_equal(token_rows(colbert, TEXTS["queries"], input_type="query"), golden("queries"))
    assert_equal(token_rows(colbert, TEXTS["documents"], input_type="document"), golden("documents"))


def test_queries_that_attend_to_their_expansion_equal_pylate(tmp_path: Path) -> None:
    folder = shutil.copytree(HERE / "model", tmp_path / "m")
    settings = folder / "config_sentence_transformers.json"
    write_json(settings, read_json(settings) | {"attend_to_expansion_tokens": True})
    with LLM(str(folder)) as llm:
        assert_equal(token_rows(llm, TEXTS["queries"], input_type="query"), golden("attended"))


def test_pooled_tokens_equal_pylate() -> None:
    # PyLate leaves the means as they are.
    ours = [pooled(rows, TokenPooling(2, normalize=False)) for rows in golden("documents")]
    assert_equal(ours, golden("pooled"))


def test_scores_equal_pylate(colbert: LLM) -> None:
    (theirs,) = golden("scores")
    ours = [
        [out.outputs.score for out in colbert.score(query, TEXTS["documents"], use_tqdm=False)]
        for query in TEXTS["queries"]
    ]
    assert_equal(ours, theirs)
