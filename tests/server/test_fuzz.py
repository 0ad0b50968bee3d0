"""Made-up requests by the hundred: no 5xx, and every answer as the OpenAPI document says."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from .conftest import BODIES, Kind

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


OTHERS = {
    "embedder": (
        "/embed",
        "/similarity",
        "/decode",
        "/vertex",
        "/",
        "/jina/v1/embeddings",
        "/voyage/v1/embeddings",
        "/v1/contextualizedembeddings",
        "/mixedbread/v1/embeddings",
        "/embeddings",
        "/llamacpp/embedding",
    ),
    "classifier": ("/predict", "/infinity/classify"),
    "cross_encoder": ("/tei/rerank", "/v1/reranking", "/infinity/rerank"),
    "default_embedder": ("/api/embed",),
}
"""Paths of other dialects, by the model that is asked."""


@pytest.mark.parametrize("valid", [True, False])
@pytest.mark.parametrize(
    ("kind", "path"),
    [*((path, path) for path in BODIES), *((kind, path) for kind, paths in OTHERS.items() for path in paths)],
    indirect=["kind"],
)
def test_made_up_requests(kind: Kind, path: str, valid: bool) -> None:
    url = kind.server.url
    operation = schemathesis.openapi.from_url(f"{url}/openapi.json")[path]["POST"]
    statuses = set()
    mode = schemathesis.GenerationMode.POSITIVE if valid else schemathesis.GenerationMode.NEGATIVE

    @settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case[Any]) -> None:
        statuses.add(case.call_and_validate(base_url=url, checks=CHECKS, timeout=60).status_code)

    ask()
    assert statuses
    assert max(statuses) < 500
