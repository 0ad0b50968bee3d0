"""Late-interaction checkpoints against MultiVectorEncoder of sentence-transformers, one text at a time."""

from __future__ import annotations

import shutil
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

from cenote import LLM
from cenote.errors import CheckpointError
from cenote.types import InputType
from support.jina_v3 import makers_config
from support.late_folders import multi_vector, pylate, stanford
from support.references import EXACT, Float32
from support.rows import BATCH_LIMIT, assert_equal
from support.saving import read_json, write_json

PUNCTUATION: Final = [mark for mark in string.punctuation if mark not in "$`"]  # the others are no tokens here
CLASSIC: Final = {"strategy": "fixed", "attend": False, "length": 14}
PYLATE: Final[dict[str, Any]] = {
    "query_prefix": "[Q] ",
    "document_prefix": "[D] ",
    "query_length": 16,
    "document_length": 20,
}
ROLES: Final[tuple[InputType | None, ...]] = ("query", "document", None)
TEXTS: Final = [
    "What is the capital of France?",
    "a",
    "(a + b) * c; is evaluated: left-to-right.",
    "[MASK] the [MASK]",
    "word, and " * 11,
]


def padding_left(folder: Path) -> Path:
    """`folder`, whose tokenizer now pads before a text."""
    for config in folder.rglob("tokenizer_config.json"):
        write_json(config, read_json(config) | {"padding_side": "left"})
    return folder


MAKERS: Final[Mapping[str, Callable[[Path], Path]]] = {
    "classic": lambda folder: multi_vector(
        folder,
        mask={"skiplist_words": PUNCTUATION},
        transformer={"query_expansion": CLASSIC, "document_length": 20},
        prompts={"query": "[Q] ", "document": "[D] "},
    ),
    "attended": lambda folder: multi_vector(
        folder, mask={}, transformer={"query_expansion": {**CLASSIC, "attend": True}}, similarity_fn_name="meanmaxsim"
    ),
    "at least, with another token": lambda folder: multi_vector(
        folder,
        sizes=(24, 12),
        mask={"skiplist_words": PUNCTUATION, "skiplist_tasks": ["query", "document"]},
        transformer={"query_expansion": {**CLASSIC, "strategy": "min", "token": "[SEP]"}, "query_length": 20},
    ),
    "no mask": lambda folder: multi_vector(folder, transformer={"query_expansion": CLASSIC}),
    "some ids, pooled": lambda folder: multi_vector(
        folder, mask={"keep_only_token_ids": [2, 3, *range(40, 90)]}, pooling={"pool_factor": 2}
    ),
    "pooled queries": lambda folder: multi_vector(
        folder,
        mask={"skiplist_words": PUNCTUATION},
        pooling={"pool_factor": 2.5, "tasks": ["query", "document"], "num_protected_tokens": 2},
    ),
    "byte-level": lambda folder: multi_vector(
        folder, model_type="roberta", mask={"skiplist_words": PUNCTUATION}, transformer={"query_expansion": CLASSIC}
    ),
    "causal": lambda folder: multi_vector(
        folder, model_type="qwen2", mask={}, transformer={"query_expansion": CLASSIC}
    ),
    "left": lambda folder: padding_left(
        multi_vector(
            folder,
            mask={"skiplist_words": PUNCTUATION},
            transformer={"query_expansion": {**CLASSIC, "attend": True}, "document_length": 20},
            prompts={"query": "[Q] ", "document": "[D] "},
        )
    ),
    "left, causal": lambda folder: padding_left(
        multi_vector(folder, model_type="qwen2", mask={}, transformer={"query_expansion": {**CLASSIC, "attend": True}})
    ),
    "left, at least": lambda folder: padding_left(
        multi_vector(folder, mask={}, transformer={"query_expansion": {**CLASSIC, "strategy": "min"}})
    ),
    "pylate": lambda folder: pylate(folder, **PYLATE, skiplist_words=[",", "."]),
    "pylate, not expanded": lambda folder: pylate(folder, **PYLATE, do_query_expansion=False, prompts={"query": "q: "}),
    "stanford": lambda folder: stanford(folder, query_maxlen=16, doc_maxlen=24, attend_to_mask_tokens=True),
    "jina": lambda folder: stanford(folder, model_type="jina_embeddings_v3", query_maxlen=16, doc_maxlen=24),
    "stanford, little said": lambda folder: stanford(folder, mask_punctuation=False),
}


@dataclass(frozen=True)
class Both:
    """One checkpoint, here and there."""

    llm: LLM
    reference: MultiVectorEncoder

    def ours(self, texts: list[str], role: InputType | None, **more: Any) -> list[Float32]:
        outs = self.llm.encode(texts, pooling_task="token_embed", input_type=role, use_tqdm=False, **more)
        return [out.outputs.data.numpy() for out in outs]

    def theirs(self, texts: list[str], role: InputType | None, **more: Any) -> list[Float32]:
        encode: Any = {
            "query": self.reference.encode_query,
            "document": self.reference.encode_document,
            None: self.reference.encode,
        }[role]
        return [encode([text], convert_to_numpy=True, show_progress_bar=False, **more)[0] for text in texts]


def opened(folder: Path) -> Iterator[Both]:
    reference = MultiVectorEncoder(str(folder), device="cpu", local_files_only=True, model_kwargs=dict(EXACT))
    reference.float().eval()
    with LLM(str(folder)) as llm:
        yield Both(llm, reference)


@pytest.fixture(scope="module", params=MAKERS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    yield from opened(MAKERS[request.param](tmp_path_factory.mktemp("late") / "model"))


@pytest.fixture(scope="module")
def classic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    yield from opened(MAKERS["classic"](tmp_path_factory.mktemp("late") / "model"))


def test_rows_equal_the_reference(both: Both) -> None:
    for role in ROLES:
        assert_equal(both.ours(TEXTS, role), both.theirs(TEXTS, role))


def test_scores_equal_the_reference(both: Both) -> None:
    queries, documents = both.theirs(TEXTS[:1], "query"), both.theirs(TEXTS, "document")
    theirs = both.reference.similarity(queries, documents).numpy()
    outs = both.llm.score(TEXTS[0], TEXTS, use_tqdm=False)
    assert_equal([[out.outputs.score for out in outs]], theirs)
    ranked = both.llm.rerank(TEXTS[0], TEXTS, use_tqdm=False)
    assert [result.index for result in ranked] == np.argsort(-theirs[0], kind="stable").tolist()


def test_its_one_task_is_the_default_one(both: Both) -> None:
    assert both.llm.get_supported_tasks() == ("token_embed",)
    assert both.llm.recipe.default_task == "token_embed"


def test_pairs_are_scored_one_by_one(classic: Both) -> None:
    outs = classic.llm.score(TEXTS[:3], TEXTS[1:4], use_tqdm=False)
    for out, query, document in zip(outs, TEXTS[:3], TEXTS[1:4], strict=True):
        (alone,) = classic.llm.score(query, document, use_tqdm=False)
        assert abs(out.outputs.score - alone.outputs.score) <= BATCH_LIMIT * abs(alone.outputs.score)


def test_an_expanded_query_is_the_same_in_any_batch(classic: Both) -> None:
    together = classic.ours([*TEXTS, *TEXTS], "query")
    assert_equal(together, [classic.ours([text], "query")[0] for text in [*TEXTS, *TEXTS]], BATCH_LIMIT)


def test_ids_like_those_of_an_expanded_query_are_read_as_they_are(classic: Both) -> None:
    (expanded,) = classic.llm.encode_query("a", use_tqdm=False)
    ids = expanded.prompt_token_ids
    whole, again = classic.llm.encode_query([{"prompt_token_ids": ids}, "a"], use_tqdm=False)
    assert whole.prompt_token_ids == again.prompt_token_ids
    assert_equal([again.outputs.data.numpy()], [expanded.outputs.data.numpy()], BATCH_LIMIT)
    assert (whole.outputs.data - again.outputs.data).abs().max() > 1e-3


def test_pooling_that_a_request_asks_for_equals_the_reference(classic: Both) -> None:
    for factor in (1, 1.5, 4, 100):
        pooling = HierarchicalTokenPooling(factor)
        for role in ROLES:
            theirs = classic.theirs(TEXTS, role, token_pooling=pooling)
            assert_equal(classic.ours(TEXTS, role, pool_factor=factor), theirs)


def test_widths_cut_and_say_so(classic: Both) -> None:
    long = TEXTS[-1]
    for role, width in (("query", 14), ("document", 20)):
        out = classic.llm.encode(long, pooling_task="token_embed", input_type=role, use_tqdm=False)[0]
        assert len(out.prompt_token_ids) == width
        assert out.num_cut_tokens > 0


@pytest.mark.parametrize("named", ["HF_ColBERT", "ColBERTJinaRobertaModel"])
def test_jina_colbert_is_read_from_its_makers_files(tmp_path: Path, named: str) -> None:
    source = stanford(tmp_path / "source", model_type="jina_embeddings_v3", query_maxlen=16, doc_maxlen=24)
    says = {"architectures": ["HF_ColBERT"], "lora_adaptations": None, "task_instructions": None}
    raw = makers_config(read_json(source / "config.json"), **says)
    folder = Path(shutil.copytree(source, tmp_path / "makers"))
    write_json(folder / "config.json", {key: value for key, value in raw.items() if value is not None})
    with LLM(str(source)) as plain, LLM(str(folder), hf_overrides={"architectures": [named]}) as makers:
        assert makers.recipe.model_type == "xlm-roberta"
        for role in ROLES:
            rows = [
                [out.outputs.data.numpy() for out in llm.encode(TEXTS, pooling_task="token_embed", input_type=role)]
                for llm in (plain, makers)
            ]
            assert_equal(rows[1], rows[0], BATCH_LIMIT)


def test_an_expansion_before_a_query_that_nobody_attends_to_stops_the_start(tmp_path: Path) -> None:
    folder = padding_left(multi_vector(tmp_path / "m", mask={}, transformer={"query_expansion": CLASSIC}))
    with pytest.raises(CheckpointError, match="padding_side='left', which puts them before the query"):
        LLM(str(folder))
