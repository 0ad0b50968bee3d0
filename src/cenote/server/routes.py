"""The table of all routes: the application and its OpenAPI document are both built from it.

Each file of a dialect has its own rows; here stands in which order they are looked through where they share a path:
rows with a deciding header first, then rows with deciding keys, then the one that takes the rest.
"""

from __future__ import annotations

from . import (
    classify,
    cohere,
    cohere_more,
    hf,
    infinity,
    invocations,
    jina,
    llamacpp,
    mixedbread,
    ollama,
    openai,
    ops,
    pooling,
    scoring,
    tei,
    tei_more,
    used,
    vllm,
    voyage,
)
from .route import Route

ROUTES: tuple[Route, ...] = (
    *cohere.ROUTES,
    *cohere_more.ROUTES,
    *tei.ROUTES,
    *tei_more.ROUTES,
    *hf.ROUTES,
    *ollama.ROUTES,
    *jina.ROUTES,
    *voyage.ROUTES,
    *mixedbread.ROUTES,
    *llamacpp.ROUTES,
    *infinity.ROUTES,
    *openai.ROUTES,
    *classify.ROUTES,
    *scoring.ROUTES,
    *pooling.ROUTES,
    *invocations.ROUTES,
    *used.ROUTES,
    *vllm.ROUTES,
    *ops.ROUTES,
)
