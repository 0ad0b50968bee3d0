"""BGE-M3's three kinds of rows, alone and by one forward, against what its makers' library computes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cenote import LLM, AsyncLLM
from cenote.errors import BadInput, CheckpointError, UnsupportedTask, WeightMismatch
from cenote.outputs import SparseEmbeddingOutput
from support.fixtures import Tiny
from support.m3 import TOKEN_WIDTH, Read, m3_folder, reference
from support.rows import BATCH_LIMIT, assert_equal
from support.saving import read_json, write_json
from support.texts import short_texts

# Repeated words, and one that the vocabulary lacks; then nothing but special tokens.
TEXTS = [*short_texts(6), "a text is a text is a text \U00013000 is a text", ""]
CUT: dict[str, Any] = {"use_tqdm": False, "tokenization_kwargs": {"truncate_prompt_tokens": -1}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint of BGE-M3's form."""
    return m3_folder(tmp_path_factory.mktemp("m3"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    """It, opened."""
    with LLM(str(folder)) as opened:
        yield opened


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[Read]:
    """What the library makes of `TEXTS`."""
    return reference(folder, TEXTS)


def assert_sparse(ours: SparseEmbeddingOutput, weights: dict[int, float], limit: float = 1e-5) -> None:
    """Check words and weights; a weight close to 0 may be missing."""
    found = dict(zip(ours.indices, ours.values, strict=True))
    assert ours.indices == sorted(found)
    largest = max(weights.values(), default=0.0)
    for word in found.keys() | weights.keys():
        assert abs(found.get(word, 0.0) - weights.get(word, 0.0)) <= limit * largest


def test_each_kind_alone_equals_the_reference(llm: LLM, expected: list[Read]) -> None:
    assert llm.get_supported_tasks() == ("embed", "token_embed", "sparse")
    assert_equal(llm.embed(TEXTS, output="numpy", **CUT), [read.dense for read in expected])
    tokens = [out.outputs.data.numpy() for out in llm.encode(TEXTS, pooling_task="token_embed", **CUT)]
    assert_equal(tokens, [read.tokens for read in expected])
    for out, read in zip(llm.embed_sparse(TEXTS, **CUT), expected, strict=True):
        assert_sparse(out.outputs, read.weights)
    repeated = llm.embed_sparse(TEXTS[6], **CUT)[0].outputs
    assert len(repeated.indices) < len(set(llm.engine.tokenizer.encode([TEXTS[6]], limit=70)[0].ids.tolist()))


async def test_all_kinds_come_of_one_forward(llm: LLM, folder: Path, expected: list[Read]) -> None:
    before = llm.engine.snapshot().tokens
    together = llm.embed_all(TEXTS, **CUT)
    num_tokens = sum(len(out.prompt_token_ids) for out in together)
    assert llm.engine.snapshot().tokens - before == num_tokens
    assert_equal([out.outputs.embedding for out in together], [read.dense for read in expected])
    assert_equal([out.outputs.token_embeddings for out in together], [read.tokens for read in expected])
    for out, read in zip(together, expected, strict=True):
        assert_sparse(out.outputs.sparse, read.weights)
    assert repr(together[7].outputs).startswith("HybridOutput(embedding=(60,), token_embeddings=(1, 44), sparse")
    more = {"tokenization_kwargs": CUT["tokenization_kwargs"]}
    async with AsyncLLM(str(folder)) as other:
        for one, out in zip(await other.embed_all(TEXTS[::-1], **more), together[::-1], strict=True):
            assert_equal([one.outputs.token_embeddings], [out.outputs.token_embeddings], BATCH_LIMIT)
            assert_sparse(
                one.outputs.sparse, dict(zip(out.outputs.sparse.indices, out.outputs.sparse.values, strict=True)), 4e-6
            )


def test_requests_of_every_kind_share_a_batch(llm: LLM, expected: list[Read]) -> None:
    started = [
        llm.start(TEXTS, task, None, None, CUT["tokenization_kwargs"])
        for task in ("sparse", "hybrid", "embed", "token_embed")
    ]
    sparse, _, dense, tokens = [one.finish() for one in started]
    assert_equal(dense.rows, [read.dense for read in expected])
    assert_equal(tokens.rows, [read.tokens for read in expected])
    assert [set(row[:, 0].astype(int)) for row in sparse.rows] == [set(read.weights) for read in expected]


def test_options_count_for_vectors_of_both_kinds(llm: LLM, expected: list[Read]) -> None:
    (raw,) = llm.embed_all(TEXTS[2], normalize=False, **CUT)
    norms = np.linalg.norm(raw.outputs.token_embeddings, axis=1, keepdims=True)
    assert abs(norms - 1).max() > 0.1
    assert_equal([raw.outputs.token_embeddings / norms], [expected[2].tokens])
    (as_embed,) = llm.encode(TEXTS[2], pooling_task="token_embed", as_embed=True, **CUT)
    assert_equal(as_embed.outputs.data[:1].numpy(), [expected[2].dense])
    assert len(as_embed.outputs.data) == len(expected[2].tokens) + 1


def test_late_chunks_are_means_of_what_texts_are_made_of(llm: LLM) -> None:
    (tokens,) = llm.encode("a text of five words", pooling_task="token_embed", as_embed=True, normalize=False, **CUT)
    whole = llm.embed_chunks("a text of five words", [(0, len(tokens.outputs.data))], unit="tokens", normalize=False)
    assert_equal(whole, [tokens.outputs.data.numpy().mean(axis=0)])


@pytest.mark.parametrize(
    ("score_type", "weights", "shares"),
    [
        ("bi-encoder", None, (1, 0, 0)),
        ("sparse", None, (0, 1, 0)),
        ("late-interaction", None, (0, 0, 1)),
        ("hybrid", None, (1, 1, 1)),
        ("hybrid", [0.4, 0.2, 0.4], (0.4, 0.2, 0.4)),
        ("hybrid", (1, 3, 0), (1, 3, 0)),
    ],
)
def test_scores_equal_the_reference(
    llm: LLM, expected: list[Read], score_type: str, weights: Any, shares: tuple[float, ...]
) -> None:
    more = {} if weights is None else {"weights": weights}
    scores = [out.outputs.score for out in llm.score(TEXTS[0], TEXTS, score_type=score_type, **more, **CUT)]
    parts = np.array([expected[0].scores(read) for read in expected])
    assert_equal([scores], [parts @ np.array(shares) / sum(shares)])
    ranked = llm.rerank(TEXTS[0], TEXTS, score_type=score_type, **more, **CUT)
    assert [one.score for one in ranked] == pytest.approx(sorted(scores, reverse=True), rel=4e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score_type": "hybrid", "weights": [1, 2]}, r"weights=\[1, 2\]. Three numbers of at least 0"),
        ({"score_type": "hybrid", "weights": [0, 0, 0]}, "Three numbers"),
        ({"score_type": "hybrid", "weights": [1, -1, 1]}, "Three numbers"),
        ({"score_type": "hybrid", "weights": [1, 1, float("nan")]}, "Three numbers"),
        ({"weights": [1, 1, 1]}, "weights was given, but the score is that of a bi-encoder"),
        ({"score_type": "hybrid", "use_activation": True}, "use_activation was given for a hybrid score"),
        ({"score_type": "mixed"}, "sparse, hybrid"),
    ],
)
def test_what_cannot_be_scored(llm: LLM, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        llm.score("a", "b", use_tqdm=False, **options)


def test_other_models_have_not_all_three(tiny: Tiny) -> None:
    with LLM(str(tiny("xlm-roberta"))) as other:
        with pytest.raises(UnsupportedTask, match="Hybrid embedding API is not supported by this model"):
            other.embed_all("a")
        with pytest.raises(UnsupportedTask, match="is no hybrid"):
            other.score("a", "b", score_type="hybrid", use_tqdm=False)
        with pytest.raises(UnsupportedTask, match="Unsupported task"):
            other.encode("a", pooling_task="hybrid")
    with pytest.raises(CheckpointError, match="has neither of sparse_linear"):
        LLM(str(tiny("xlm-roberta")), hf_overrides={"architectures": ["BgeM3EmbeddingModel"]})


class _Runs:
    """What a pickle may ask for and must not get."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return exec, ("raise SystemExit('a pickle ran')",)


def _resave(name: str, change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda where: torch.save(change(torch.load(where / name, weights_only=True)), where / name)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda where: (where / "sparse_linear.pt").unlink(), CheckpointError, r"has \['colbert_linear.pt'\] of"),
        (
            _resave("colbert_linear.pt", lambda state: {**state, "other": state["bias"]}),
            WeightMismatch,
            "One linear layer",
        ),
        (_resave("sparse_linear.pt", lambda state: {"weight": state["weight"]}), WeightMismatch, "One linear layer"),
        (
            _resave("sparse_linear.pt", lambda state: _Runs()),
            CheckpointError,
            "sparse_linear.pt .* is no file of tensors",
        ),
    ],
)
def test_what_is_refused(
    folder: Path, tmp_path: Path, change: Callable[[Path], None], error: type[Exception], message: str
) -> None:
    where = Path(shutil.copytree(folder, tmp_path / "copy"))
    change(where)
    with pytest.raises(error, match=message):
        LLM(str(where))


def test_a_fingerprint_counts_the_files_beside_the_model(folder: Path, tmp_path: Path, llm: LLM) -> None:
    where = Path(shutil.copytree(folder, tmp_path / "copy"))
    _resave("sparse_linear.pt", lambda state: {name: 2 * tensor for name, tensor in state.items()})(where)
    with LLM(str(where), hf_overrides={"architectures": ["BgeM3EmbeddingModel"]}) as other:
        assert other.recipe.multi_vector is not None
        assert other.recipe.multi_vector.out_features == TOKEN_WIDTH
        assert other.fingerprint != llm.fingerprint


def test_the_side_of_padding_says_nothing(folder: Path, tmp_path: Path, expected: list[Read]) -> None:
    where = Path(shutil.copytree(folder, tmp_path / "left"))
    config = where / "tokenizer_config.json"
    write_json(config, read_json(config) | {"padding_side": "left"})
    with LLM(str(where)) as left:
        together = left.embed_all(TEXTS, **CUT)
    assert_equal([out.outputs.embedding for out in together], [read.dense for read in expected])
    assert_equal([out.outputs.token_embeddings for out in together], [read.tokens for read in expected])
    for out, read in zip(together, expected, strict=True):
        assert_sparse(out.outputs.sparse, read.weights)
