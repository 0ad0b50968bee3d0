"""Reward models of tokens and of steps: their own heads, and columns of a language model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from cenote import LLM, PoolerConfig
from cenote.errors import ConfigError
from support.fixtures import Tiny
from support.parity import REFERENCE_LIMIT
from support.references import EXACT, Float32, worst_error
from support.rerankers import reranker
from support.saving import read_json, write_json
from support.texts import short_texts

# "." ends a step here; a real model has a token of its own for that.
TEXTS = ["An object is true. It is false. Nothing.", *short_texts(2), "yes"]
Rewarder = Callable[..., tuple[Path, list[Float32]]]


def tokenizer_of(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


@pytest.fixture(scope="module")
def rewarder(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Rewarder:
    """A Qwen2 with the head of a reward model, and the logits of each token of `TEXTS`."""

    def make(architecture: str, num_labels: int) -> tuple[Path, list[Float32]]:
        folder = reranker(tiny("qwen2", head="causal_lm"), tmp_path_factory.mktemp("reward") / "m")
        source = torch.Generator().manual_seed(3)
        shapes = {"0.weight": (60, 60), "0.bias": (60,), "2.weight": (num_labels, 60), "2.bias": (num_labels,)}
        head = {f"score.{name}": 0.2 * torch.randn(shape, generator=source) for name, shape in shapes.items()}
        path = folder / "model.safetensors"
        state = {name: tensor.clone() for name, tensor in load_file(path).items() if not name.startswith("lm_head")}
        path.unlink()
        save_file({**state, **head}, path, metadata={"format": "pt"})
        write_json(folder / "config.json", {**read_json(folder / "config.json"), "architectures": [architecture]})
        model = AutoModel.from_pretrained(folder, **EXACT).eval()
        logits = []
        with torch.inference_mode():
            for text in TEXTS:
                hidden = model(**tokenizer_of(folder)(text, return_tensors="pt")).last_hidden_state[0]
                inner = torch.relu(hidden @ head["score.0.weight"].T + head["score.0.bias"])
                logits.append((inner @ head["score.2.weight"].T + head["score.2.bias"]).numpy())
        return folder, logits

    return make


def rows(llm: LLM, **more: Any) -> list[Float32]:
    return [out.outputs.data.numpy() for out in llm.reward(TEXTS, use_tqdm=False, **more)]


def same(ours: list[Float32], theirs: list[Float32]) -> None:
    assert [row.shape for row in ours] == [row.shape for row in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert not b.size or worst_error(a, b) <= REFERENCE_LIMIT


def test_a_reward_model_values_every_token(rewarder: Rewarder) -> None:
    folder, logits = rewarder("Qwen2ForRewardModel", 1)
    with LLM(str(folder)) as llm:
        assert llm.get_supported_tasks() == ("token_classify",)
        same(rows(llm), logits)
        same(
            [out.outputs.data.numpy() for out in llm.encode(TEXTS, pooling_task="token_classify", use_tqdm=False)],
            logits,
        )
        same(rows(llm, use_activation=True), [torch.tensor(row).sigmoid().numpy() for row in logits])


def test_a_reward_model_of_one_layer_is_read_as_its_makers_read_it(tiny: Tiny, tmp_path: Path) -> None:
    folder = reranker(tiny("internlm2"), tmp_path / "m")
    v_head = 0.2 * torch.randn(1, 60, generator=torch.Generator().manual_seed(3))
    state = {f"model.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file({**state, "v_head.weight": v_head}, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(
        folder / "config.json",
        {**read_json(folder / "config.json"), "architectures": ["InternLM2ForRewardModel"]},
    )
    model = AutoModel.from_pretrained(tiny("internlm2"), **EXACT).eval()
    with torch.inference_mode():
        hidden = [model(**tokenizer_of(folder)(text, return_tensors="pt")).last_hidden_state[0] for text in TEXTS]
        logits = [(rows @ v_head.T).numpy() for rows in hidden]
    with LLM(str(folder)) as llm:
        assert llm.get_supported_tasks() == ("token_classify",)
        same(rows(llm), logits)
        shown = llm.encode(TEXTS, pooling_task="token_classify", use_tqdm=False)
        same([out.outputs.data.numpy() for out in shown], [torch.tensor(row).sigmoid().numpy() for row in logits])


def test_a_process_reward_model_values_the_ends_of_steps(rewarder: Rewarder) -> None:
    folder, logits = rewarder("Qwen2ForProcessRewardModel", 2)
    tokenizer = tokenizer_of(folder)
    tag = tokenizer.convert_tokens_to_ids(".")
    ends = [np.flatnonzero(np.array(tokenizer(text)["input_ids"]) == tag) for text in TEXTS]
    assert [len(places) for places in ends][::3] == [3, 0]
    expected = [row[places] for row, places in zip(logits, ends, strict=True)]
    with LLM(str(folder), pooler_config=PoolerConfig(step_tag_id=tag)) as llm:
        same(rows(llm), expected)
        shown = [out.outputs.data for out in llm.encode(TEXTS, pooling_task="token_classify", use_tqdm=False)]
        same([row.numpy() for row in shown], [torch.tensor(row).softmax(-1).numpy() for row in expected])
    with LLM(str(folder)) as llm:
        assert llm.recipe.classifier is not None
        assert (llm.recipe.classifier.step_tag_id, llm.recipe.classifier.labels) == (151_651, ("LABEL_0", "LABEL_1"))
        assert [len(row) for row in rows(llm)] == [0] * len(TEXTS)
    with LLM(str(folder), pooler_config=PoolerConfig(tok_pooling_type="ALL")) as llm:
        same(rows(llm), logits)


def test_a_language_model_values_steps_by_columns_of_its_head(tiny: Tiny, tmp_path: Path) -> None:
    folder = reranker(tiny("mistral", head="causal_lm"), tmp_path / "m")
    tokenizer = tokenizer_of(folder)
    tag, good, bad = tokenizer.convert_tokens_to_ids([".", "yes", "no"])
    model = AutoModelForCausalLM.from_pretrained(folder, **EXACT).eval()
    expected = []
    with torch.inference_mode():
        for text in TEXTS:
            encoded = tokenizer(text, return_tensors="pt")
            logits = model(**encoded).logits[0, :, [good, bad]].softmax(-1)
            expected.append(logits[encoded["input_ids"][0] == tag].numpy())
    asked = PoolerConfig(tok_pooling_type="STEP", step_tag_id=tag, returned_token_ids=(good, bad))
    with LLM(str(folder), pooler_config=asked) as llm:
        assert llm.get_supported_tasks() == ("token_classify",)
        assert llm.recipe.classifier is not None
        assert llm.recipe.classifier.labels == ("yes", "no")
        same(rows(llm, use_activation=True), expected)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"tok_pooling_type": "STEP"}, "tok_pooling_type is 'STEP', which"),
        ({"step_tag_id": 3}, "step_tag_id is given without STEP pooling"),
    ],
)
def test_steps_of_what_values_no_tokens_are_refused(tiny: Tiny, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LLM(str(tiny("bert")), pooler_config=PoolerConfig(**asked))


def test_columns_of_what_has_no_head_are_refused(rewarder: Rewarder, tiny: Tiny) -> None:
    for folder in (tiny("bert"), rewarder("Qwen2ForProcessRewardModel", 2)[0]):
        with pytest.raises(ConfigError, match="has no logits of tokens to choose from"):
            LLM(str(folder), pooler_config=PoolerConfig(returned_token_ids=(1, 2)))
