"""Models without a transformer against sentence-transformers, in both generations; texts without a token too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from cenote import LLM, PoolerConfig
from cenote.errors import BadInput, CheckpointError, ConfigError, TooLong
from support.parity import BATCH_LIMIT, REFERENCE_LIMIT
from support.references import reference_vectors
from support.saving import read_json, write_json
from support.texts import paragraphs, short_texts
from support.word_models import MODELS, TEXTS, WIDTH, save_model2vec, save_words

LONG = " ".join(paragraphs(3)) * 20
ALL = [*TEXTS, *short_texts(5), LONG, TEXTS[0]]


def embed(llm: LLM, texts: Any, **more: Any) -> Any:
    return llm.embed(texts, output="numpy", use_tqdm=False, **more)


def assert_equal(ours: Any, theirs: Any, limit: float) -> None:
    """As `worst_error`, but that a row may be zero."""
    assert ours.shape == theirs.shape
    assert (np.abs(ours - theirs).max(1) <= limit * np.abs(theirs).max(1)).all()


@pytest.mark.parametrize("generation", ["old", "new"])
@pytest.mark.parametrize("name", MODELS)
def test_rows_equal_the_reference(tmp_path: Path, name: str, generation: Any) -> None:
    folder = save_words(tmp_path / "m", name, generation)
    texts = ALL[:-2] if "transformer" in name else ALL
    with LLM(str(folder), dtype="float32") as llm:
        rows = embed(llm, texts)
        assert_equal(rows, reference_vectors(folder, texts), REFERENCE_LIMIT)
        assert_equal(np.concatenate([embed(llm, text) for text in TEXTS]), rows[: len(TEXTS)], BATCH_LIMIT)
        assert np.array_equal(*embed(llm, [texts[0], texts[0]]))
        pools_once = llm.recipe.pooling is not None and len(llm.recipe.pooling.modes) == 1
        assert llm.get_supported_tasks() == (("embed", "token_embed") if pools_once else ("embed",))


def test_a_prompt_counts_as_text(tmp_path: Path) -> None:
    folder = save_words(tmp_path / "m", "static", prompts={"q": "Find: "}, default_prompt_name="q")
    with LLM(str(folder)) as llm:
        assert_equal(embed(llm, ALL), reference_vectors(folder, ALL), REFERENCE_LIMIT)


def test_words_of_a_prompt_count_whatever_the_pooling_says(tmp_path: Path) -> None:
    folder = save_words(tmp_path / "m", "words", prompts={"q": "the house: "})
    config = folder / "1_Pooling" / "config.json"
    write_json(config, read_json(config) | {"include_prompt": False})
    with LLM(str(folder)) as llm:
        assert_equal(embed(llm, ALL, prompt_name="q"), reference_vectors(folder, ALL, prompt_name="q"), REFERENCE_LIMIT)


def test_a_bag_has_no_other_pooling(tmp_path: Path) -> None:
    folder = save_words(tmp_path / "m", "static")
    with pytest.raises(ConfigError, match=r"seq_pooling_type is given, but .* makes one row per text by itself"):
        LLM(str(folder), pooler_config=PoolerConfig(seq_pooling_type="MAX"))
    with LLM(str(folder)) as llm, pytest.raises(BadInput, match="pooling='max'"):
        embed(llm, "x", pooling="max")


def test_lengths(tmp_path: Path) -> None:
    with LLM(str(save_words(tmp_path / "static", "static"))) as llm:
        (out,) = llm.embed(LONG, use_tqdm=False)
        assert len(out.prompt_token_ids) > 5000
        assert (out.prompt_token_ids, llm.recipe.sources["max_len"]) == (
            Tokenizer.from_file(str(tmp_path / "static/tokenizer.json")).encode(LONG, add_special_tokens=False).ids,
            "the architecture: texts of any length",
        )
        assert llm.embed("", use_tqdm=False)[0].prompt_token_ids == []
    folder = save_words(tmp_path / "words", "words")
    config = folder / "wordembedding_config.json"
    write_json(config, read_json(config) | {"max_seq_length": 3})
    with LLM(str(folder)) as llm:
        with pytest.raises(TooLong, match="maximum context length is 3"):
            embed(llm, TEXTS[0])
        cut = {"truncate_prompt_tokens": -1}
        assert_equal(
            embed(llm, list(TEXTS), tokenization_kwargs=cut), reference_vectors(folder, TEXTS), REFERENCE_LIMIT
        )


def test_a_model2vec_folder_with_modules(tmp_path: Path) -> None:
    folder = save_model2vec(tmp_path / "m", listed=True)
    with LLM(str(folder)) as llm:
        assert_equal(embed(llm, ALL), reference_vectors(folder, ALL), REFERENCE_LIMIT)


@pytest.mark.parametrize("normalize", [True, False])
def test_a_model2vec_folder_alone_leaves_unknown_tokens_out(tmp_path: Path, normalize: bool) -> None:
    folder = save_model2vec(tmp_path / "m", listed=False, normalize=normalize)
    stored = load_file(folder / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = [*TEXTS, "\N{SNOWMAN} x \N{SNOWMAN}"]
    expected = np.zeros((len(texts), WIDTH))
    for row, text in zip(expected, texts, strict=True):
        ids = [i for i in tokenizer.encode(text, add_special_tokens=False).ids if i != tokenizer.token_to_id("[UNK]")]
        if ids:
            row += (stored["embeddings"][stored["mapping"][ids]] * stored["weights"][ids, None]).mean(0)
        if normalize:
            row /= np.linalg.norm(row) or 1.0
    assert len(tokenizer.encode(texts[-1], add_special_tokens=False).ids) == 3
    with LLM(str(folder)) as llm:
        assert_equal(embed(llm, texts), expected, REFERENCE_LIMIT)


def test_what_such_a_model_cannot_do(tmp_path: Path) -> None:
    folder = save_words(tmp_path / "m", "words")
    with LLM(str(folder)) as llm, pytest.raises(BadInput, match="Token id 12 is out of vocabulary"):
        embed(llm, [{"prompt_token_ids": [12]}])
    config = folder / "wordembedding_config.json"
    write_json(config, read_json(config) | {"tokenizer_class": "somewhere.Splitter"})
    with pytest.raises(CheckpointError, match="tokenizer_class='Splitter'"):
        LLM(str(folder))
