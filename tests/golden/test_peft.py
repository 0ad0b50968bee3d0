"""Adapters that PEFT saved, merged into their base model, against what PEFT makes of them (`make_peft.py`)."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from support.fixtures import Tiny
from support.forwards import backbone
from support.parity import REFERENCE_LIMIT
from support.references import worst_error
from support.saving import Saved, read_json, write_json

HERE = Path(__file__).resolve().parent / "peft"
KINDS = ("everything", "plain", "table")


@pytest.mark.parametrize("prefix", ["keep", "add"])
@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_equal_those_of_peft(tiny: Tiny, tmp_path: Path, kind: str, prefix: str) -> None:
    base = tiny("qwen3", saved=Saved(prefix="add")) if prefix == "add" else tiny("qwen3")
    folder = Path(shutil.copytree(HERE / kind, tmp_path / "adapter"))
    config = folder / "adapter_config.json"
    write_json(config, {**read_json(config), "base_model_name_or_path": str(base)})
    with np.load(HERE / "rows.npz") as stored:
        ids, expected = stored["ids"].tolist(), stored[kind]
    (rows,) = backbone(folder).forward([(ids, None)])
    assert worst_error(rows, expected) <= REFERENCE_LIMIT
    (without,) = backbone(base).forward([(ids, None)])
    assert worst_error(without, expected) > 0.01
