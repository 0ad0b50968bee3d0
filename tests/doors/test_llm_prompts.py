"""Which prompt goes before a text, against sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from cenote import LLM, AsyncLLM
from cenote.errors import BadInput, CheckpointError
from cenote.prompting import INPUT_TYPES
from cenote.recipe import Recipe
from support.classifiers import changed
from support.fixtures import TinySentence
from support.references import EXACT, reference_vectors
from support.rows import assert_equal
from support.texts import short_texts

TEXTS = short_texts(3)
PROMPTS = [
    {},
    {"query": "q: ", "document": "d: "},
    {"query": "q: ", "corpus": "c: ", "passage": "p: "},
    {"passage": "p: ", "document": "d: ", "other": "o: "},
    {"query": "", "document": ""},
]


def rows(llm: LLM, **more: Any) -> Any:
    return llm.embed(TEXTS, output="numpy", use_tqdm=False, **more)


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("prompts", PROMPTS, ids=lambda prompts: "-".join(prompts) or "none")
def test_queries_and_documents_are_those_of_the_reference(
    tiny_sentence: TinySentence, prompts: dict[str, str], default: bool
) -> None:
    if default and not prompts:
        return
    name = list(prompts)[-1] if default else None
    folder = tiny_sentence(prompts=prompts, default_prompt_name=name)
    theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True, model_kwargs=dict(EXACT))
    with LLM(str(folder)) as llm:
        queries, documents = (encode(TEXTS, batch_size=1) for encode in (theirs.encode_query, theirs.encode_document))
        assert_equal(llm.embed_query(TEXTS, output="numpy", use_tqdm=False), queries)
        assert_equal(llm.embed_document(TEXTS, output="numpy", use_tqdm=False), documents)
        assert_equal([out.outputs.embedding for out in llm.embed_query(TEXTS, use_tqdm=False)], queries)
        mine = llm.embed_query(TEXTS, prompt="mine: ", output="numpy", use_tqdm=False)
        assert_equal(mine, theirs.encode_query(TEXTS, prompt="mine: ", batch_size=1))


def test_a_prompt_with_a_text_comes_before_an_empty_one(tiny_sentence: TinySentence) -> None:
    # sentence-transformers adds an empty `document` to what it saves.
    folder = tiny_sentence(prompts={"query": "q: ", "passage": "p: "})
    with LLM(str(folder)) as llm:
        assert llm.recipe.prompts["document"] == ""
        for input_type, prompt in (("search_document", "p: "), ("passage", "p: "), ("document", "")):
            assert_equal(rows(llm, input_type=input_type), reference_vectors(folder, TEXTS, prompt=prompt))


async def test_they_can_be_awaited(tiny_sentence: TinySentence) -> None:
    folder = tiny_sentence(prompts=PROMPTS[1])
    async with AsyncLLM(str(folder)) as llm:
        queries = await llm.embed_query(TEXTS, output="numpy")
        documents = await llm.embed_document(TEXTS, output="numpy")
    assert_equal(queries, reference_vectors(folder, TEXTS, prompt="q: "))
    assert_equal(documents, reference_vectors(folder, TEXTS, prompt="d: "))


def test_a_type_of_input_chooses_a_prompt(
    tiny_sentence: TinySentence, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # What sentence-transformers saves has a prompt `document` always, if only an empty one.
    prompts = {"query": "q: ", "passage": "p: ", "cluster": "c: "}
    file = "config_sentence_transformers.json"
    folder = changed(tiny_sentence(), tmp_path / "m", file, prompts=prompts, default_prompt_name="cluster")
    expected = {prompt: reference_vectors(folder, TEXTS, prompt=prompt) for prompt in ("q: ", "p: ", "c: ", "")}
    with LLM(str(folder)) as llm:
        for input_type, names in INPUT_TYPES.items():
            assert_equal(rows(llm, input_type=input_type), expected["q: " if "query" in names else "p: "])
        assert_equal(rows(llm, input_type="SEARCH_QUERY"), expected["q: "])
        assert_equal(rows(llm, input_type="cluster"), expected["c: "])
        assert_equal(rows(llm, input_type="query", prompt_name="passage"), expected["p: "])
        assert_equal(rows(llm), expected["c: "])
        assert "cenote" not in {record.name.partition(".")[0] for record in caplog.records}
        for _ in range(2):
            assert_equal(rows(llm, input_type="classification"), expected[""])
    assert caplog.text.count("knows no input_type 'classification'") == 1


def test_the_log_says_once_that_no_prompt_was_chosen(
    tiny_sentence: TinySentence, caplog: pytest.LogCaptureFixture
) -> None:
    said = "has prompts (query) and texts came without one"
    with LLM(str(tiny_sentence(prompts={"query": "q: ", "document": ""}, seed=1))) as llm:
        llm.embed_query(TEXTS)
        llm.embed_document(TEXTS)
        llm.embed(TEXTS, prompt="")
        assert said not in caplog.text
        llm.embed(TEXTS)
        llm.embed(TEXTS)
    assert caplog.text.count(said) == 1
    for folder in (
        tiny_sentence(prompts={"query": ""}),
        tiny_sentence(prompts=PROMPTS[1], default_prompt_name="query"),
    ):
        with LLM(str(folder)) as llm:
            llm.embed(TEXTS)
    assert caplog.text.count("came without one") == 1


def test_task_instructions_of_the_config_are_prompts_and_win(tiny_sentence: TinySentence, tmp_path: Path) -> None:
    source = tiny_sentence(prompts={"query": "q: ", "passage": "p: "})
    folder = changed(source, tmp_path / "m", task_instructions={"query": "find: ", "cluster": "group: "})
    with LLM(str(folder)) as llm:
        found: Recipe = llm.recipe
        assert {**found.prompts, "document": ""} == {
            "query": "find: ",
            "document": "",
            "passage": "p: ",
            "cluster": "group: ",
        }
        assert found.sources["prompts"] == "config_sentence_transformers.json, config.json: task_instructions"
        assert_equal(llm.embed_query(TEXTS, output="numpy"), reference_vectors(source, TEXTS, prompt="find: "))
        with pytest.raises(BadInput, match="has no prompt named 'find'"):
            llm.embed(TEXTS, prompt_name="find")
    with pytest.raises(CheckpointError, match=r"task_instructions=.*Names and texts"):
        LLM(str(changed(source, tmp_path / "bad", task_instructions={"query": 3})))


def test_a_prompt_that_is_left_out_of_the_pooling_stays_out(tiny_sentence: TinySentence) -> None:
    prompts = {"query": "a long instruction: "}
    kept, left_out = (tiny_sentence(prompts=prompts, include_prompt=include) for include in (True, False))
    with LLM(str(left_out)) as llm:
        found = llm.embed_query(TEXTS, output="numpy")
    assert_equal(found, reference_vectors(left_out, TEXTS, prompt_name="query"))
    assert np.abs(found - reference_vectors(kept, TEXTS, prompt_name="query")).max() > 1e-3
