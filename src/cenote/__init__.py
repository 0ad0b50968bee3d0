"""Cenote: an engine made for serving pooling models.

Names are found on first use, so that `import cenote` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aio import AsyncLLM
    from .config import PoolerConfig
    from .errors import CenoteError
    from .io_plugins import IOPlugin
    from .llm import LLM
    from .outputs import (
        ClassificationOutput,
        ClassificationRequestOutput,
        EmbeddingOutput,
        EmbeddingRequestOutput,
        PoolingOutput,
        PoolingParams,
        PoolingRequestOutput,
        RerankResult,
        ScoringOutput,
        ScoringRequestOutput,
        SparseEmbeddingOutput,
        SparseEmbeddingRequestOutput,
    )
    from .types import Pair
    from .uses.entities import Entity
    from .uses.zero_shot import ZeroShot

__version__ = "0.1.0"

_HOME = {
    "AsyncLLM": "aio",
    "CenoteError": "errors",
    "ClassificationOutput": "outputs",
    "ClassificationRequestOutput": "outputs",
    "RerankResult": "outputs",
    "ScoringOutput": "outputs",
    "ScoringRequestOutput": "outputs",
    "EmbeddingOutput": "outputs",
    "EmbeddingRequestOutput": "outputs",
    "Entity": "uses.entities",
    "IOPlugin": "io_plugins",
    "LLM": "llm",
    "Pair": "types",
    "PoolerConfig": "config",
    "PoolingOutput": "outputs",
    "PoolingParams": "outputs",
    "PoolingRequestOutput": "outputs",
    "SparseEmbeddingOutput": "outputs",
    "SparseEmbeddingRequestOutput": "outputs",
    "ZeroShot": "uses.zero_shot",
}

__all__ = [
    "LLM",
    "AsyncLLM",
    "CenoteError",
    "ClassificationOutput",
    "ClassificationRequestOutput",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "Entity",
    "IOPlugin",
    "Pair",
    "PoolerConfig",
    "PoolingOutput",
    "PoolingParams",
    "PoolingRequestOutput",
    "RerankResult",
    "ScoringOutput",
    "ScoringRequestOutput",
    "SparseEmbeddingOutput",
    "SparseEmbeddingRequestOutput",
    "ZeroShot",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
