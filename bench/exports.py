"""Exports the model to ONNX (optimised at level O3) and to OpenVINO. Runs in the peers' environment:

python -m bench.exports MODEL_FOLDER TARGET_FOLDER onnx|openvino
"""

from __future__ import annotations

import sys
from pathlib import Path


def export_onnx(model: Path, target: Path) -> None:
    """Write `onnx/model.onnx` and `onnx/model_O3.onnx` under `target`, float32."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.backend import export_optimized_onnx_model

    kwargs = {"export": True, "provider": "CPUExecutionProvider"}
    st = SentenceTransformer(str(model), device="cpu", backend="onnx", model_kwargs=kwargs)
    st.save_pretrained(str(target))
    export_optimized_onnx_model(st, "O3", str(target))


def export_openvino(model: Path, target: Path) -> None:
    """Write the OpenVINO model in float32 under `target`."""
    from sentence_transformers import SentenceTransformer

    st = SentenceTransformer(str(model), device="cpu", backend="openvino", model_kwargs={"export": True})
    st.save_pretrained(str(target))


if __name__ == "__main__":
    exporters = {"onnx": export_onnx, "openvino": export_openvino}
    exporters[sys.argv[3]](Path(sys.argv[1]), Path(sys.argv[2]))
