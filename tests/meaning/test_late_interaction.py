"""What late-interaction folders say, and what in them stops the start."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cenote import LLM, AsyncLLM
from cenote.errors import BadInput, CheckpointError, ConfigError, UnsupportedTask
from cenote.uses.similarity import LATE_SIMILARITIES, max_sim
from support.fixtures import TinySentence
from support.late_folders import ST_SETTINGS, multi_vector, pylate, stanford
from support.saving import read_json, write_json


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return multi_vector(tmp_path_factory.mktemp("late") / "m", mask={}, pooling={"pool_factor": 2})


def entries(folder: Path, change: Callable[[list[Any]], list[Any]]) -> None:
    write_json(folder / "modules.json", change(read_json(folder / "modules.json")))


def said(folder: Path, file: str, **values: Any) -> None:
    write_json(folder / file, read_json(folder / file) | values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda folder: entries(folder, lambda listed: [*listed[:3], listed[4], listed[3]]),
            "HierarchicalTokenPooling",
        ),
        (lambda folder: entries(folder, lambda listed: [*listed, listed[2]]), "are"),
        (lambda folder: said(folder, "4_HierarchicalTokenPooling/config.json", pool_factor=0.5), "pool_factor=0.5"),
        (lambda folder: said(folder, "2_MultiVectorMask/config.json", other=1), "other=1"),
        (lambda folder: said(folder, "sentence_bert_config.json", query_expansion={"strategy": "all"}), "strategy"),
        (lambda folder: said(folder, "sentence_bert_config.json", query_expansion={"strategy": "min"}), "'length'"),
        (lambda folder: said(folder, "sentence_bert_config.json", document_length=0), "document_length=0"),
        (
            lambda folder: said(
                folder,
                "sentence_bert_config.json",
                query_expansion={"strategy": "fixed", "length": 9, "token": "[NONE]"},
            ),
            r"expanded with '\[NONE\]'",
        ),
    ],
)
def test_what_cannot_be_read_stops_the_start(
    plain: Path, tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    folder = shutil.copytree(plain, tmp_path / "m")
    change(folder)
    with pytest.raises(CheckpointError, match=message):
        LLM(str(folder))


def test_a_colbert_without_its_projection_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="ColBERT without a projection"):
        LLM(str(stanford(tmp_path / "a", projection="other.weight")))


def test_the_other_name_of_the_projection_is_read_alike(tmp_path: Path) -> None:
    rows = []
    for number, projection in enumerate(("linear.weight", "colbert_linear.weight")):
        with LLM(str(stanford(tmp_path / str(number), projection=projection))) as llm:
            rows.append(llm.encode("a fox", pooling_task="token_embed", input_type="query", use_tqdm=False)[0])
    assert (rows[0].outputs.data == rows[1].outputs.data).all()


def test_a_pylate_folder_without_a_model_type_is_known_by_its_keys(tmp_path: Path) -> None:
    folder = pylate(tmp_path / "m", query_prefix="[Q] ", document_prefix="[D] ", query_length=9)
    settings = read_json(folder / ST_SETTINGS)
    del settings["model_type"]
    write_json(folder / ST_SETTINGS, settings)
    with LLM(str(folder)) as llm:
        assert llm.get_supported_tasks() == ("token_embed",)
        (query,) = llm.encode("a", pooling_task="token_embed", input_type="query", use_tqdm=False)
        assert len(query.prompt_token_ids) == len(query.outputs.data) == 9


def test_requests_that_cannot_be_are_refused(plain: Path) -> None:
    with pytest.raises(ConfigError, match="seq_pooling_type is given"):
        LLM(str(plain), pooler_config={"seq_pooling_type": "MEAN"})
    with LLM(str(plain)) as llm:
        for factor in (0.5, float("nan")):
            with pytest.raises(BadInput, match=f"pool_factor={factor}"):
                llm.encode("a", pooling_task="token_embed", pool_factor=factor, use_tqdm=False)
        with pytest.raises(UnsupportedTask, match="Embedding API is not supported"):
            llm.embed("a", use_tqdm=False)
        with pytest.raises(UnsupportedTask, match="is no bi-encoder"):
            llm.score("a", "b", score_type="bi-encoder", use_tqdm=False)


def test_queries_and_documents_are_encoded_by_the_model_s_nature(plain: Path, tiny_sentence: TinySentence) -> None:
    prompts = {"query": "query: ", "document": "passage: "}
    for folder, task in ((plain, "token_embed"), (tiny_sentence(normalize=True, prompts=prompts), "embed")):
        with LLM(str(folder)) as llm:
            for encode, role in ((llm.encode_query, "query"), (llm.encode_document, "document")):
                (found,) = encode("a red fox", use_tqdm=False)
                (expected,) = llm.encode("a red fox", pooling_task=task, input_type=role, use_tqdm=False)
                (plainly,) = llm.encode("a red fox", pooling_task=task, use_tqdm=False)
                assert found.prompt_token_ids == expected.prompt_token_ids
                assert found.outputs == expected.outputs
                assert task == "token_embed" or found.outputs != plainly.outputs

        async def awaited(folder: Path) -> list[torch.Tensor]:
            async with AsyncLLM(str(folder)) as llm:
                outs = [await llm.encode_query("a fox"), await llm.encode_document("a fox")]
                return [out[0].outputs.data for out in outs]

        shapes = [data.ndim for data in asyncio.run(awaited(folder))]
        assert shapes == ([2, 2] if task == "token_embed" else [1, 1])


def test_a_document_without_tokens_is_worse_than_all_others() -> None:
    query, nothing = -np.ones((3, 4), np.float32), np.zeros((0, 4), np.float32)
    for similarity in LATE_SIMILARITIES.values():
        assert similarity(query, nothing) < -1e6 < similarity(query, -query)
        assert similarity(nothing, query) == 0
    assert LATE_SIMILARITIES["meanmaxsim"](query, query) == pytest.approx(max_sim(query, query) / 3)
