"""Language models trained as embedders and rerankers that see all of a text, told by the names of their classes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from cenote import LLM, Pair, PoolerConfig
from cenote.errors import CheckpointError
from cenote.steps import Dense, Pooling
from support.bidirectional import all_seen
from support.classifiers import Reference, changed
from support.fixtures import Tiny, TinySentence
from support.forwards import recipe_of
from support.parity import BATCH_LIMIT, REFERENCE_LIMIT
from support.references import EXACT, Float32, worst_error
from support.saving import read_json, write_json
from support.texts import paragraphs, short_texts

TEXTS = [*short_texts(5), "", paragraphs(1)[0][:150]]
CUT = {"truncate_prompt_tokens": -1}
ROWS = {"avg": "mean", "cls": "cls", "last": "last"}


def hidden(folder: Path, texts: Sequence[str]) -> list[Float32]:
    """The last hidden states of each text where each token sees all others."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, **EXACT).eval()
    found = []
    with torch.inference_mode():
        for text in texts:
            ids = tokenizer(text, return_tensors="pt", truncation=True)["input_ids"]
            found.append(model(ids, attention_mask=all_seen(ids, torch.float32)).last_hidden_state[0].numpy())
    return found


def unit(rows: Sequence[Float32]) -> list[Float32]:
    return [row / np.linalg.norm(row) for row in rows]


def assert_embeds(llm: LLM, expected: Sequence[Float32], texts: Sequence[str] = TEXTS) -> None:
    ours = [out.outputs.embedding for out in llm.embed(list(texts), use_tqdm=False, tokenization_kwargs=CUT)]
    alone = [llm.embed([text], use_tqdm=False, tokenization_kwargs=CUT)[0].outputs.embedding for text in texts]
    assert max(worst_error(a, b) for a, b in zip(ours, expected, strict=True)) <= REFERENCE_LIMIT
    assert max(worst_error(a, b) for a, b in zip(ours, alone, strict=True)) <= BATCH_LIMIT


@pytest.mark.parametrize("pooling", ROWS)
def test_an_embedder_of_nvidia_is_pooled_as_its_config_says(tiny: Tiny, pooling: str) -> None:
    folder = tiny("llama_bidirec", pooling=pooling)
    assert "is_causal" not in read_json(folder / "config.json")
    rows = hidden(folder, TEXTS)
    pooled = [{"avg": row.mean(0), "cls": row[0], "last": row[-1]}[pooling] for row in rows]
    with LLM(str(folder)) as llm:
        assert llm.recipe.steps == (Pooling((ROWS[pooling],)),)
        assert (llm.recipe.causal, llm.recipe.sources["causal"]) == (False, "config.json: model_type")
        assert_embeds(llm, unit(pooled))


@pytest.mark.parametrize("pooling", ROWS)
def test_a_reranker_of_nvidia_scores_the_pooled_row(tiny: Tiny, pooling: str) -> None:
    folder = tiny("llama_bidirec", head="sequence_classification", num_labels=1, pooling=pooling)
    reference = Reference(folder)
    with LLM(str(folder)) as llm:
        outs = llm.classify(TEXTS, use_activation=False, use_tqdm=False, tokenization_kwargs=CUT)
        expected = np.stack([reference.logits(text) for text in TEXTS])
        assert worst_error([out.outputs.probs for out in outs], expected) <= REFERENCE_LIMIT
    with LLM(str(folder), pooler_config=PoolerConfig(seq_pooling_type="LAST")) as llm:
        assert llm.recipe.classifier is not None
        assert llm.recipe.classifier.pooling == "last"


def test_a_reranker_of_nvidia_reads_pairs_as_its_card_says(tiny: Tiny, tmp_path: Path) -> None:
    source = tiny("llama_bidirec", head="sequence_classification", num_labels=1)
    folder = Path(shutil.copytree(source, tmp_path / "llama-nemotron-rerank-1b-v2"))
    with LLM(str(folder)) as llm:
        (out,) = llm.score("which fox?", "a red fox", use_activation=False, use_tqdm=False)
    text = "question:which fox? \n \n passage:a red fox"
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert out.prompt_token_ids == tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert worst_error([out.outputs.score], Reference(folder).logits(ids)) <= REFERENCE_LIMIT
    with LLM(str(source)) as llm:
        (joined,) = llm.encode([Pair("which fox?", "a red fox")], pooling_task="classify", use_tqdm=False)
    assert joined.prompt_token_ids == tokenizer("which fox?", "a red fox")["input_ids"]


@pytest.fixture(scope="module")
def voyage(tiny_sentence: TinySentence, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3 with a linear layer behind it, as voyage-4-nano lies in its folder."""
    source = tiny_sentence(model_type="qwen3", pooling="mean", normalize=True, generation="old")
    folder = Path(shutil.copytree(source, tmp_path_factory.mktemp("voyage") / "m"))
    state = {f"model.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    linear = 0.2 * torch.randn(28, 60, generator=torch.Generator().manual_seed(3))
    save_file({**state, "linear.weight": linear}, folder / "model.safetensors", metadata={"format": "pt"})
    code = {"AutoModel": "modeling_qwen3_bidirectional.Qwen3BidirectionalModel"}
    write_json(folder / "config.json", {**read_json(folder / "config.json"), "auto_map": code, "num_labels": 28})
    pooling = read_json(folder / "1_Pooling" / "config.json")
    write_json(folder / "1_Pooling" / "config.json", {**pooling, "word_embedding_dimension": 28})
    return folder


def projected(folder: Path) -> list[Float32]:
    linear = load_file(folder / "model.safetensors")["linear.weight"].numpy()
    bare = folder.parent / "bare"
    if not bare.exists():
        shutil.copytree(folder, bare)
        state = load_file(bare / "model.safetensors")
        base = {name.removeprefix("model."): tensor for name, tensor in state.items() if name != "linear.weight"}
        save_file(base, bare / "model.safetensors", metadata={"format": "pt"})
    return [rows @ linear.T for rows in hidden(bare, TEXTS)]


def test_an_embedder_may_end_in_a_linear_layer(voyage: Path) -> None:
    expected = projected(voyage)
    with LLM(str(voyage)) as llm:
        assert (llm.recipe.causal, llm.recipe.sources["causal"]) == (False, "config.json: auto_map")
        assert llm.recipe.embedding_size == 28
        assert_embeds(llm, unit([rows.mean(0) for rows in expected]))
        tokens = llm.encode(TEXTS[:3], pooling_task="token_embed", use_tqdm=False)
        for out, rows in zip(tokens, expected, strict=False):
            assert worst_error(out.outputs.data, rows / np.linalg.norm(rows, axis=1)[:, None]) <= REFERENCE_LIMIT


def test_the_class_may_be_named_by_the_user(voyage: Path, tmp_path: Path) -> None:
    expected = unit([rows.mean(0) for rows in projected(voyage)])
    folder = changed(voyage, tmp_path / "m", auto_map=None)
    (folder / "modules.json").unlink()
    named = {"architectures": ["VoyageQwen3BidirectionalEmbedModel"]}
    with LLM(str(folder), hf_overrides=named, convert="embed", runner="pooling") as llm:
        assert isinstance(llm.recipe.steps[0], Dense)
        assert llm.recipe.sources["causal"] == "hf_overrides: architectures"
        assert_embeds(llm, expected)


def test_a_class_may_see_all_without_a_layer_of_its_own(tiny: Tiny, tmp_path: Path) -> None:
    folder = changed(tiny("qwen3"), tmp_path / "m", architectures=["Qwen3BidirectionalModel"])
    assert recipe_of(folder).steps == (Pooling(("mean",)),)
    with LLM(str(folder)) as llm:
        assert_embeds(llm, unit([rows.mean(0) for rows in hidden(tiny("qwen3"), TEXTS)]))
    stated = recipe_of(changed(folder, tmp_path / "causal", is_causal=True))
    assert (stated.causal, stated.sources["causal"]) == (True, "config.json: is_causal")


@pytest.mark.parametrize(
    "says",
    [
        {"architectures": ["GritLM"]},
        {"architectures": ["MistralForCausalLM"], "auto_map": {"AutoModel": "modeling_gritlm7b.MistralModel"}},
    ],
)
def test_gritlm_pools_what_comes_after_the_instruction(tiny: Tiny, tmp_path: Path, says: dict[str, Any]) -> None:
    folder = changed(tiny("mistral"), tmp_path / "m", **says)
    instruction = "<|user|>\nFind it.\n<|embed|>\n"
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    num = len(tokenizer(instruction, add_special_tokens=False)["input_ids"])
    texts = [text for text in TEXTS[:4] if text]
    rows = hidden(tiny("mistral"), [instruction + text for text in texts])
    with LLM(str(folder)) as llm:
        assert llm.recipe.steps == (Pooling(("mean",), include_prompt=False),)
        outs = llm.embed(texts, prompt=instruction, use_tqdm=False)
        expected = unit([row[num:].mean(0) for row in rows])
        assert max(worst_error(o.outputs.embedding, e) for o, e in zip(outs, expected, strict=True)) <= REFERENCE_LIMIT


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ({"pooling": None}, "no 'pooling'"),
        ({"pooling": "weighted_avg"}, "pooling='weighted_avg'"),
        ({"architectures": ["LlamaBidirectionalForSequenceClassification"], "temperature": 0.5}, "temperature=0.5"),
    ],
)
def test_what_their_config_says_and_we_do_not_do_stops_the_start(
    tiny: Tiny, tmp_path: Path, says: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        recipe_of(changed(tiny("llama_bidirec"), tmp_path / "m", **says))


def test_transformers_does_not_run_them_as_if_they_were_causal(tiny: Tiny, tmp_path: Path) -> None:
    folder = changed(tiny("qwen3"), tmp_path / "m", architectures=["Qwen3BidirectionalModel"])
    with pytest.raises(CheckpointError, match=r"each token sees all others \(config.json: architectures\)"):
        LLM(str(folder), model_impl="transformers")
