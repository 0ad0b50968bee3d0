"""Exports a model to ONNX (optimised at level O3) and to OpenVINO. Runs in the peers' environment:

python -m bench.exports MODEL_FOLDER TARGET_FOLDER onnx|openvino embed|rerank
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def model_class(task: str) -> Any:
    """The class of sentence-transformers that serves `task`."""
    from sentence_transformers import CrossEncoder, SentenceTransformer

    return {"embed": SentenceTransformer, "rerank": CrossEncoder}[task]


def export_onnx(model: Path, target: Path, task: str) -> None:
    """Write `onnx/model.onnx` and `onnx/model_O3.onnx` under `target`, float32."""
    from sentence_transformers.backend import export_optimized_onnx_model

    kwargs = {"export": True, "provider": "CPUExecutionProvider"}
    st = model_class(task)(str(model), device="cpu", backend="onnx", model_kwargs=kwargs)
    st.save_pretrained(str(target))
    export_optimized_onnx_model(st, "O3", str(target))


def export_openvino(model: Path, target: Path, task: str) -> None:
    """Write the OpenVINO model in float32 under `target`."""
    st = model_class(task)(str(model), device="cpu", backend="openvino", model_kwargs={"export": True})
    st.save_pretrained(str(target))


if __name__ == "__main__":
    exporters = {"onnx": export_onnx, "openvino": export_openvino}
    exporters[sys.argv[3]](Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4])
