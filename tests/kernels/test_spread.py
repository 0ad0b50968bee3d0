"""Kernels on several cores: the same results bit for bit, for one thread at a time, and no work once it has ended."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from cenote.config import MachineSettings, Quantization
from cenote.layers import kernels as layers
from cenote.layers.int8 import Int8Product
from cenote.layers.kernels import ACTIVATIONS
from cenote.runner import Runner
from cenote.types import Batch, Encoded, FloatArray, ReadKey
from cenote_kernels import Kernels, spread
from support.fixtures import Tiny
from support.forwards import recipe_of
from support.guarded import guarded

CORES = len(os.sched_getaffinity(0))
COLUMNS = 32
PATIENCE_S = 60.0
needs_cores = pytest.mark.skipif(CORES < 2, reason="this process may use one core")


def made(seed: int, *shape: int) -> FloatArray:
    """Random float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def product(kernels: Kernels, num: int, depth: int, width: int, activation: str = "gelu") -> Callable[[], FloatArray]:
    """A linear layer, whose result lies against a guard."""
    rows, weight, bias = made(1, num, depth), made(2, width, depth), guarded(made(3, width))
    panels = guarded(np.empty(-(-width // COLUMNS) * COLUMNS * depth, np.float32))
    kernels.pack(panels.ctypes.data, weight.ctypes.data, width, depth, depth)

    def call() -> FloatArray:
        out = guarded(np.full((num, width), np.nan, np.float32))
        addresses = [array.ctypes.data for array in (out, rows, panels, bias)]
        kernels.linear(*addresses, num, depth, width, depth, width, ACTIVATIONS[activation])
        return out

    return call


@contextmanager
def surely_spread() -> Iterator[None]:
    """As `spread`, which leaves a thread alone for a while where other processes have the cores."""
    ends_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_s:
        with spread(CORES) as begun:
            if begun:
                yield
                return
        time.sleep(0.01)
    pytest.fail(f"nothing was spread for {PATIENCE_S} s")


def helpers_s() -> list[float]:
    """Seconds on a core of each thread that helps."""
    tasks = [task for task in Path("/proc/self/task").iterdir() if (task / "comm").read_text() == "cenote-helper\n"]
    return [int((task / "schedstat").read_text().split()[0]) / 1e9 for task in tasks]


@needs_cores
@pytest.mark.parametrize("num", [1, 5, 14, 33, 300])
@pytest.mark.parametrize(("depth", "width"), [(1, 1), (7, 33), (100, 31), (384, 400), (1024, 96), (3000, 130)])
def test_a_product_is_the_same(kernels: Kernels, num: int, depth: int, width: int) -> None:
    call = product(kernels, num, depth, width)
    alone = call()
    with surely_spread():
        for _ in range(5):
            assert (call() == alone).all()


@needs_cores
def test_more_chunks_than_can_be_shared_out_are_all_done(kernels: Kernels) -> None:
    call = product(kernels, 1, 1, COLUMNS * 2**16 + 1)
    alone = call()
    with surely_spread():
        assert (call() == alone).all()


@needs_cores
@torch.inference_mode()
@pytest.mark.parametrize("activation", [None, "gelu", "relu"])
@pytest.mark.parametrize("num", [1, 11, 50, 130])
def test_a_product_in_int8_is_the_same(kernels: Kernels, num: int, activation: str | None) -> None:
    for depth, width in ((7, 33), (384, 400), (1536, 130)):
        weight, bias, rows = (torch.from_numpy(made(*of)) for of in ((1, width, depth), (2, width), (3, num, depth)))
        by = Int8Product(weight, bias, layers.Kernels(kernels.isa))
        alone = by(rows, activation)
        with surely_spread():
            assert torch.equal(by(rows, activation), alone)


@needs_cores
@pytest.mark.parametrize("quantization", ["none", "int8"])
@pytest.mark.parametrize("lengths", [(11,), (1,), (40, 3, 7), (60,)])
def test_a_forward_is_the_same(tiny: Tiny, quantization: Quantization, lengths: tuple[int, ...]) -> None:
    machine = MachineSettings(device="cpu", num_workers=CORES, threads_per_worker=1, quantization=quantization)
    runner = Runner(recipe_of(tiny("bert")), machine)
    texts = [Encoded((np.arange(n) * 7 % 40 + 5).astype(np.int32)) for n in lengths]
    batch = Batch.pack(texts, [ReadKey("embed")] * len(texts))
    (alone,) = runner.run(batch)
    for _ in range(20):
        (spread_out,) = runner.run(batch, alone=True)
        assert np.array_equal(spread_out.rows, alone.rows)


@needs_cores
def test_helpers_take_part_and_then_sleep(kernels: Kernels) -> None:
    call = product(kernels, 50, 384, 1536)
    with surely_spread():
        call()
        before_s = sum(helpers_s())
        ends_s = time.monotonic() + PATIENCE_S
        while sum(helpers_s()) == before_s and time.monotonic() < ends_s:
            call()
    assert len(helpers_s()) == CORES - 1
    assert sum(helpers_s()) > before_s
    time.sleep(0.3)
    rests_s = sum(helpers_s())
    time.sleep(0.5)
    assert sum(helpers_s()) == rests_s


@needs_cores
def test_after_a_rest_they_are_woken(kernels: Kernels) -> None:
    call = product(kernels, 20, 384, 700)
    alone = call()
    for _ in range(20):
        with surely_spread():
            assert (call() == alone).all()
        time.sleep(0.01)


@needs_cores
def test_they_are_roused_without_work_and_sleep_again(kernels: Kernels) -> None:
    call = product(kernels, 20, 384, 700)
    with surely_spread():
        call()
    time.sleep(0.3)
    rested_s = sum(helpers_s())
    with surely_spread():
        pass
    time.sleep(0.3)
    roused_s = sum(helpers_s())
    assert roused_s > rested_s
    time.sleep(0.3)
    assert sum(helpers_s()) == roused_s


@needs_cores
def test_one_thread_has_them_and_others_work_alone() -> None:
    with surely_spread():
        with ThreadPoolExecutor(1) as pool:
            assert not pool.submit(_begins).result()
        with spread(CORES) as begun:
            assert not begun
        assert not _begins()


@needs_cores
def test_several_threads_at_once(kernels: Kernels) -> None:
    calls = [product(kernels, num, 384, width) for num, width in ((1, 384), (11, 1536), (40, 700), (14, 32))]
    alone = [call() for call in calls]
    starts = threading.Barrier(len(calls))

    def work(number: int) -> bool:
        starts.wait()
        equal = True
        for _ in range(60):
            with spread(CORES):
                equal &= bool((calls[number]() == alone[number]).all())
        return equal

    with ThreadPoolExecutor(len(calls)) as pool:
        assert all(pool.map(work, range(len(calls))))


@needs_cores
@pytest.mark.parametrize("inside", [False, True])
def test_a_fork_has_no_helpers_until_it_needs_some(kernels: Kernels, inside: bool) -> None:
    call = product(kernels, 20, 384, 700)
    alone = call()
    with surely_spread():
        call()
        if inside:
            child = _forked(call, alone)
    if not inside:
        child = _forked(call, alone)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with surely_spread():
        assert (call() == alone).all()


def test_one_core_is_never_spread() -> None:
    for cores in (-1, 0, 1):
        with spread(cores) as begun:
            assert not begun


def _begins() -> bool:
    with spread(CORES) as begun:
        return begun


def _forked(call: Callable[[], FloatArray], alone: FloatArray) -> int:
    """A child that ends with 0 where it works alone, then with helpers of its own, and finds the same."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        right = not helpers_s() and bool((call() == alone).all())
        with spread(CORES) as begun:
            right &= begun and len(helpers_s()) == CORES - 1 and bool((call() == alone).all())
        code = 0 if right else 2
    finally:
        os._exit(code)
