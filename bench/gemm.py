"""What this machine can reach in float32 matrix products, which no engine can pass.

One process per core, one thread each, all at once: that is how an engine uses them, and it takes in what cores lose to
each other (clock, shared cache, memory). The limit is the best sum over libraries, token counts and shapes, so it
flatters nobody.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import peers
from .errors import GemmFailed
from .flops import Dims

TOKEN_COUNTS = (256, 512, 1024, 2048)


@dataclass(frozen=True, slots=True)
class GemmLimit:
    """The best rate found, over all cores together.

    Args:
        gflops: GFLOP/s.
        where: Library and shape that gave it.
        rates: Every combination tried -> GFLOP/s.
    """

    gflops: float
    where: str
    rates: dict[str, float]


def measure(dims: Dims, cpus: Sequence[int], window_s: float = 0.1) -> GemmLimit:
    """Run one child per CPU, all at once, each pinned to its own, and add up their rates."""
    command = [sys.executable, "-m", "bench.gemm", json.dumps(dims.gemm_shapes), str(window_s)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    where: dict[str, Any] = {"cwd": peers.ROOT, "env": peers.environment(in_peers=False)}
    children = [subprocess.Popen([*command, str(cpu)], **pipes, **where) for cpu in cpus]
    for child in children:  # both have imported torch and wait
        _expect(child, "ready")
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    answers = [json.loads(_expect(child, "{")) for child in children]
    for child in children:
        child.communicate(timeout=30)
    rates = {key: sum(answer[key] for answer in answers) for key in answers[0]}
    best = max(rates, key=lambda key: rates[key])
    return GemmLimit(rates[best], best, rates)


def _expect(child: subprocess.Popen[str], start: str) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line.startswith(start):
        raise GemmFailed(f"the GEMM child said {line!r} instead of {start!r}; its own message stands above")
    return line


def _child(shapes: Sequence[tuple[int, int]], window_s: float, cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    import torch

    torch.set_num_threads(1)
    print("ready", flush=True)
    sys.stdin.readline()
    rates: dict[str, float] = {}
    with torch.inference_mode():
        for num_tokens, (width_in, width_out) in itertools.product(TOKEN_COUNTS, shapes):
            flops = 2 * num_tokens * width_in * width_out
            for library, product in _libraries(num_tokens, width_in, width_out):
                key = f"{library} [{num_tokens} x {width_in}] @ [{width_in} x {width_out}]"
                rates[key] = flops / _fastest_s(product, window_s) / 1e9
    print(json.dumps(rates), flush=True)


def _libraries(num_tokens: int, width_in: int, width_out: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """The float32 products that torch can reach on a CPU: its own choice, oneDNN and MKL with packed weights."""
    import torch

    x_TD = torch.randn(num_tokens, width_in)
    weight = torch.randn(width_out, width_in)
    bias = torch.randn(width_out)
    yield "torch linear", lambda: torch.nn.functional.linear(x_TD, weight, bias)
    if torch.backends.mkldnn.is_available():
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, num_tokens)
        yield "oneDNN packed", lambda: torch.ops.mkldnn._linear_pointwise(x_TD, packed, bias, "none", [], "")
        if torch.backends.mkl.is_available():
            mkl = torch.ops.mkl._mkl_reorder_linear_weight(weight, num_tokens)
            yield "MKL packed", lambda: torch.ops.mkl._mkl_linear(x_TD, mkl, weight, bias, num_tokens)


def _fastest_s(product: Callable[[], object], window_s: float) -> float:
    """Seconds of the fastest call within a window; windows have a fixed length so that the children stay in step."""
    product()
    fastest = float("inf")
    end = time.perf_counter() + window_s
    while (start := time.perf_counter()) < end:
        product()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest


if __name__ == "__main__":
    _child(json.loads(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
