"""What is compared: how each library is loaded, given its threads and asked for answers. Runs inside a worker."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

Task: TypeAlias = Literal["embed", "rerank"]
"""What a model is asked for: a vector per text, or a score per pair of the query with a text."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One row of the comparison.

    Args:
        name: What the command line calls it.
        title: What tables and plots call it.
        in_peers: Whether it needs the peers' environment; else it runs in the interpreter that runs the benchmark.
        batch_sizes: Sizes tried before the rounds; the fastest is kept. Empty where the library chooses itself.
        tasks: What it takes part in.
    """

    name: str
    title: str
    in_peers: bool = False
    batch_sizes: tuple[int, ...] = ()
    tasks: tuple[Task, ...] = ("embed", "rerank")

    @property
    def is_cenote(self) -> bool:
        return self.name.startswith("cenote")


def onnx_int8_kind(cpuinfo: str) -> str:
    """The name of the 8-bit ONNX model that suits a CPU with such a `/proc/cpuinfo`, as its exporter writes it."""
    return "qint8_avx512_vnni" if "avx512_vnni" in cpuinfo.split() else "quint8_avx2"


REFERENCE = "st-torch"
_BATCH_SIZES = (8, 32, 128)
_ONNX_INT8 = onnx_int8_kind(Path("/proc/cpuinfo").read_text())

SUBJECTS = {
    s.name: s
    for s in (
        Subject("cenote", "Cenote"),
        Subject("cenote-lists", "Cenote, lists", tasks=("embed",)),
        Subject("st-torch", "ST torch", batch_sizes=_BATCH_SIZES),
        Subject("st-onnx", "ST ONNX O3", in_peers=True, batch_sizes=_BATCH_SIZES),
        Subject("st-openvino", "ST OpenVINO", in_peers=True, batch_sizes=_BATCH_SIZES),
        Subject("cenote-int8", "Cenote, int8"),
        Subject("st-onnx-int8", f"ST ONNX {_ONNX_INT8}", in_peers=True, batch_sizes=_BATCH_SIZES, tasks=("embed",)),
        Subject("st-openvino-int8", "ST OpenVINO int8", in_peers=True, batch_sizes=_BATCH_SIZES, tasks=("embed",)),
        Subject("cenote-unshared", "Cenote, prefixes not shared"),
    )
}

RACED = ("cenote", "cenote-lists", "st-torch", "st-onnx", "st-openvino")
"""Who takes part in the comparison with peers unless some are named."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A library ready to answer.

    Args:
        run: (query or None, texts, batch size or None) -> vectors or scores in the form that the library's user gets.
        to_array: That form -> float32 `[N, D]` or `[N]`; never timed.
        threading: How its threads were set, in words.
        versions: Packages that matter -> their versions.
    """

    run: Callable[[str | None, list[str], int | None], Any]
    to_array: Callable[[Any], Any]
    threading: str
    versions: dict[str, str]


Loader: TypeAlias = Callable[[str, str, int], Loaded]
"""(model folder, folder of exported models, threads) -> Loaded"""


def _cenote(model: str, exports: str, threads: int, **settings: Any) -> Loaded:
    from cenote import LLM

    llm = LLM(model=model, runner="pooling", **settings)
    return Loaded(
        run=lambda query, texts, _: llm.embed(texts, output="numpy", use_tqdm=False),
        to_array=lambda result: result,
        **_of_cenote(threads),
    )


def _cenote_lists(model: str, exports: str, threads: int) -> Loaded:
    from cenote import LLM

    llm = LLM(model=model, runner="pooling")
    return Loaded(
        run=lambda query, texts, _: llm.embed(texts, use_tqdm=False),
        to_array=lambda result: np.array([out.outputs.embedding for out in result], np.float32),
        **_of_cenote(threads),
    )


def _cenote_rerank(model: str, exports: str, threads: int, **settings: Any) -> Loaded:
    from cenote import LLM

    llm = LLM(model=model, runner="pooling", **settings)
    return Loaded(
        run=lambda query, texts, _: llm.score(query, texts, use_tqdm=False),
        to_array=lambda result: np.array([out.outputs.score for out in result], np.float32),
        **_of_cenote(threads),
    )


def _of_cenote(threads: int) -> dict[str, Any]:
    threading = f"its default: follows the affinity ({threads} CPUs)"
    return {"threading": threading, "versions": _versions("torch", "tokenizers")}


def _torch(task: Task, model: str, exports: str, threads: int) -> Loaded:
    import torch

    torch.set_num_threads(threads)
    return _sentence_transformers(task, model, {}, f"torch.set_num_threads({threads})", "torch")


def _onnx(
    task: Task, model: str, exports: str, threads: int, folder: str = "onnx", file: str = "model_O3.onnx"
) -> Loaded:
    import onnxruntime  # type: ignore[import-not-found,unused-ignore]
    import torch

    torch.set_num_threads(threads)  # pooling and normalising still run in torch
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    kwargs = {"file_name": f"onnx/{file}", "provider": "CPUExecutionProvider", "session_options": options}
    how = {"backend": "onnx", "model_kwargs": kwargs}
    words = f"intra_op_num_threads={threads}"
    return _sentence_transformers(task, str(Path(exports, folder)), how, words, "onnxruntime", "optimum-onnx")


def _openvino(task: Task, model: str, exports: str, threads: int, folder: str = "openvino") -> Loaded:
    import torch

    torch.set_num_threads(threads)
    # On a CPU with bfloat16 instructions OpenVINO would compute in bfloat16 unless told otherwise.
    config = {"INFERENCE_NUM_THREADS": str(threads), "INFERENCE_PRECISION_HINT": "f32"}
    how = {"backend": "openvino", "model_kwargs": {"ov_config": config}}
    words = f"INFERENCE_NUM_THREADS={threads}"
    return _sentence_transformers(task, str(Path(exports, folder)), how, words, "openvino", "optimum-intel")


def _sentence_transformers(task: Task, folder: str, how: Mapping[str, Any], threading: str, *packages: str) -> Loaded:
    from sentence_transformers import CrossEncoder, SentenceTransformer

    st: Any = (SentenceTransformer if task == "embed" else CrossEncoder)(folder, device="cpu", **how)

    def embed(query: str | None, texts: Sequence[str], batch_size: int | None) -> Any:
        return st.encode(texts, batch_size=batch_size or 32, show_progress_bar=False, convert_to_numpy=True)

    def rerank(query: str | None, texts: Sequence[str], batch_size: int | None) -> Any:
        pairs = [(query, text) for text in texts]
        return st.predict(pairs, batch_size=batch_size or 32, show_progress_bar=False, convert_to_numpy=True)

    return Loaded(
        run=embed if task == "embed" else rerank,
        to_array=lambda result: result,
        threading=threading,
        versions=_versions("sentence-transformers", "transformers", *packages),
    )


def _versions(*packages: str) -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in packages}


LOADERS: dict[tuple[Task, str], Loader] = {
    ("embed", "cenote"): _cenote,
    ("embed", "cenote-lists"): _cenote_lists,
    ("rerank", "cenote"): _cenote_rerank,
}
for _name, _settings in (("cenote-int8", {"quantization": "int8"}), ("cenote-unshared", {"share_prefixes": False})):
    LOADERS["embed", _name] = partial(_cenote, **_settings)
    LOADERS["rerank", _name] = partial(_cenote_rerank, **_settings)
_PEERS: tuple[tuple[str, Callable[[Task, str, str, int], Loaded]], ...] = (
    ("st-torch", _torch),
    ("st-onnx", _onnx),
    ("st-openvino", _openvino),
)
for _name, _peer in _PEERS:
    LOADERS["embed", _name] = partial(_peer, "embed")
    LOADERS["rerank", _name] = partial(_peer, "rerank")
LOADERS["embed", "st-onnx-int8"] = partial(_onnx, "embed", folder="onnx-int8", file=f"model_{_ONNX_INT8}.onnx")
LOADERS["embed", "st-openvino-int8"] = partial(_openvino, "embed", folder="openvino-int8")
