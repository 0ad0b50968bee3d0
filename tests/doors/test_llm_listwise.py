"""A reranker that reads a query and all its documents in one prompt, as jina-reranker-v3 does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from cenote import LLM
from cenote.errors import BadInput, CheckpointError, TooLong
from support.fixtures import Tiny
from support.parity import BATCH_LIMIT, REFERENCE_LIMIT
from support.references import EXACT, Float32, worst_error
from support.rerankers import LISTED, listwise, reranker

QUERY = "Which fox is <|rerank_token|>red?"
DOCUMENTS = ["A red fox.", "", "The cat <|embed_token|>sleeps; it is grey.", "yes no yes"]


def written(query: str, documents: Sequence[str], told: str = "") -> str:
    """The prompt, line by line."""
    query = query.replace("<|rerank_token|>", "")
    lines = [
        "<|im_start|>system",
        "You are a search relevance expert who can determine a ranking of the passages based on how relevant they are "
        "to the query. If the query is a question, how relevant a passage is depends on how well it answers the "
        "question. If not, try to analyze the intent of the query and assess how well each passage satisfies the "
        "intent. If an instruction is provided, you should follow the instruction when determining the ranking."
        "<|im_end|>",
        "<|im_start|>user",
        f"I will provide you with {len(documents)} passages, each indicated by a numerical identifier. Rank the "
        f"passages based on their relevance to query: {query}",
    ]
    if told:
        lines += ["<instruct>", told, "</instruct>"]
    for number, document in enumerate(documents):
        document = document.replace("<|embed_token|>", "")
        lines += [f'<passage id="{number}">', f"{document}<|embed_token|>", "</passage>"]
    lines += ["<query>", f"{query}<|rerank_token|>", "</query><|im_end|>", "<|im_start|>assistant"]
    return "\n".join([*lines, "<think>", "", "</think>", "", ""])


@pytest.fixture(scope="module")
def folder(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return listwise(tiny("qwen3", max_positions=900), tmp_path_factory.mktemp("listwise") / "m")


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder)) as made:
        yield made


def rows(folder: Path, tiny: Tiny, prompt: str) -> Float32:
    """Vectors of the tokens after the documents, then of that after the query."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")["input_ids"]
    model = AutoModel.from_pretrained(tiny("qwen3", max_positions=900), **EXACT).eval()
    state = load_file(folder / "model.safetensors")
    with torch.inference_mode():
        hidden = model(ids).last_hidden_state[0]
        inner = torch.relu(hidden @ state["projector.0.weight"].T) @ state["projector.2.weight"].T
    places = [inner[ids[0] == tokenizer.convert_tokens_to_ids(token)] for token in LISTED]
    found: Float32 = torch.cat(places).numpy()
    return found


def expected(folder: Path, tiny: Tiny, query: str, documents: Sequence[str], told: str = "") -> Float32:
    found = torch.from_numpy(rows(folder, tiny, written(query, documents, told)))
    assert len(found) == len(documents) + 1
    scores: Float32 = F.cosine_similarity(found[:-1], found[-1:]).numpy()
    return scores


def scores(llm: LLM, query: Any, documents: Any, **more: Any) -> list[float]:
    return [out.outputs.score for out in llm.score(query, documents, use_tqdm=False, **more)]


def test_a_query_and_its_documents_are_one_prompt(llm: LLM, folder: Path, tiny: Tiny) -> None:
    assert llm.get_supported_tasks() == ("token_embed",)
    assert llm.recipe.embedding_size == 28
    outs = llm.score(QUERY, DOCUMENTS, use_tqdm=False)
    theirs = expected(folder, tiny, QUERY, DOCUMENTS)
    assert worst_error([out.outputs.score for out in outs], theirs) <= REFERENCE_LIMIT
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = tokenizer(written(QUERY, DOCUMENTS), add_special_tokens=False)["input_ids"]
    assert [out.prompt_token_ids for out in outs] == [ids] * len(DOCUMENTS)
    ranked = llm.rerank(QUERY, DOCUMENTS, use_tqdm=False)
    assert [one.index for one in ranked] == np.argsort(-theirs, kind="stable").tolist()


def test_pairs_are_prompts_of_their_own(llm: LLM, folder: Path, tiny: Tiny) -> None:
    queries = [QUERY, "What sleeps?", "a"]
    ours = scores(llm, queries, DOCUMENTS[:3])
    theirs = [expected(folder, tiny, query, [document])[0] for query, document in zip(queries, DOCUMENTS, strict=False)]
    assert worst_error(ours, theirs) <= REFERENCE_LIMIT
    alone = [scores(llm, query, document)[0] for query, document in zip(queries, DOCUMENTS, strict=False)]
    assert worst_error(ours, alone) <= BATCH_LIMIT
    # Another document beside it makes another score.
    assert abs(scores(llm, QUERY, DOCUMENTS)[0] - ours[0]) > 1e-4


def test_an_instruction_stands_in_the_prompt(llm: LLM, folder: Path, tiny: Tiny) -> None:
    theirs = expected(folder, tiny, QUERY, DOCUMENTS, "Be kind.")
    for more in ({"instruction": "Be kind."}, {"template_kwargs": {"instruction": "Be kind."}}):
        assert worst_error(scores(llm, QUERY, DOCUMENTS, **more), theirs) <= REFERENCE_LIMIT
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"chat_template": "{{ messages }}"}, "chat_template was given"),
        ({"template_kwargs": {"tone": "kind"}}, r"template_kwargs has \['tone'\]"),
        ({"query_input_type": "query"}, "query_input_type was given"),
    )
    for more, message in refused:
        with pytest.raises(BadInput, match=message):
            scores(llm, QUERY, DOCUMENTS, **more)


def test_tokens_of_a_prompt_have_the_rows_that_are_scored(llm: LLM, folder: Path, tiny: Tiny) -> None:
    prompt = written(QUERY, DOCUMENTS)
    (out,) = llm.encode([prompt], pooling_task="token_embed", add_special_tokens=False, use_tqdm=False)
    assert worst_error(out.outputs.data, rows(folder, tiny, prompt)) <= REFERENCE_LIMIT


def test_a_prompt_is_never_cut(llm: LLM) -> None:
    long = ["word " * 900, "a"]
    for more in ({}, {"truncate_prompt_tokens": -1}):
        with pytest.raises((TooLong, BadInput)):
            scores(llm, QUERY, long, **more)
    assert len(scores(llm, QUERY, long, max_tokens_per_doc=20)) == 2


def test_a_vocabulary_without_its_tokens_stops_the_start(tiny: Tiny, tmp_path: Path) -> None:
    folder = reranker(tiny("qwen3"), tmp_path / "m", architectures=["JinaForRanking"])
    with pytest.raises(CheckpointError, match=r"lacks one of <\|embed_token\|>"):
        LLM(str(folder))
