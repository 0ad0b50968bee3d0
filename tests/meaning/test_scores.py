"""Activations, similarities and rankings on plain arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import util

from cenote import recipe
from cenote.activations import INCREASING, apply
from cenote.uses.score import Scores, ranking
from cenote.uses.similarity import SIMILARITIES, max_sim
from support.references import Float32, worst_error

LIMIT = 1e-6
REFERENCES = {
    "cosine": util.pairwise_cos_sim,
    "dot": util.pairwise_dot_score,
    "euclidean": util.pairwise_euclidean_sim,
    "manhattan": util.pairwise_manhattan_sim,
}


def rows(num: int, size: int, seed: int) -> Float32:
    return np.random.default_rng(seed).standard_normal((num, size)).astype(np.float32)


def test_every_similarity_has_its_function() -> None:
    assert set(recipe.SIMILARITIES) == set(SIMILARITIES) == set(REFERENCES)


@pytest.mark.parametrize("name", REFERENCES)
def test_similarities_equal_the_reference(name: str) -> None:
    a, b = rows(40, 60, 1), rows(40, 60, 2)
    a[3] = b[3]
    a[4] = 0
    ours = SIMILARITIES[name](a, b)
    assert ours.dtype == np.float32
    expected = REFERENCES[name](torch.from_numpy(a), torch.from_numpy(b)).numpy()
    assert worst_error(ours, expected) <= LIMIT


def test_max_sim_equals_the_sums() -> None:
    for seed, (num_query, num_document) in enumerate([(1, 1), (1, 9), (9, 1), (12, 60)]):
        query, document = rows(num_query, 60, seed), rows(num_document, 60, seed + 10)
        wide = query.astype(np.float64), document.astype(np.float64)
        expected = sum(max(float(q @ d) for d in wide[1]) for q in wide[0])
        assert worst_error([max_sim(query, document)], [expected]) <= LIMIT
        theirs = util.maxsim_pairwise([torch.from_numpy(query)], [torch.from_numpy(document)])
        # Theirs rounds more than ours: a sum of few products of both signs may be small.
        assert max_sim(query, document) == pytest.approx(theirs.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("activation", "reference"),
    [
        ("identity", torch.nn.Identity()),
        ("sigmoid", torch.nn.Sigmoid()),
        ("softmax", torch.nn.Softmax(dim=-1)),
        ("torch.nn.modules.activation.Tanh", torch.nn.Tanh()),
        ("torch.nn.LogSigmoid", torch.nn.LogSigmoid()),
    ],
)
def test_activations_equal_torch_and_never_overflow(activation: str, reference: torch.nn.Module) -> None:
    logits = np.concatenate([30 * rows(50, 5, 0), np.full((1, 5), 1e4, np.float32), np.full((1, 5), -1e4, np.float32)])
    logits[3] = [-1e4, 1e4, 0, 3, -3]
    with np.errstate(all="raise", under="ignore"):
        ours = apply(logits, activation)
    assert ours.dtype == np.float32
    assert ours.shape == logits.shape
    expected = reference(torch.from_numpy(logits)).numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("activation", INCREASING)
def test_activations_that_keep_the_order(activation: str) -> None:
    logits = np.sort(5 * rows(400, 1, 7), axis=0)
    assert (np.diff(apply(logits, activation)[:, 0].astype(np.float64)) >= -2e-7).all()


def test_ties_stay_in_the_order_of_the_documents() -> None:
    shown = np.array([1, 0.5, 1, 1, 0.5], np.float32)
    order = np.array([3, 0, 4, 3, 0], np.float32)
    found = ranking(Scores(shown, order), list("abcde"))
    assert [result.index for result in found] == [2, 0, 3, 1, 4]
    assert "".join(result.document for result in found) == "cadbe"
    assert [r.index for r in ranking(Scores(shown, order), list("abcde"), top_n=3, min_score=0.6)] == [2, 0, 3]
    assert ranking(Scores(shown, order), list("abcde"), min_score=1.5) == []
