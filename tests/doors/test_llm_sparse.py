"""Sparse vectors of masked language models through the offline API, against sentence-transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from cenote import LLM, AsyncLLM
from cenote.errors import BadInput, CheckpointError, UnsupportedTask
from cenote.layers import masked_lm
from cenote.types import Batch, ReadKey
from support.checkpoints import MODEL_TYPES
from support.fixtures import Tiny
from support.rows import BATCH_LIMIT, assert_equal
from support.saving import Saved
from support.sparse import dense, reference_rows, sparse_encoder
from support.texts import edge_texts, paragraphs, short_texts

TEXTS = [*short_texts(6), *edge_texts()]
CUT: dict[str, Any] = {"use_tqdm": False, "tokenization_kwargs": {"truncate_prompt_tokens": -1}}


@pytest.fixture(scope="module")
def folder(tiny: Tiny) -> Path:
    """A masked language model of BERT's."""
    return tiny("bert", head="masked_lm")


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    """It, opened."""
    with LLM(str(folder)) as opened:
        yield opened


@pytest.mark.parametrize("model_type", [*MODEL_TYPES, "modernbert"])
def test_rows_equal_the_reference(tiny: Tiny, model_type: str) -> None:
    folder = tiny(model_type, head="masked_lm")
    with LLM(str(folder)) as llm:
        assert llm.get_supported_tasks() == ("embed", "token_embed", "token_classify", "sparse")
        together = dense(llm.embed_sparse(TEXTS, **CUT))
        assert_equal(together, reference_rows(folder, TEXTS))
        assert_equal(dense(llm.embed_sparse(TEXTS[::-1], **CUT))[::-1], together, BATCH_LIMIT)
        assert_equal(dense(llm.embed_sparse(TEXTS[3], **CUT)), together[3:4], BATCH_LIMIT)


@pytest.mark.parametrize(
    ("model_type", "special"),
    [
        ("electra", {"embedding_size": 44}),
        ("bert", {"hidden_act": "relu"}),
        ("bert", {"tie_word_embeddings": False}),
        ("roberta", {"hidden_act": "relu"}),
        ("bert", {"saved": Saved(format="bin", legacy_norms=True)}),
    ],
)
def test_heads_of_every_form(tiny: Tiny, model_type: str, special: dict[str, Any]) -> None:
    folder = tiny(model_type, head="masked_lm", **special)
    with LLM(str(folder)) as llm:
        assert_equal(dense(llm.embed_sparse(TEXTS, **CUT)), reference_rows(folder, TEXTS))


def test_logits_made_in_many_blocks_are_those_made_at_once(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*short_texts(5), *paragraphs(2)]
    whole = dense(llm.embed_sparse(texts, **CUT))
    monkeypatch.setattr(masked_lm, "BLOCK_VALUES", 1)
    for num_rows in (1, 7):
        monkeypatch.setattr(masked_lm, "MIN_BLOCK_ROWS", num_rows)
        assert_equal(dense(llm.embed_sparse(texts, **CUT)), whole, BATCH_LIMIT)


def test_a_batch_may_be_read_as_vectors_of_both_kinds(llm: LLM) -> None:
    encoded = llm.engine.tokenizer.encode(short_texts(7), limit=70)
    keys = [ReadKey("sparse" if number % 3 else "embed") for number in range(7)]
    answers = {answer.seqs[0]: answer for answer in llm.engine.runner.run(Batch.pack(encoded, keys))}
    (alone,) = llm.engine.runner.run(Batch.pack([encoded[n] for n in (1, 2, 4, 5)], [ReadKey("sparse")] * 4))
    assert answers[1].seqs.tolist() == [1, 2, 4, 5]
    assert_equal(list(answers[1].rows), list(alone.rows), BATCH_LIMIT)


def test_only_the_largest_values_are_kept(llm: LLM, folder: Path) -> None:
    expected = reference_rows(folder, TEXTS, max_active_dims=9)
    assert_equal(dense(llm.embed_sparse(TEXTS, top_k=9, **CUT)), expected)
    whole = dense(llm.embed_sparse(TEXTS, **CUT))
    high = float(np.median(whole[whole > 0]))
    assert np.array_equal(dense(llm.embed_sparse(TEXTS, threshold=high, **CUT)), np.where(whole > high, whole, 0))


def test_dimensions_are_words_in_ascending_order(llm: LLM, folder: Path) -> None:
    (out,) = llm.embed_sparse("a text", top_k=20, **CUT)
    assert out.outputs.indices == sorted(set(out.outputs.indices))
    assert out.outputs.tokens is not None
    pairs = sorted(zip(out.outputs.tokens, out.outputs.values, strict=True), key=lambda pair: -pair[1])
    encoder = sparse_encoder(folder)
    decoded = encoder.decode(encoder.encode("a text", show_progress_bar=False), top_k=20)
    # The model has one word more than its tokenizer.
    assert [word for word, _ in pairs] == [word or "" for word, _ in decoded]
    assert repr(out.outputs) == f"SparseEmbeddingOutput(active=20, size={out.outputs.size})"


async def test_every_form_holds_the_same_numbers(llm: LLM, folder: Path) -> None:
    expected = dense(llm.embed_sparse(TEXTS, **CUT))
    table = llm.embed_sparse(TEXTS, output="csr", **CUT)
    assert table.dtype == np.float32
    assert np.array_equal(table.toarray(), expected)
    encoded = llm.encode(TEXTS, pooling_task="sparse", **CUT)
    assert np.array_equal([out.outputs.data.to_dense().numpy() for out in encoded], expected)
    assert encoded[0].outputs == llm.encode(TEXTS[:1], pooling_task="sparse", **CUT)[0].outputs
    async with AsyncLLM(str(folder)) as other:
        more = {"tokenization_kwargs": CUT["tokenization_kwargs"]}
        assert_equal(dense(await other.embed_sparse(TEXTS, **more)), expected, BATCH_LIMIT)
        assert_equal((await other.embed_sparse(TEXTS, output="csr", **more)).toarray(), expected, BATCH_LIMIT)


def test_a_score_is_the_dot_product(llm: LLM, folder: Path) -> None:
    query, *documents = short_texts(5)
    encoder = sparse_encoder(folder)
    first, second = (reference_rows(folder, texts) for texts in ([query], documents))
    expected = encoder.similarity(first, second)[0].numpy()
    scores = [out.outputs.score for out in llm.score(query, documents, score_type="sparse", use_tqdm=False)]
    assert_equal([scores], [expected])
    with pytest.raises(BadInput, match="dimensions was given, but sparse vectors have none"):
        llm.score(query, documents, score_type="sparse", dimensions=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k=0. It is a whole number of at least 1"),
        ({"top_k": True}, "top_k=True"),
        ({"threshold": -0.5}, "threshold=-0.5. It is a number of at least 0"),
        ({"threshold": float("nan")}, "threshold=nan"),
        ({"dimensions": 3}, "sparse has no option 'dimensions'"),
        ({"output": "numpy"}, "output='numpy'. It is objects or csr"),
        ({"prompt_name": "q"}, "has no prompt named 'q'"),
    ],
)
def test_what_cannot_be_asked_for(llm: LLM, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        llm.embed_sparse("a", **options)


def test_a_checkpoint_saved_without_its_head_is_an_embedder(tiny: Tiny, tmp_path: Path, folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    body = {name: tensor for name, tensor in state.items() if not name.startswith("cls.")}
    save_file(body, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with LLM(str(tmp_path)) as llm:
        assert llm.get_supported_tasks() == ("embed", "token_embed")
        with pytest.raises(UnsupportedTask, match="Sparse embedding API is not supported by this model"):
            llm.embed_sparse("a")
        with pytest.raises(UnsupportedTask, match="fills no masks"):
            llm.fill_mask("a [MASK]")


def test_the_references_name_asks_for_sparse_vectors_alone(tiny: Tiny, folder: Path) -> None:
    splade = {"architectures": ["BertSpladeSparseEmbeddingModel"]}
    with LLM(str(folder), hf_overrides=splade) as llm:
        assert (llm.get_supported_tasks(), llm.recipe.default_task) == (("token_classify", "sparse"), "sparse")
        assert_equal(dense(llm.embed_sparse(TEXTS, **CUT)), reference_rows(folder, TEXTS))
        assert [out.outputs.score for out in llm.score("a", "a text", use_tqdm=False)] > [0.0]
    with pytest.raises(CheckpointError, match="no masked-language-model head is stored"):
        LLM(str(tiny("bert")), hf_overrides=splade)
