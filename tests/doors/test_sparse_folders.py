"""SparseEncoder folders through the offline API, against the library that saved them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from cenote import LLM
from cenote.errors import CheckpointError, UnknownModule, UnsupportedTask, WeightMismatch
from support.references import Float32
from support.rows import BATCH_LIMIT, assert_equal
from support.saving import read_json, write_json
from support.sentence_folders import Generation
from support.sparse import dense, sparse_encoder
from support.sparse_folders import PROMPTS, sparse_folder
from support.texts import short_texts

TEXTS = [*short_texts(6), "the the \u16a0", "a " * 90]
CUT: dict[str, Any] = {"use_tqdm": False, "tokenization_kwargs": {"truncate_prompt_tokens": -1}}

Folder = Callable[..., Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """`folder("router")`: the folder of a kind; made once for equal arguments."""
    made: dict[str, Path] = {}

    def make(kind: str, generation: Generation = "new", **settings: Any) -> Path:
        key = repr((kind, generation, settings))
        if key not in made:
            made[key] = sparse_folder(tmp_path_factory.mktemp("sparse"), kind, generation, **settings)
        return made[key]

    return make


def reference(folder: Path, kind: str | None = None, **more: Any) -> Float32:
    """`encode`, `encode_query` or `encode_document` of each text alone, as dense rows `[N, V]`."""
    encoder = sparse_encoder(folder)
    encode = {"query": encoder.encode_query, "document": encoder.encode_document}.get(kind or "", encoder.encode)
    return np.asarray(encode(TEXTS, batch_size=1, show_progress_bar=False, **more).to_dense(), np.float32)


@pytest.mark.parametrize(
    ("kind", "generation"),
    [
        ("splade", "new"),
        ("splade, sum", "old"),
        ("words", "new"),
        ("router", "new"),
        ("router", "old"),
        ("code", "new"),
        ("code of unit rows", "new"),
    ],
)
def test_rows_equal_the_reference(folder: Folder, kind: str, generation: Generation) -> None:
    where = folder(kind, generation)
    with LLM(str(where)) as llm:
        assert llm.recipe.default_task == "sparse"
        for input_type in ("query", "document", None):
            together = dense(llm.embed_sparse(TEXTS, input_type=input_type, **CUT))
            expected = reference(where, input_type)
            assert_equal(together, expected)
            if not kind.startswith("code"):  # whose k-th and next value may be as close as rounding
                alone = [dense(llm.embed_sparse(text, input_type=input_type, **CUT))[0] for text in TEXTS]
                assert_equal(alone, list(together), BATCH_LIMIT)
        asked = llm.encode_query(TEXTS, **CUT)
        assert_equal([out.outputs.data.to_dense().numpy() for out in asked], list(reference(where, "query")))


def test_queries_of_a_router_need_no_model(folder: Folder) -> None:
    with LLM(str(folder("router"))) as llm:
        llm.embed_sparse(TEXTS, input_type="query", **CUT)
        assert llm.engine.snapshot().batches == 0
        llm.embed_sparse(TEXTS, input_type="document", **CUT)
        assert llm.engine.snapshot().batches > 0
        (found,) = llm.embed_sparse("the cat sat on the mat", input_type="query", prompt="", **CUT)
        assert found.outputs.tokens is not None
        assert not {"[CLS]", "[SEP]"} & set(found.outputs.tokens)


def test_what_a_router_scores_is_a_query_and_a_document(folder: Folder) -> None:
    where = folder("router", similarity_fn_name="cosine")
    expected = sparse_encoder(where).similarity(reference(where, "query")[:1], reference(where, "document"))
    with LLM(str(where)) as llm:
        scores = [out.outputs.score for out in llm.score(TEXTS[0], TEXTS, **CUT)]
    assert_equal([scores], expected.numpy())


def test_weights_of_words_may_stand_in_a_list(folder: Folder, tmp_path: Path) -> None:
    where = _copied(folder("words"), tmp_path)
    weights = {"the": 2.5, "a": 0.25, "no such word": 7.0}
    (where / "model.safetensors").unlink()
    write_json(where / "idf.json", weights)
    write_json(where / "config.json", {"frozen": True, "path": str(where / "idf.json")})
    with LLM(str(where)) as llm:
        found = dense(llm.embed_sparse(TEXTS, **CUT))
    assert np.array_equal(found, reference(where))
    assert set(np.unique(found)) == {0.0, 0.25, 2.5, 7.0}


@pytest.mark.parametrize(("kind", "top_k"), [("splade", 9), ("code", 4)])
def test_a_request_keeps_fewer_values(folder: Folder, kind: str, top_k: int) -> None:
    where = folder(kind, max_active_dims=13)
    with LLM(str(where)) as llm:
        assert_equal(dense(llm.embed_sparse(TEXTS, **CUT)), reference(where))
        assert_equal(dense(llm.embed_sparse(TEXTS, top_k=top_k, **CUT)), reference(where, max_active_dims=top_k))
        if kind == "splade":
            assert_equal(dense(llm.embed_sparse(TEXTS, top_k=40, **CUT)), reference(where, max_active_dims=40))
        else:
            assert llm.get_supported_tasks() == ("embed", "token_embed", "sparse")
            assert llm.embed_sparse("a", **CUT)[0].outputs.tokens is None


def test_a_fingerprint_tells_weights_of_words_and_steps_apart(folder: Folder, tmp_path: Path) -> None:
    found = []
    for kind in ("splade", "splade, sum", "router", "words", "code"):
        with LLM(str(folder(kind))) as llm:
            found.append(llm.fingerprint)
    where = _copied(folder("router"), tmp_path)
    path = where / "query_0_SparseStaticEmbedding" / "model.safetensors"
    save_file({"weight": load_file(path)["weight"] * 2}, path)
    with LLM(str(where)) as llm:
        found.append(llm.fingerprint)
    assert len(set(found)) == len(found)


def test_what_is_no_embedder_says_so(folder: Folder) -> None:
    with LLM(str(folder("splade"))) as llm, pytest.raises(UnsupportedTask, match="Embedding API is not supported"):
        llm.embed("a")


def _set(name: str, **values: Any) -> Callable[[Path], None]:
    return lambda where: write_json(where / name, read_json(where / name) | values)


def _no_head(where: Path) -> None:
    state = load_file(where / "model.safetensors")
    body = {name: tensor for name, tensor in state.items() if not name.startswith("cls.")}
    save_file(body, where / "model.safetensors", metadata={"format": "pt"})


def _other_words(where: Path) -> None:
    path = where / "query_0_SparseStaticEmbedding" / "tokenizer.json"
    raw = read_json(path)
    raw["normalizer"]["lowercase"] = not raw["normalizer"]["lowercase"]
    path.write_text(json.dumps(raw), encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "change", "error", "message"),
    [
        ("splade", _set("1_SpladePooling/config.json", pooling_strategy="mean"), CheckpointError, "'mean' and"),
        ("splade", _set("1_SpladePooling/config.json", other=1), UnknownModule, "other=1"),
        ("splade", _set("sentence_bert_config.json", transformer_task="feature-extraction"), CheckpointError, "lists"),
        ("splade", _no_head, CheckpointError, "no masked-language-model head is stored"),
        ("words", _set("config.json", path="idf.json"), CheckpointError, "names 'idf.json', which is not there"),
        ("words", lambda where: save_file({}, where / "model.safetensors"), WeightMismatch, "A weight for each word"),
        ("router", _set("router_config.json", structure={"query": []}), CheckpointError, r"the routes \['document'\]"),
        (
            "router",
            _set("router_config.json", parameters={"route_mappings": {"('query', None)": "document"}}),
            UnknownModule,
            "has routes .* and mappings",
        ),
        ("router", _other_words, CheckpointError, "make other tokens of a text"),
        ("code", _set("2_SparseAutoEncoder/config.json", hidden_dim=9), WeightMismatch, r"latent_bias of SparseCode"),
    ],
)
def test_what_is_refused(
    folder: Folder, tmp_path: Path, kind: str, change: Callable[[Path], None], error: type[Exception], message: str
) -> None:
    where = _copied(folder(kind), tmp_path)
    change(where)
    with pytest.raises(error, match=message):
        LLM(str(where))


def _copied(where: Path, to: Path) -> Path:
    import shutil

    return Path(shutil.copytree(where, to / "copy"))


def test_prompts_go_before_queries_and_documents(folder: Folder) -> None:
    with LLM(str(folder("splade"))) as llm:
        asked = llm.embed_sparse(TEXTS[0], input_type="query", **CUT)[0]
        said = llm.embed_sparse(PROMPTS["query"] + TEXTS[0], **CUT)[0]
        assert asked.prompt_token_ids == said.prompt_token_ids
