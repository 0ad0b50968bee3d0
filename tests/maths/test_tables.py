"""What the first layer makes of embeddings is looked up, and is what its product gives, but for rounding."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import cenote_kernels
from cenote.layers import embeddings
from cenote.layers.blocks import EncoderShape
from cenote.layers.kernels import Kernels, use
from cenote.layers.linear import prepare, quantize
from cenote.layers.packed import Packed, Wanted
from cenote.layers.tables import KnownProducts, SummedTables
from cenote.models import bert
from cenote.types import Batch, Encoded, IntArray, ReadKey

pytestmark = pytest.mark.skipif(cenote_kernels.why_not() is not None, reason=f"kernels: {cenote_kernels.why_not()}")
SHAPE = EncoderShape(hidden_size=96, num_layers=3, num_heads=3, inner_size=50, activation="gelu", norm_eps=1e-5)
LENGTHS = (5, 1, 12, 30, 2)
NUM_WORDS = 70


@pytest.fixture(params=cenote_kernels.isas() if cenote_kernels.why_not() is None else ())
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """Those of each instruction set."""
    return Kernels(request.param)


def model(kernels: Kernels, *, num_segments: int = 2, int8: bool = False) -> bert.Model:
    """A random one, always the same, whose position and word embeddings are alike in size."""
    made = bert.Model(bert.Config(SHAPE, NUM_WORDS, 40, num_segments, SHAPE.hidden_size, 0))
    torch.manual_seed(0)
    for parameter in made.parameters():
        parameter.normal_(std=0.3)
    if int8:
        quantize(made)
    use(made, kernels)
    prepare(made)
    return made


def packed(seed: int, wanted: tuple[Wanted, ...] = (), *, segments: bool = False, **more: Any) -> Packed:
    """A ragged batch of random words."""
    rng = np.random.default_rng(seed)
    texts = [
        Encoded(
            rng.integers(0, NUM_WORDS, n).astype(np.int32),
            (np.arange(n) >= n // 2).astype(np.int32) if segments else None,
        )
        for n in LENGTHS
    ]
    batch = Batch.pack(texts, [ReadKey("embed")] * len(LENGTHS))
    return Packed.of(batch, torch.device("cpu"), wanted, **more)


def without(made: bert.Model, monkeypatch: pytest.MonkeyPatch, given: Packed) -> Tensor:
    """Its last hidden states where every product is computed."""
    with monkeypatch.context() as patch:
        patch.setattr(made.embeddings, "_products", None)
        computed: Tensor = made(given).last_QD
    return computed


@torch.inference_mode()
@pytest.mark.parametrize("wanted", [(), ("first",) * 5])
@pytest.mark.parametrize("num_segments", [0, 1, 2])
def test_hidden_states_are_the_same(
    kernels: Kernels, num_segments: int, wanted: tuple[Wanted, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = model(kernels, num_segments=num_segments)
    for seed in range(3):
        given = packed(seed, wanted, segments=num_segments == 2)
        found, computed = made(given).last_QD, without(made, monkeypatch, given)
        assert not torch.equal(found, computed)
        assert (found - computed).abs().max() <= 2e-6 * computed.abs().max()
        assert torch.equal(found, made(given).last_QD)


@torch.inference_mode()
def test_int8_is_nearer_to_float32(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    given, exact, made = packed(0), model(kernels), model(kernels, int8=True)
    wanted = exact(given).last_QD
    known, computed = (made(given).last_QD - wanted).norm(), (without(made, monkeypatch, given) - wanted).norm()
    assert 0 < known < computed


@torch.inference_mode()
def test_the_order_in_which_rows_are_asked_for_changes_nothing(kernels: Kernels) -> None:
    orders = [(0, 1, 2), (2, 0, 1)]
    found = []
    for order in orders:
        made = model(kernels)
        by_seed = {seed: made(packed(seed)).last_QD for seed in order}
        found.append([by_seed[seed] for seed in sorted(by_seed)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@torch.inference_mode()
def test_what_has_no_products(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    made, given = model(kernels), packed(0)
    layers = packed(0, layers=(0, 2))
    assert torch.equal(made(layers).last_QD, without(made, monkeypatch, layers))
    monkeypatch.setattr(embeddings, "MOST_KNOWN_BYTES", (NUM_WORDS + 40 + 2) * 3 * 96 * 4)
    assert model(kernels).embeddings.with_products(given, given.positions_T) is not None
    monkeypatch.setattr(embeddings, "MOST_KNOWN_BYTES", (NUM_WORDS + 40 + 2) * 3 * 96 * 4 - 1)
    assert model(kernels).embeddings.with_products(given, given.positions_T) is None


@torch.inference_mode()
def test_threads_that_ask_at_once_find_all_rows(kernels: Kernels) -> None:
    rng = np.random.default_rng(5)
    num, size, width = 4000, 24, 72
    table = torch.from_numpy(rng.normal(size=(num, size)).astype(np.float32))
    weight = torch.from_numpy(rng.normal(size=(width, size)).astype(np.float32))
    norm = torch.nn.LayerNorm(size, eps=0)
    known = KnownProducts(kernels, [table], norm, weight, None)
    summed = SummedTables(kernels, [table], norm.weight, norm.bias, 0.0)

    def ask(ids: IntArray) -> Tensor:
        ids_T, scales_T = torch.from_numpy(ids), torch.empty(len(ids))
        summed([ids_T], len(ids), scales_T)
        found, out = known.of([ids_T], scales_T), torch.empty(len(ids), width)
        kernels.functions.known_rows(out.data_ptr(), found.address, 0, *out.shape)
        return out

    asked = [rng.integers(0, num, 300).astype(np.int32) for _ in range(60)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, asked))
    for ids, answer in zip(asked, answers, strict=True):
        wanted = norm(table[torch.from_numpy(ids).long()]) @ weight.T
        assert (answer - wanted).abs().max() <= 4e-6 * wanted.abs().max()
