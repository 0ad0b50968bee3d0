"""Who computes is decided once and said: our own kernels or PyTorch."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
import torch

import cenote_kernels
from cenote import LLM
from cenote.config import MachineSettings
from cenote.device import KERNELS_VERSION, plan, why_not_kernels
from cenote.errors import ConfigError
from cenote.layers.kernels import Kernels
from cenote.layers.norms import LayerNorm
from support.fixtures import Tiny
from support.texts import short_texts

CPU = torch.device("cpu")
BUILT = cenote_kernels.why_not() is None
needs_kernels = pytest.mark.skipif(not BUILT, reason=f"kernels: {cenote_kernels.why_not()}")


def one_thread(**more: Any) -> MachineSettings:
    """Settings with which kernels can be used."""
    return MachineSettings(device="cpu", num_workers=1, threads_per_worker=1, **more)


@needs_kernels
def test_the_best_are_taken_unless_the_user_says_otherwise() -> None:
    best, *others = cenote_kernels.isas()
    assert plan(one_thread(), "auto", "float32").kernels == best
    assert plan(one_thread(kernels="off"), "auto", "float32").kernels is None
    for isa in others:
        assert plan(one_thread(kernels=isa), "auto", "float32").kernels == isa


def test_why_not() -> None:
    assert "takes one" not in (why_not_kernels(CPU, torch.float32, 1) or "")
    assert "2 compute threads" in (why_not_kernels(CPU, torch.float32, 2) or "")
    assert "torch.bfloat16" in (why_not_kernels(CPU, torch.bfloat16, 1) or "")
    assert "on meta" in (why_not_kernels(torch.device("meta"), torch.float32, 1) or "")


def test_without_the_package_pytorch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cenote_kernels", None)
    here = plan(one_thread(), "auto", "float32")
    assert here.kernels is None
    assert here.reasons["kernels"] == "auto: the package cenote-kernels is not installed"


@needs_kernels
def test_kernels_of_another_version_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cenote_kernels, "__version__", "0.1.0")
    why = f"cenote-kernels is 0.1.0, and this Cenote needs {KERNELS_VERSION}"
    here = plan(one_thread(), "auto", "float32")
    assert here.kernels is None
    assert here.reasons["kernels"] == f"auto: {why}"
    with pytest.raises(ConfigError, match=re.escape(f"kernels='avx2', but {why}")):
        plan(one_thread(kernels="avx2"), "auto", "float32")


def test_a_model_that_transformers_computes_has_none() -> None:
    here = plan(one_thread(), "auto", "float32", native=False)
    assert here.kernels is None
    assert here.reasons["kernels"] == "auto: transformers computes this model"
    with pytest.raises(ConfigError, match="kernels='avx2', but transformers computes this model"):
        plan(one_thread(kernels="avx2"), "auto", "float32", native=False)


def test_kernels_that_cannot_be_had_are_refused() -> None:
    machine = MachineSettings(device="cpu", num_workers=1, threads_per_worker=2, kernels="avx2")
    with pytest.raises(ConfigError, match=r"kernels='avx2', but a worker has 2 compute threads.*Use auto or off"):
        plan(machine, "auto", "float32")


@needs_kernels
@pytest.mark.parametrize("isa", cenote_kernels.isas() if BUILT else ())
def test_layer_norm_is_that_of_pytorch(isa: str) -> None:
    torch.manual_seed(0)
    norm = LayerNorm(37)
    with torch.inference_mode():
        norm.weight.normal_()
        norm.bias.normal_()
        for shape in ((5, 37), (2, 3, 37)):
            rows, added = torch.randn(shape), torch.randn(shape).transpose(0, 1).contiguous().transpose(0, 1)
            norm.kernels = None
            expected = norm(rows.clone(), added), norm(rows)
            norm.kernels = Kernels(isa)
            found = norm(rows.clone(), added), norm(rows)
            for ours, theirs in zip(found, expected, strict=True):
                assert (ours - theirs).abs().max() <= 2e-6 * theirs.abs().max()


@needs_kernels
def test_vectors_with_and_without(tiny: Tiny) -> None:
    folder = str(tiny("bert"))
    rows = {
        kernels: LLM(folder, device="cpu", num_workers=1, threads_per_worker=1, kernels=kernels).embed(
            short_texts(20), output="numpy"
        )
        for kernels in ("off", *cenote_kernels.isas())
    }
    for kernels in cenote_kernels.isas():
        assert abs(rows[kernels] - rows["off"]).max() <= 1e-5 * abs(rows["off"]).max()
