"""Adapters that each text chooses: jina-embeddings-v3, in its makers' form and in that of transformers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

from cenote import LLM, models
from cenote.errors import BadInput, CheckpointError
from cenote.layers.packed import Packed, Wanted
from cenote.models import roberta, xlm_roberta_flash
from cenote.types import Encoded
from support.classifiers import Reference, changed
from support.fixtures import Tiny, TinySentence
from support.forwards import Backbone, backbone, pack
from support.jina_v3 import ADAPTERS, as_makers, makers_config, merged, with_adapters
from support.parity import BATCH_LIMIT, HALF_COSINE, REFERENCE_LIMIT, cosine, worst_of
from support.references import ragged_ids, reference_hidden, reference_vectors, worst_error
from support.saving import Saved, read_json
from support.texts import paragraphs, short_texts

TEXTS = short_texts(5)
FIRST: tuple[Wanted, ...] = ("first",) * 8


@pytest.fixture(scope="module")
def folder(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_adapters(tiny("jina_embeddings_v3"), tmp_path_factory.mktemp("adapters") / "m")


@pytest.fixture(scope="module")
def expected(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Any]]:
    """Hidden states of the reference by number of the adapter, -1 for none."""
    source, into = tiny("jina_embeddings_v3"), tmp_path_factory.mktemp("merged")
    inputs = ragged_ids(source)
    found = {-1: reference_hidden(source, inputs)}
    for number, name in enumerate(ADAPTERS):
        found[number] = reference_hidden(merged(source, into / name, name), inputs)
    return found


def forward(ours: Backbone, inputs: Any, adapters: list[int], wanted: tuple[Wanted, ...] = ()) -> list[Any]:
    batch = replace(pack(inputs), adapters=np.array(adapters, np.int32))
    with torch.inference_mode():
        packed = Packed.of(batch, torch.device("cpu"), wanted)
        bounds = (packed.kept.bounds if packed.kept else packed.bounds).query_S1
        return [rows.float().numpy() for rows in ours.model(packed).last_QD.split(bounds.diff().tolist())]


@pytest.mark.parametrize("mixed", [False, True])
def test_each_text_is_read_with_its_adapter(tiny: Tiny, folder: Path, expected: Any, mixed: bool) -> None:
    ours, inputs = backbone(folder), ragged_ids(tiny("jina_embeddings_v3"))
    for shift in range(-1, len(ADAPTERS)):
        chosen = [(shift + place + 1) % 4 - 1 if mixed else shift for place in range(len(inputs))]
        theirs = [expected[number][place] for place, number in enumerate(chosen)]
        found = forward(ours, inputs, chosen)
        assert worst_of(found, theirs) <= REFERENCE_LIMIT
        alone = [forward(ours, [one], [number])[0] for one, number in zip(inputs, chosen, strict=True)]
        assert worst_of(alone, found) <= BATCH_LIMIT
        first = forward(ours, inputs, chosen, FIRST)
        assert worst_of(first, [rows[:1] for rows in found]) <= BATCH_LIMIT


def test_without_an_adapter_nothing_is_added(tiny: Tiny, folder: Path) -> None:
    ours, inputs = backbone(folder), ragged_ids(tiny("jina_embeddings_v3"))
    plain = backbone(tiny("jina_embeddings_v3")).forward(inputs)
    for rows, theirs in zip(ours.forward(inputs), plain, strict=True):
        np.testing.assert_array_equal(rows, theirs)


def test_half_precision_points_the_same_way(tiny: Tiny, folder: Path, expected: Any) -> None:
    inputs = ragged_ids(tiny("jina_embeddings_v3"))
    chosen = [place % 4 - 1 for place in range(len(inputs))]
    half = forward(backbone(folder, "bfloat16"), inputs, chosen)
    theirs = [expected[number][place] for place, number in enumerate(chosen)]
    assert cosine(np.concatenate(half), np.concatenate(theirs)) >= HALF_COSINE


def test_requests_choose_adapters_by_name(
    tiny: Tiny, tiny_sentence: TinySentence, folder: Path, tmp_path: Path
) -> None:
    plain = tiny_sentence(model_type="jina_embeddings_v3", pooling="mean", normalize=True)
    made = as_makers(plain, folder, tmp_path / "m")
    with LLM(str(made)) as llm:
        for name, before in ADAPTERS.items():
            merged_folder = Path(shutil.copytree(plain, tmp_path / name))
            source = merged(tiny("jina_embeddings_v3"), tmp_path / f"{name}-weights", name)
            shutil.copy(source / "model.safetensors", merged_folder / "model.safetensors")
            assert_vectors(llm, merged_folder, before, adapter=name)
            assert_vectors(llm, merged_folder, "Own: ", adapter=name, prompt="Own: ")
        assert_vectors(llm, plain, "")
        with pytest.raises(BadInput, match="no adapter named 'clustering'"):
            llm.embed(TEXTS, adapter="clustering", use_tqdm=False)
    with LLM(str(plain)) as llm, pytest.raises(BadInput, match="Its adapters are none"):
        llm.embed(TEXTS, adapter="retrieval.query", use_tqdm=False)


def assert_vectors(llm: LLM, reference: Path, before: str, **asked: Any) -> None:
    theirs = reference_vectors(reference, [before + text for text in TEXTS])
    ours = [out.outputs.embedding for out in llm.embed(TEXTS, use_tqdm=False, **asked)]
    assert max(worst_error(a, b) for a, b in zip(ours, theirs, strict=True)) <= REFERENCE_LIMIT


def test_equal_texts_with_other_adapters_are_not_one() -> None:
    ids = np.arange(3, dtype=np.int32)
    assert len({Encoded(ids, adapter=number).key for number in (None, 0, 1)}) == 3


def test_the_pieces_of_a_long_text_are_read_with_its_adapter(
    tiny: Tiny, tiny_sentence: TinySentence, folder: Path, tmp_path: Path
) -> None:
    plain = tiny_sentence(model_type="jina_embeddings_v3", pooling="mean", normalize=True)
    other = Path(shutil.copytree(plain, tmp_path / "other"))
    source = merged(tiny("jina_embeddings_v3"), tmp_path / "weights", "separation")
    shutil.copy(source / "model.safetensors", other / "model.safetensors")
    text = paragraphs(1)[0]
    with LLM(str(as_makers(plain, folder, tmp_path / "m"))) as llm, LLM(str(other)) as expected:
        ours = llm.embed(text, adapter="separation", on_long="chunk", use_tqdm=False)[0].outputs.embedding
        theirs = expected.embed(text, on_long="chunk", use_tqdm=False)[0].outputs.embedding
    assert worst_error(ours, theirs) <= REFERENCE_LIMIT


@pytest.mark.parametrize("style", [Saved(prefix="add"), Saved(format="sharded"), Saved(format="bin")], ids=str)
def test_how_weights_lie_changes_nothing(tiny: Tiny, style: Saved) -> None:
    assert_same(tiny("jina_embeddings_v3", saved=style), tiny("jina_embeddings_v3"))


def test_names_inside_transformers_are_read_too(tiny: Tiny, tmp_path: Path) -> None:
    inside = Path(shutil.copytree(tiny("jina_embeddings_v3"), tmp_path / "m"))
    AutoModel.from_pretrained(inside).save_pretrained(inside, save_original_format=False)
    assert "layers.0.self_attn.q_proj.weight" in load_file(inside / "model.safetensors")
    assert_same(inside, tiny("jina_embeddings_v3"))


def assert_same(one: Path, other: Path) -> None:
    inputs = ragged_ids(other, (3, 17, 70))
    for ours, theirs in zip(backbone(one).forward(inputs), backbone(other).forward(inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_reranker_of_the_makers_has_learned_positions(tiny: Tiny, tmp_path: Path) -> None:
    """As jina-reranker-v2: the layers of XLM-RoBERTa under other names."""
    source = tiny("xlm-roberta", head="sequence_classification", num_labels=1)
    state: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        for theirs, makers in NAMES.items():
            name = name.replace(theirs, makers)
        state[name] = tensor
    for name in [name for name in state if ".self.query." in name]:
        parts = [state.pop(name.replace("query", part)) for part in ("query", "key", "value")]
        state[name.replace("attention.self.query", "mixer.Wqkv")] = torch.cat(parts)
    says: dict[str, Any] = {"use_flash_attn": True, "position_embedding_type": "absolute"}
    made = changed(source, tmp_path / "m", **says)
    (made / "model.safetensors").unlink()
    torch.save(state, made / "pytorch_model.bin")
    reference = Reference(source)
    with LLM(str(made)) as llm:
        outs = llm.classify(TEXTS, use_activation=False, use_tqdm=False)
        theirs_S = np.stack([reference.logits(text) for text in TEXTS])
        assert worst_error([out.outputs.probs for out in outs], theirs_S) <= REFERENCE_LIMIT


NAMES = {
    "encoder.layer.": "encoder.layers.",
    "embeddings.LayerNorm": "emb_ln",
    "attention.output.dense": "mixer.out_proj",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    "output.LayerNorm": "norm2",
}


def test_a_plain_xlm_roberta_is_not_one_of_these(tiny: Tiny) -> None:
    assert models.find(read_json(tiny("xlm-roberta") / "config.json")).Model is roberta.Model


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "positions": ({"position_embedding_type": "alibi"}, "position_embedding_type='alibi'"),
    "part of a head": ({"rotary_emb_dim": 6}, "rotary_emb_dim=6"),
    "neighbours as pairs": ({"rotary_emb_interleaved": True}, "rotary_emb_interleaved"),
    "texts for other adapters": ({"task_instructions": {"clustering": "x"}}, "task_instructions"),
    "a rank of 0": ({"lora_rank": 0}, "lora_rank=0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_config_says_and_we_do_not_do_stops_the_start(tiny: Tiny, name: str) -> None:
    says, message = REFUSED[name]
    raw = makers_config(read_json(tiny("jina_embeddings_v3") / "config.json"), **says)
    with pytest.raises(CheckpointError, match=message):
        models.find(raw).Config.from_hf(raw)


def test_adapters_that_are_not_trained_are_not_there(tiny: Tiny) -> None:
    native = read_json(tiny("jina_embeddings_v3") / "config.json")
    found = xlm_roberta_flash.Config.from_hf(makers_config(native, load_trained_adapters=False))
    assert (found.nature.adapters, found.shape.adapters) == ((), None)
    assert found == xlm_roberta_flash.Config.from_hf(native)
