"""Models with a Router, or an Asym, against sentence-transformers: each route alone, and all in one batch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote import LLM
from cenote.errors import BadInput, CheckpointError, ConfigError, UnknownModule
from cenote.runner import Runner
from cenote.types import Batch, ReadKey
from support.parity import BATCH_LIMIT, REFERENCE_LIMIT
from support.references import Float32, reference_vectors, worst_error
from support.routers import ROUTERS, save_router
from support.saving import read_json, write_json
from support.sentence_folders import Generation
from support.texts import short_texts

PROMPTS = {"query": "find this: ", "document": "said: "}
TEXTS = [*short_texts(7), "x"]
# Name of a router -> the route of a text whose caller says nothing.
DEFAULTS = {"static queries": "document", "two transformers": "query", "two Denses": "query"}


@dataclass(frozen=True)
class Routed:
    """A saved router, what the reference makes of it, and ours."""

    folder: Path
    llm: LLM
    theirs: dict[str, Float32]


@pytest.fixture(scope="module", params=ROUTERS)
def routed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routed]:
    name = request.param
    folder = save_router(tmp_path_factory.mktemp("routers") / "m", name, prompts=PROMPTS)
    theirs = {task: reference_vectors(folder, TEXTS, task=task, prompt=PROMPTS[task]) for task in PROMPTS}
    if name in DEFAULTS:
        theirs[""] = reference_vectors(folder, TEXTS)
    with LLM(str(folder), dtype="float32") as llm:
        yield Routed(folder, llm, theirs)


def vectors(given: Any) -> Any:
    return np.stack([one.outputs.embedding for one in given])


def error(ours: Any, theirs: Any) -> float:
    return max(worst_error(a, b) for a, b in zip(ours, theirs, strict=True))


def test_queries_and_documents_equal_the_reference(routed: Routed) -> None:
    llm, theirs = routed.llm, routed.theirs
    quiet: Any = {"output": "numpy", "use_tqdm": False}
    assert error(llm.embed_query(TEXTS, **quiet), theirs["query"]) <= REFERENCE_LIMIT
    assert error(llm.embed_document(TEXTS, **quiet), theirs["document"]) <= REFERENCE_LIMIT
    assert error(llm.embed(TEXTS, input_type="search_query", **quiet), theirs["query"]) <= REFERENCE_LIMIT
    # A prompt of the caller's own leaves the route alone.
    named = llm.embed_document(TEXTS, prompt=PROMPTS["document"], **quiet)
    assert error(named, theirs["document"]) <= REFERENCE_LIMIT
    assert worst_error(theirs["query"], theirs["document"]) > 0.01


def test_a_text_of_no_kind_takes_the_default_route(routed: Routed) -> None:
    if "" in routed.theirs:
        ours = routed.llm.embed(TEXTS, output="numpy", use_tqdm=False)
        assert error(ours, routed.theirs[""]) <= REFERENCE_LIMIT
        return
    with pytest.raises(BadInput, match=r"none was chosen\. It has routes for document, query, q, doc\."):
        routed.llm.embed(TEXTS)


def test_routes_share_a_batch(routed: Routed) -> None:
    llm, tasks = routed.llm, ("query", "document")
    engine = llm.engine
    keys = {task: llm_key(llm, task) for task in tasks}
    encoded = {
        task: engine.tokenizers[keys[task].route].encode(TEXTS, limit=64, prefix=PROMPTS[task]) for task in tasks
    }
    mixed = [(encoded[task][at], keys[task]) for at in range(len(TEXTS)) for task in tasks]
    runner = engine.runner
    assert isinstance(runner, Runner)
    found = runner.run(Batch.pack([item for item, _ in mixed], [key for _, key in mixed]))
    assert sorted(seq for rows in found for seq in rows.seqs) == list(range(len(mixed)))
    by_seq = {int(seq): row for rows in found for seq, row in zip(rows.seqs, rows.rows, strict=True)}
    for at, task in enumerate(tasks):
        alone = llm.embed(TEXTS, input_type=task, normalize=False, output="numpy", use_tqdm=False)
        assert error([by_seq[seq] for seq in range(at, len(mixed), 2)], alone) <= BATCH_LIMIT


def llm_key(llm: LLM, task: str) -> ReadKey:
    from cenote.tasks import embed

    return embed.read_key(llm.recipe, embed.Params(input_type=task))


def test_scores_compare_a_query_with_documents(routed: Routed) -> None:
    unit = {task: rows / np.linalg.norm(rows, axis=1, keepdims=True) for task, rows in routed.theirs.items()}
    scores = [one.outputs.score for one in routed.llm.score(TEXTS[0], TEXTS, use_tqdm=False)]
    np.testing.assert_allclose(scores, unit["document"] @ unit["query"][0], atol=1e-5)


def test_a_type_without_a_route_is_refused(routed: Routed) -> None:
    with pytest.raises(BadInput, match="has no route for input_type 'clustering'"):
        routed.llm.embed("a", input_type="clustering")


@pytest.mark.parametrize("name", ["static queries", "two Denses"])
def test_an_asym_is_an_old_router(tmp_path: Path, name: str) -> None:
    folder = save_router(tmp_path / "m", name, "old")
    with LLM(str(folder), dtype="float32") as llm:
        for task, ours in (("query", llm.embed_query), ("document", llm.embed_document)):
            theirs = reference_vectors(folder, TEXTS, task=task)
            assert error(ours(TEXTS, output="numpy", use_tqdm=False), theirs) <= REFERENCE_LIMIT
        # The first route is the default of an Asym.
        theirs = reference_vectors(folder, TEXTS)
        assert error(llm.embed(TEXTS, output="numpy", use_tqdm=False), theirs) <= REFERENCE_LIMIT


@pytest.mark.parametrize("generation", ["old", "new"])
def test_keys_of_prompts_choose_the_route(tmp_path: Path, generation: Generation) -> None:
    folder = save_router(tmp_path / "m", "static queries", generation, prompts=PROMPTS)
    with LLM(str(folder), dtype="float32") as llm:
        quiet: Any = {"output": "numpy", "use_tqdm": False}
        for key in PROMPTS:
            given: Any = [{key: text} for text in TEXTS]
            theirs = reference_vectors(folder, given)
            assert error(llm.embed([{key: text} for text in TEXTS], **quiet), theirs) <= REFERENCE_LIMIT
            alone = llm.embed({key: TEXTS[0]}, **quiet)
            assert error(alone, theirs[:1]) <= REFERENCE_LIMIT
            named = llm.embed([{key: text} for text in TEXTS], prompt_name=key, **quiet)
            assert error(named, llm.embed(TEXTS, input_type=key, **quiet)) <= BATCH_LIMIT
        refused: list[tuple[Any, dict[str, Any], str]] = [
            ([{"query": "a"}, {"document": "b"}], {}, "another has ['document']"),
            ([{"query": "a"}, "b"], {}, "another has str"),
            ([{"query": "a"}], {"input_type": "document"}, "Give one of them"),
            ([{"other": "a"}], {}, "a dict with ['other']"),
            ([{"query": 3}], {}, "has 'query' of type int"),
        ]
        for prompts, more, message in refused:
            with pytest.raises(BadInput, match=re.escape(message)):
                llm.embed(prompts, **more, **quiet)
        assert len(llm.embed([{"prompt": "a"}], input_type="query", **quiet)) == 1


def test_what_is_decided_tells_of_the_routes(tmp_path: Path) -> None:
    folder = save_router(tmp_path / "m", "static queries")
    with LLM(str(folder)) as llm:
        decided = llm.recipe.decided()
        assert list(decided["routes"][0]) == ["document", "query"]
        assert decided["default_route"] == ("document", "modules.json: Router")
        assert decided["max_len"][0] == llm.recipe.routes["document"].max_len < 100
        before = llm.fingerprint
    config = read_json(folder / "router_config.json")
    config["parameters"]["default_route"] = "query"
    write_json(folder / "router_config.json", config)
    with LLM(str(folder)) as llm:
        assert llm.fingerprint != before


REFUSED = [
    ({"structure": {}}, CheckpointError, "Its routes are none"),
    ({"parameters": {"default_route": "other"}}, CheckpointError, r"names the routes \['other'\]"),
    ({"parameters": {"route_mappings": {"('query', 'image')": "query"}}}, CheckpointError, "texts are served alone"),
    ({"parameters": {"route_mappings": {"query": "query"}}}, CheckpointError, "no config of a Router"),
    ({"parameters": {"noise": 1}}, UnknownModule, "noise=1"),
    ({"structure": {"query": ["query_0_StaticEmbedding"], "document": ["query_0_StaticEmbedding", "query_1_Dense"]}},
     CheckpointError, "rows of 20.*rows of 24|rows of 24.*rows of 20"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "kind", "message"), REFUSED)
def test_a_router_that_cannot_be_followed_is_refused(tmp_path: Path, changes: Any, kind: Any, message: str) -> None:
    folder = save_router(tmp_path / "m", "static queries")
    write_json(folder / "router_config.json", read_json(folder / "router_config.json") | changes)
    with pytest.raises(kind, match=message):
        LLM(str(folder))


def test_a_router_in_a_router_and_one_tokenizer_for_all_are_refused(tmp_path: Path) -> None:
    folder = save_router(tmp_path / "m", "static queries")
    with pytest.raises(ConfigError, match="each route of"):
        LLM(str(folder), tokenizer=str(folder / "document_0_Transformer"))
    modules = read_json(folder / "modules.json")
    write_json(folder / "modules.json", [*modules, {**modules[0], "path": "2_Router"}])
    with pytest.raises(CheckpointError, match="a Router beside or in another one"):
        LLM(str(folder))
