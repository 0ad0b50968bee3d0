"""Products in int8: what they compute, exactly; on CPUs that would saturate; and what they do to vectors."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from cenote import LLM
from cenote.errors import ConfigError
from cenote.layers.int8 import Int8Product, saturates
from cenote.layers.linear import Linear, prepare, quantize
from support.fixtures import Tiny, TinySentence
from support.texts import paragraphs, short_texts

HAS_AVX512 = "AVX512" in torch.backends.cpu.get_cpu_capability()
SHAPES = ((1, 1, 1), (1, 33, 7), (3, 7, 29), (17, 100, 3), (40, 65, 130))

# Every weight and every activation at its largest: a sum of two products that has no room shows.
LARGEST = """
import torch
from cenote.layers.int8 import Int8Product, saturates
x, weight = torch.full((37, 390), 3.0), torch.full((65, 390), -2.0)
print(int(saturates()), float((Int8Product(weight)(x) - x @ weight.T).abs().max()))
"""


@pytest.mark.parametrize(("num_rows", "size", "num_out"), SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_products_are_those_of_rounded_values(num_rows: int, size: int, num_out: int, bias: bool) -> None:
    torch.manual_seed(num_rows)
    x, weight = torch.randn(num_rows, size) * torch.rand(num_rows, 1) * 9, torch.randn(num_out, size)
    added = torch.randn(num_out) if bias else None
    largest = 63 if saturates() else 127
    least, most = x.amin(1, keepdim=True).clamp(max=0), x.amax(1, keepdim=True).clamp(min=0)
    inverse, column_scale = 255 / (most - least), weight.abs().amax(1, keepdim=True) / largest
    zero = (-least * inverse).round()
    codes = ((x * inverse).round() + zero).clamp(0, 255) - zero
    expected = codes.double() @ (weight / column_scale).round().double().T / inverse * column_scale.double().T
    expected = expected if added is None else expected + added
    ours = Int8Product(weight, added)(x)
    assert (ours - expected).abs().max() <= 1e-5 * expected.abs().max()
    # What rounding costs: half a step of each factor.
    wanted = torch.nn.functional.linear(x, weight, added)
    assert (ours - wanted).abs().max() <= 0.05 * (most - least).max() * size**0.5


@pytest.mark.parametrize("isa", ["AVX2", "AVX512_CORE", "DEFAULT"])
def test_largest_values_are_exact_on_every_kind_of_cpu(isa: str) -> None:
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": isa, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", LARGEST], env=environment, capture_output=True, text=True, check=True)
    would_saturate, error = run.stdout.split()
    assert float(error) <= 1e-5 * 390 * 6
    # Where the CPU has nothing better than AVX2, PyTorch multiplies without oneDNN, and nothing saturates.
    if isa == "AVX2" and HAS_AVX512:
        assert would_saturate == "1"


def test_rows_of_zeros_and_columns_of_zeros_stay_zero() -> None:
    weight = torch.randn(5, 9)
    weight[2] = 0
    out = Int8Product(weight)(torch.cat([torch.zeros(1, 9), torch.ones(1, 9)]))
    assert not out[0].any()
    assert out[1, 2] == 0
    assert out[1, [0, 1, 3, 4]].all()


def test_a_layer_of_some_parts_multiplies_as_the_whole() -> None:
    torch.manual_seed(0)
    layer = Linear(33, 30, parts={"query": 10, "key": 10, "value": 10}, activation="gelu")
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    quantize(layer)
    part = layer.only("key", "value")
    prepare(layer)
    prepare(part)
    x = torch.randn(7, 33)
    assert "backend=int8" in repr(part)
    assert torch.equal(layer(x)[:, 10:], part(x))


def test_a_batch_changes_nothing(tiny_sentence: TinySentence) -> None:
    texts = short_texts(40)
    with LLM(str(tiny_sentence(pooling="mean")), quantization="int8") as llm:
        together = llm.embed(texts, output="numpy")
        alone = np.concatenate([llm.embed([text], output="numpy") for text in texts[::7]])
    assert (together[::7] == alone).all()


def test_vectors_of_the_default_model_stay_close() -> None:
    texts = [*short_texts(150), *paragraphs(12)]
    exact, rough = (embedded(quantization, texts) for quantization in ("none", "int8"))
    cosines = (exact * rough).sum(1)
    assert 0.995 <= cosines.mean() < 0.9999
    nearest, found = (np.argsort(-(rows @ rows.T), axis=1)[:, 1:11] for rows in (exact, rough))
    agreement = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(nearest, found, strict=True)])
    assert agreement > 0.9


def embedded(quantization: str, texts: list[str]) -> np.ndarray:
    with LLM(quantization=quantization, on_long="cut") as llm:
        return llm.embed(texts, output="numpy")


def test_a_classifier_keeps_its_head_in_float32(tiny: Tiny) -> None:
    folder = tiny("bert", head="sequence_classification", num_labels=3)
    with LLM(str(folder), quantization="int8") as llm, LLM(str(folder)) as exact:
        (backbone,) = llm.engine.runner._backbones  # type: ignore[attr-defined]
        inside = [repr(layer) for layer in backbone._model.modules() if isinstance(layer, Linear)]
        assert inside
        assert all("backend=int8" in layer for layer in inside)
        assert "backend=int8" not in repr(backbone._heads[""].classifier)
        rows, expected = (
            np.array([out.outputs.data.numpy() for out in each.reward(short_texts(9))]) for each in (llm, exact)
        )
    error = np.abs(rows - expected).max() / np.abs(expected).max()
    assert 1e-5 < error < 0.2


def test_the_fingerprint_tells_int8(tiny_sentence: TinySentence) -> None:
    folder = str(tiny_sentence(pooling="mean"))
    with LLM(folder) as exact, LLM(folder, quantization="int8") as rough:
        assert exact.fingerprint != rough.fingerprint


def test_a_cpu_where_int8_is_slow_without_our_kernels_says_so(
    tiny_sentence: TinySentence, caplog: pytest.LogCaptureFixture
) -> None:
    with LLM(str(tiny_sentence(pooling="mean")), quantization="int8", kernels="off"):
        said = [record.getMessage() for record in caplog.records if "far slower than float32" in record.getMessage()]
    assert len(said) == (0 if HAS_AVX512 else 1)


def test_half_precision_and_int8_exclude_each_other(tiny_sentence: TinySentence) -> None:
    with pytest.raises(ConfigError, match=r"quantization='int8', but int8 products take activations in float32"):
        LLM(str(tiny_sentence(pooling="mean")), quantization="int8", dtype="bfloat16")
    with pytest.raises(ConfigError, match="quantization='fp8'"):
        LLM(str(tiny_sentence(pooling="mean")), quantization="fp8")
