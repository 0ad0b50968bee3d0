"""Sentence-Transformers folders: both generations are one model, and every option changes the vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from support.checkpoints import MODEL_TYPES
from support.fixtures import TinySentence
from support.references import ragged_ids, reference_hidden, reference_vectors, worst_error
from support.saving import Saved, hub_cache
from support.sentence_folders import POOLING_MODES, Dense, sentence_transformer
from support.texts import corpus, edge_texts, paragraphs, short_texts

PROMPTS = {"query": "Find what answers: ", "document": "Document: "}
TEXTS = [*short_texts(6), *edge_texts()]

FORMS: dict[str, dict[str, Any]] = {
    **{mode: {"pooling": mode} for mode in POOLING_MODES},
    "three modes": {"pooling": ["cls", "mean", "lasttoken"]},
    "all modes": {"pooling": list(POOLING_MODES), "normalize": True},
    "dense": {"dense": Dense()},
    "dense half": {"dense": Dense(dtype="float16")},
    "dense identity": {"dense": Dense(out_features=91, activation="Identity", bias=False)},
    "layer norm": {"layer_norm": True},
    "everything": {
        "pooling": ["cls", "mean"],
        "dense": Dense(activation="GELU"),
        "layer_norm": True,
        "normalize": True,
        "max_seq_length": 23,
        "do_lower_case": True,
        "prompts": PROMPTS,
        "similarity": "dot",
    },
    "default prompt": {"prompts": PROMPTS, "default_prompt_name": "query"},
    "prompt left out": {"prompts": PROMPTS, "default_prompt_name": "query", "include_prompt": False},
    "short": {"max_seq_length": 11},
    "lower case": {"do_lower_case": True},
    "cased": {"model_type": "roberta"},
    "cased, lower case": {"model_type": "roberta", "do_lower_case": True},
    "half weights": {"dtype": "float16"},
}


@pytest.mark.parametrize("form", FORMS)
def test_both_generations_give_identical_vectors(form: str, tiny_sentence: TinySentence) -> None:
    new = reference_vectors(tiny_sentence(generation="new", **FORMS[form]), TEXTS)
    old = reference_vectors(tiny_sentence(generation="old", **FORMS[form]), TEXTS)
    assert np.array_equal(new, old)
    assert np.isfinite(new).all()


@pytest.mark.parametrize("generation", ["old", "new"])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_family_in_every_generation(model_type: str, generation: str, tiny_sentence: TinySentence) -> None:
    rows = reference_vectors(tiny_sentence(model_type=model_type, generation=generation, pooling="mean"), TEXTS)
    assert rows.shape == (len(TEXTS), 60)
    assert rows.dtype == np.float32


def test_every_form_is_another_model(tiny_sentence: TinySentence) -> None:
    text = [TEXTS[0]]
    plain = [reference_vectors(tiny_sentence(pooling=mode), text) for mode in POOLING_MODES]
    for form in ("dense", "layer norm", "default prompt", "prompt left out", "short", "cased", "cased, lower case"):
        plain.append(reference_vectors(tiny_sentence(**FORMS[form]), text))
    for i, a in enumerate(plain):
        assert all(a.shape != b.shape or worst_error(a, b) > 1e-3 for b in plain[:i])


def test_old_files_say_it_the_old_way(tiny_sentence: TinySentence) -> None:
    folder = tiny_sentence(generation="old", **FORMS["everything"])
    assert json.loads((folder / "sentence_bert_config.json").read_text()) == {
        "max_seq_length": 23,
        "do_lower_case": True,
    }
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert pooling["word_embedding_dimension"] == 60
    assert [key for key, value in pooling.items() if value is True] == [
        "pooling_mode_cls_token",
        "pooling_mode_mean_tokens",
        "include_prompt",
    ]
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 70
    assert not list((folder / "4_Normalize").iterdir())
    types = [entry["type"] for entry in json.loads((folder / "modules.json").read_text())]
    kinds = ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize")
    assert types == [f"sentence_transformers.models.{kind}" for kind in kinds]
    assert "model_type" not in json.loads((folder / "config_sentence_transformers.json").read_text())


def test_new_files_are_the_library_s_own(tiny_sentence: TinySentence) -> None:
    folder = tiny_sentence(generation="new", **FORMS["everything"])
    assert "max_seq_length" not in json.loads((folder / "sentence_bert_config.json").read_text())
    assert json.loads((folder / "1_Pooling" / "config.json").read_text())["pooling_mode"] == ["cls", "mean"]
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 23
    assert (folder / "4_Normalize" / "config.json").is_file()
    settings = json.loads((folder / "config_sentence_transformers.json").read_text())
    assert settings["model_type"] == "SentenceTransformer"
    assert settings["similarity_fn_name"] == "dot"


def test_an_old_folder_refuses_an_order_that_it_cannot_say(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give \\['mean', 'cls'\\] in that order"):
        sentence_transformer(tmp_path, generation="old", pooling=["mean", "cls"])


def test_dense_weights_are_stored_in_their_own_dtype(tiny_sentence: TinySentence) -> None:
    folder = tiny_sentence(**FORMS["dense half"])
    weights = load_file(folder / "2_Dense" / "model.safetensors")
    assert weights["linear.weight"].dtype == np.float16
    assert weights["linear.weight"].std() > 0.15
    assert weights["linear.bias"].std() > 0.05


@pytest.mark.parametrize("generation", ["old", "new"])
def test_other_ways_of_saving_keep_the_vectors(generation: str, tiny_sentence: TinySentence, tmp_path: Path) -> None:
    form: dict[str, Any] = {"generation": generation, "dense": Dense(), "normalize": True}
    expected = reference_vectors(tiny_sentence(**form), TEXTS)
    linked = hub_cache(tiny_sentence(**form), tmp_path / "cache")
    assert np.array_equal(reference_vectors(linked, TEXTS), expected)
    for saved in (Saved(format="sharded"), Saved(format="bin"), Saved(prefix="add", position_ids=True)):
        assert np.array_equal(reference_vectors(tiny_sentence(saved=saved, **form), TEXTS), expected)


def test_padding_moves_the_reference_by_rounding_alone(tiny_sentence: TinySentence) -> None:
    folder = tiny_sentence(pooling="mean")
    single = reference_vectors(folder, TEXTS)
    padded = reference_vectors(folder, TEXTS, batch_size=8)
    assert all(worst_error(a, b) < 1e-5 for a, b in zip(padded, single, strict=True))


def test_reference_vectors_take_the_options_of_encode(tiny_sentence: TinySentence) -> None:
    folder = tiny_sentence(prompts=PROMPTS)
    named = reference_vectors(folder, TEXTS[:2], prompt_name="query")
    assert np.array_equal(named, reference_vectors(folder, [PROMPTS["query"] + text for text in TEXTS[:2]]))
    unit = reference_vectors(folder, TEXTS[:2], normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-6)


def test_the_vector_is_pooled_from_the_hidden_states(tiny_sentence: TinySentence) -> None:
    folder = tiny_sentence(pooling="cls")
    hidden = reference_hidden(folder, [([2, 100, 101, 3], None)])
    assert hidden[0].shape == (4, 60)
    assert ragged_ids(folder) == ragged_ids(folder)
    assert ragged_ids(folder, seed=1) != ragged_ids(folder)


def test_texts_are_many_different_and_real() -> None:
    for texts in (short_texts(1500), paragraphs(300)):
        assert len(set(texts)) == len(texts)
    assert all(text.split()[0] in corpus() for text in short_texts(20))
    assert min(map(len, paragraphs(300))) >= 600
    assert edge_texts()[0] == ""
    with pytest.raises(ValueError, match="ask for fewer"):
        paragraphs(10**6)
