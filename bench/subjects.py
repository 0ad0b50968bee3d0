"""What is compared: how each library is loaded, given its threads and asked for vectors. Runs inside a worker."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np


@dataclass(frozen=True, slots=True)
class Subject:
    """One row of the comparison.

    Args:
        name: What the command line calls it.
        title: What tables and plots call it.
        in_peers: Whether it needs the peers' environment; else it runs in the interpreter that runs the benchmark.
        batch_sizes: Sizes tried before the rounds; the fastest is kept. Empty where the library chooses itself.
    """

    name: str
    title: str
    in_peers: bool = False
    batch_sizes: tuple[int, ...] = ()

    @property
    def is_cenote(self) -> bool:
        return self.name.startswith("cenote")


REFERENCE = "st-torch"
_BATCH_SIZES = (8, 32, 128)

SUBJECTS = {
    s.name: s
    for s in (
        Subject("cenote", "Cenote"),
        Subject("cenote-lists", "Cenote, lists"),
        Subject("st-torch", "ST torch", batch_sizes=_BATCH_SIZES),
        Subject("st-onnx", "ST ONNX O3", in_peers=True, batch_sizes=_BATCH_SIZES),
        Subject("st-openvino", "ST OpenVINO", in_peers=True, batch_sizes=_BATCH_SIZES),
    )
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A library ready to embed.

    Args:
        embed: (texts, batch size or None) -> vectors in the form that the library's user gets.
        to_array: That form -> float32 `[N, D]`; never timed.
        threading: How its threads were set, in words.
        versions: Packages that matter -> their versions.
    """

    embed: Callable[[list[str], int | None], Any]
    to_array: Callable[[Any], Any]
    threading: str
    versions: dict[str, str]


Loader: TypeAlias = Callable[[str, str, int], Loaded]
"""(model folder, folder of exported models, threads) -> Loaded"""


def _load_cenote(model: str, exports: str, threads: int) -> Loaded:
    from cenote import LLM

    llm = LLM(model=model, runner="pooling")
    return Loaded(
        embed=lambda texts, _: llm.embed(texts, output="numpy", use_tqdm=False),
        to_array=lambda result: result,
        threading=f"its default: follows the affinity ({threads} CPUs)",
        versions=_versions("torch", "tokenizers"),
    )


def _load_cenote_lists(model: str, exports: str, threads: int) -> Loaded:
    from cenote import LLM

    llm = LLM(model=model, runner="pooling")
    return Loaded(
        embed=lambda texts, _: llm.embed(texts, use_tqdm=False),
        to_array=lambda result: np.array([out.outputs.embedding for out in result], np.float32),
        threading=f"its default: follows the affinity ({threads} CPUs)",
        versions=_versions("torch", "tokenizers"),
    )


def _load_torch(model: str, exports: str, threads: int) -> Loaded:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    st = SentenceTransformer(model, device="cpu")
    return _sentence_transformer(st, f"torch.set_num_threads({threads})", "torch")


def _load_onnx(model: str, exports: str, threads: int) -> Loaded:
    import onnxruntime  # type: ignore[import-not-found,unused-ignore]
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)  # pooling and normalising still run in torch
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    kwargs = {"file_name": "onnx/model_O3.onnx", "provider": "CPUExecutionProvider", "session_options": options}
    st = SentenceTransformer(str(Path(exports, "onnx")), device="cpu", backend="onnx", model_kwargs=kwargs)
    return _sentence_transformer(st, f"intra_op_num_threads={threads}", "onnxruntime", "optimum-onnx")


def _load_openvino(model: str, exports: str, threads: int) -> Loaded:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    # On a CPU with bfloat16 instructions OpenVINO would compute in bfloat16 unless told otherwise.
    config = {"INFERENCE_NUM_THREADS": str(threads), "INFERENCE_PRECISION_HINT": "f32"}
    folder = str(Path(exports, "openvino"))
    st = SentenceTransformer(folder, device="cpu", backend="openvino", model_kwargs={"ov_config": config})
    return _sentence_transformer(st, f"INFERENCE_NUM_THREADS={threads}", "openvino", "optimum-intel")


def _sentence_transformer(st: Any, threading: str, *packages: str) -> Loaded:
    def embed(texts: Sequence[str], batch_size: int | None) -> Any:
        return st.encode(texts, batch_size=batch_size or 32, show_progress_bar=False, convert_to_numpy=True)

    return Loaded(
        embed=embed,
        to_array=lambda result: result,
        threading=threading,
        versions=_versions("sentence-transformers", "transformers", *packages),
    )


def _versions(*packages: str) -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in packages}


LOADERS: dict[str, Loader] = {
    "cenote": _load_cenote,
    "cenote-lists": _load_cenote_lists,
    "st-torch": _load_torch,
    "st-onnx": _load_onnx,
    "st-openvino": _load_openvino,
}
