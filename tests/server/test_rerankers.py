"""A language model that reranks behind a real server: its prompt is built in, and an instruction reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.parity import REFERENCE_LIMIT
from support.references import worst_error
from support.rerankers import reranker

from .conftest import Kind, serving

if TYPE_CHECKING:
    from support.fixtures import Tiny

QUERY, DOCUMENTS = "What is true?", ["An object is true.", "yes", "Nothing is."]


@pytest.fixture(scope="module")
def kind(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kind]:
    """A tiny Qwen3-Reranker."""
    source = tiny("qwen3", head="causal_lm", max_positions=700, tie_word_embeddings=True)
    folder: Path = reranker(source, tmp_path_factory.mktemp("served") / "Qwen3-Reranker-0.6B")
    yield from serving("qwen", folder)


def test_scores_and_rankings_are_those_of_the_offline_api(kind: Kind) -> None:
    for more in ({}, {"instruction": "Be kind."}):
        expected = [out.outputs.score for out in kind.llm.score(QUERY, DOCUMENTS, use_tqdm=False, **more)]
        scored = kind.post("/score", text_1=QUERY, text_2=DOCUMENTS, **more)
        assert worst_error([item["score"] for item in scored.json()["data"]], expected) <= REFERENCE_LIMIT
        ranked = kind.post("/rerank", query=QUERY, documents=DOCUMENTS, **more)
        by_index = {item["index"]: item["relevance_score"] for item in ranked.json()["results"]}
        assert worst_error([by_index[index] for index in range(3)], expected) <= REFERENCE_LIMIT
        assert "x-ignored-fields" not in scored.headers
    told = kind.post("/score", text_1=QUERY, text_2=DOCUMENTS, chat_template_kwargs={"instruction": "Be kind."})
    assert worst_error([item["score"] for item in told.json()["data"]], expected) <= REFERENCE_LIMIT


def test_a_document_that_is_too_long_is_cut_or_refused(kind: Kind) -> None:
    long = "An object is true. " * 300
    assert kind.ask("/score", text_1=QUERY, text_2=long).status_code == 400
    cut = kind.post("/score", text_1=QUERY, text_2=long, truncate_prompt_tokens=-1)
    (out,) = kind.llm.score(QUERY, long, use_tqdm=False, tokenization_kwargs={"truncate_prompt_tokens": -1})
    assert cut.json()["usage"]["prompt_tokens"] == len(out.prompt_token_ids) == 700
    assert kind.llm.engine.tokenizer.decode(out.prompt_token_ids).endswith(
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_what_prompts_share_is_counted_as_computed_once(kind: Kind) -> None:
    def counted() -> tuple[float, float]:
        text = httpx.get(f"{kind.server.url}/metrics", timeout=60).text
        samples = {sample.name: sample.value for f in text_string_to_metric_families(text) for sample in f.samples}
        return samples["cenote_tokens_total"], samples["cenote_shared_tokens_total"]

    before = counted()
    scored = kind.post("/score", text_1=QUERY, text_2=[f"Document {number}" for number in range(16)])
    tokens, shared = (now - then for now, then in zip(counted(), before, strict=True))
    # Each worker has batches of its own, of at least two prompts; usage is what was sent.
    assert tokens == scored.json()["usage"]["prompt_tokens"]
    assert tokens / 8 < shared < tokens
