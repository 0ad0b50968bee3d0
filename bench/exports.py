"""Exports a model for the peers that do not run torch. Runs in the peers' environment:

python -m bench.exports MODEL_FOLDER TARGET_FOLDER onnx|openvino|onnx-int8|openvino-int8 embed|rerank
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from . import texts

_CALIBRATED_BY = {"short": 1024, "paragraphs": 160}
_EVERY = 4
"""One in so many of the texts of a full run calibrates: about as many as the exporter takes by default, 300."""


def model_class(task: str) -> Any:
    """The class of sentence-transformers that serves `task`."""
    from sentence_transformers import CrossEncoder, SentenceTransformer

    return {"embed": SentenceTransformer, "rerank": CrossEncoder}[task]


def export_onnx(model: Path, target: Path, task: str) -> None:
    """Write `onnx/model.onnx` and `onnx/model_O3.onnx` under `target`, float32."""
    from sentence_transformers.backend import export_optimized_onnx_model

    export_optimized_onnx_model(_saved_as_onnx(model, target, task), "O3", str(target))


def export_onnx_int8(model: Path, target: Path, task: str) -> None:
    """Write `onnx/model_qint8_avx512_vnni.onnx` and `onnx/model_quint8_avx2.onnx` under `target`: ranges of activations
    are found as they come.
    """
    from sentence_transformers.backend import export_dynamic_quantized_onnx_model

    st = _saved_as_onnx(model, target, task)
    for instructions in ("avx512_vnni", "avx2"):
        export_dynamic_quantized_onnx_model(st, instructions, str(target))


def export_openvino(model: Path, target: Path, task: str) -> None:
    """Write the OpenVINO model in float32 under `target`."""
    _loaded_for("openvino", model, task).save_pretrained(str(target))


def export_openvino_int8(model: Path, target: Path, task: str) -> None:
    """Write the OpenVINO model in 8 bits under `target`, activations in ranges calibrated on texts of the workloads.

    It is what `export_static_quantized_openvino_model` does, but for its texts, a data set of a hub, and their padding.
    """
    from optimum.intel import OVQuantizationConfig  # type: ignore[import-not-found,unused-ignore]
    from optimum.intel.openvino import OVConfig, OVQuantizer  # type: ignore[import-not-found,unused-ignore]

    st = _loaded_for("openvino", model, task)
    samples = [dict(st.tokenizer(text)) for text in _calibration_texts(model)]
    quantizer = OVQuantizer.from_pretrained(st.transformers_model)
    quantizer.quantize(samples, ov_config=OVConfig(quantization_config=OVQuantizationConfig(num_samples=len(samples))))
    st.save_pretrained(str(target))


def _loaded_for(backend: str, model: Path, task: str, **more: str) -> Any:
    kwargs = {"export": True, **more}
    return model_class(task)(str(model), device="cpu", backend=backend, model_kwargs=kwargs)


def _saved_as_onnx(model: Path, target: Path, task: str) -> Any:
    st = _loaded_for("onnx", model, task, provider="CPUExecutionProvider")
    st.save_pretrained(str(target))
    return st


def _calibration_texts(model: Path) -> list[str]:
    count = texts.token_counter(model)
    return [
        text
        for name, num_texts in _CALIBRATED_BY.items()
        for text in texts.build(name, num_texts, count).texts[::_EVERY]
    ]


EXPORTERS = {
    "onnx": export_onnx,
    "openvino": export_openvino,
    "onnx-int8": export_onnx_int8,
    "openvino-int8": export_openvino_int8,
}

if __name__ == "__main__":
    EXPORTERS[sys.argv[3]](Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4])
