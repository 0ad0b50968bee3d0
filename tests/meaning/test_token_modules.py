"""Modules before the pooling, against sentence-transformers, for texts and for tokens, in both generations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from cenote import LLM
from cenote.checkpoint import open_checkpoint
from cenote.config import ModelSettings
from cenote.errors import CheckpointError, UnknownModule
from cenote.recipe import resolve
from support.forwards import finished_rows
from support.module_chains import CHAINS, give_lengths, save_chain
from support.parity import BATCH_LIMIT, REFERENCE_LIMIT
from support.references import EXACT, Float32, worst_error
from support.texts import short_texts

TEXTS = [*short_texts(7), "a", "Word words WORD", short_texts(1)[0]]


def reference(folder: Path) -> SentenceTransformer:
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True, model_kwargs=dict(EXACT))
    give_lengths(model)
    return model.float().eval()


def worst(ours: Any, theirs: Any) -> float:
    return max(worst_error(a, b) for a, b in zip(ours, theirs, strict=True))


def by_token(model: SentenceTransformer) -> list[Float32]:
    """The rows of tokens, each through what comes after the pooling."""
    rows: Any = model.encode(TEXTS, batch_size=1, output_value="token_embeddings", show_progress_bar=False)
    kinds = [type(module).__name__ for module in model]
    for module in list(model)[kinds.index("Pooling") + 1 :]:
        with torch.inference_mode():
            rows = [module({"sentence_embedding": row})["sentence_embedding"] for row in rows]
    return [row.numpy() for row in rows]


@pytest.mark.parametrize("generation", ["old", "new"])
@pytest.mark.parametrize("chain", CHAINS)
def test_rows_equal_the_reference(tmp_path: Path, chain: str, generation: Any) -> None:
    folder = save_chain(tmp_path / "m", chain, generation)
    model = reference(folder)
    with LLM(str(folder)) as llm:
        rows = llm.embed(TEXTS, output="numpy", use_tqdm=False)
        assert worst(rows, model.encode(TEXTS, batch_size=1, show_progress_bar=False)) <= REFERENCE_LIMIT
        assert worst(llm.embed(TEXTS[:3], output="numpy", use_tqdm=False), rows[:3]) <= BATCH_LIMIT
        if "token_embed" in llm.get_supported_tasks():
            outs = llm.encode(TEXTS, pooling_task="token_embed", use_tqdm=False)
            assert worst([out.outputs.data.numpy() for out in outs], by_token(model)) <= REFERENCE_LIMIT


def change(folder: Path, name: str, **values: Any) -> None:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("chain", "name", "values", "error", "message"),
    [
        ("residual", "2_Dense/config.json", {"gate": "glu"}, UnknownModule, "gate='glu'"),
        ("residual", "2_Dense/config.json", {"module_output_name": "x"}, CheckpointError, "module_output_name='x'"),
        ("CNN", "1_CNN/cnn_config.json", {"stride_sizes": [1, 2, 1]}, CheckpointError, r"strides of \[1, 2\]"),
        ("CNN", "1_CNN/cnn_config.json", {"in_embedding_dimension": 61}, CheckpointError, "takes 61 values, but gets"),
        ("WeightedLayerPooling", "1_WeightedLayerPooling/config.json", {"layer_start": 9}, CheckpointError, "=9"),
    ],
)
def test_what_cannot_be_served_stops_the_start(
    tmp_path: Path, chain: str, name: str, values: dict[str, Any], error: Any, message: str
) -> None:
    folder = save_chain(tmp_path / "m", chain)
    change(folder, name, **values)
    with pytest.raises(error, match=message):
        resolve(open_checkpoint(str(folder)), ModelSettings())


@pytest.mark.parametrize("num_layers", [2, 4])
def test_layers_that_the_model_does_not_have_stop_the_start(tmp_path: Path, num_layers: int) -> None:
    folder = save_chain(tmp_path / "m", "WeightedLayerPooling", num_hidden_layers=num_layers)
    with pytest.raises(CheckpointError, match="reads layers 0 to 3"):
        LLM(str(folder))


def test_layers_that_the_reference_would_not_give_stop_the_start(tmp_path: Path) -> None:
    folder = save_chain(tmp_path / "m", "WeightedLayerPooling")
    change(folder, "config.json", output_hidden_states=False)
    with pytest.raises(CheckpointError, match="output_hidden_states"):
        resolve(open_checkpoint(str(folder)), ModelSettings())


@pytest.mark.parametrize("order", [("Pooling", "CNN"), ("Pooling", "Pooling"), ()])
def test_modules_in_another_order_stop_the_start(tmp_path: Path, order: tuple[str, ...]) -> None:
    folder = save_chain(tmp_path / "m", "CNN")
    first, *rest = json.loads((folder / "modules.json").read_text())
    by_kind = {module["type"].rsplit(".", 1)[-1]: module for module in rest}
    (folder / "modules.json").write_text(json.dumps([first, *(by_kind[kind] for kind in order)]))
    with pytest.raises(CheckpointError, match=r"lists \['Transformer'"):
        resolve(open_checkpoint(str(folder)), ModelSettings())


def test_a_prompt_is_left_out_where_words_have_weights(tmp_path: Path) -> None:
    folder = save_chain(tmp_path / "m", "WordWeights")
    change(folder, "2_Pooling/config.json", include_prompt=False)
    prompt = "represent this: "
    with LLM(str(folder)) as llm:
        rows = llm.embed(TEXTS, output="numpy", use_tqdm=False, prompt=prompt)
    expected = reference(folder).encode(TEXTS, batch_size=1, prompt=prompt, show_progress_bar=False)
    assert worst(rows, expected) <= REFERENCE_LIMIT
    assert np.abs(rows - finished_rows(folder, [([2, 5, 3], None)])).max() > 0.1
