"""The examples of docs/clients.md, each with the real client, against sentence-transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken

from clients.record import FIRST_HEADING, PAGE
from house.test_docs import blocks
from support.references import reference_vectors

from .running import Server
from .test_token_ids import plugin, reading  # noqa: F401  # fixtures

# Those from that heading on run in an environment of their own.
HERE = PAGE.read_text(encoding="utf-8").partition(FIRST_HEADING)[0]
EXAMPLES = [block for block in blocks(HERE) if block.language == "python"]
TEXTS = ["a text", "another"]
ADDRESS = "http://127.0.0.1:8000"

# Of the clients' own code, while they are imported and used.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")


@pytest.fixture(scope="module")
def named(folder: Path) -> Iterator[Server]:
    """The normalising model under the names of the page."""
    with Server(folder, model_alias=["text-embedding-3-small", "embed-english-v3.0"]) as running:
        yield running


def run(text: str, server: Server) -> dict[str, Any]:
    """Run an example against a server; what it leaves behind."""
    namespace: dict[str, Any] = {}
    assert ADDRESS in text
    exec(compile(text.replace(ADDRESS, server.url), str(PAGE), "exec"), namespace)
    return namespace


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
@pytest.mark.usefixtures("hub_client")
def test_the_example_gives_the_vectors(named: Server, folder: Path, number: int) -> None:
    left = run(EXAMPLES[number].text, named)
    # Cohere's search_document is the prompt `passage`.
    prompt = "passage: " if "search_document" in EXAMPLES[number].text else ""
    reference = reference_vectors(folder, [prompt + text for text in TEXTS])
    assert np.abs(np.array(left["vectors"]) - reference).max() <= 1e-5 * np.abs(reference).max()
    if "ranking" in left:
        assert [one.index for one in left["ranking"].results] == [1]
    if "cosines" in left:
        assert np.argmax(left["cosines"]) == 1
    if "best" in left:
        assert [one.node.text for one in left["best"]] == ["a text"]
    if "label" in left:
        assert left["label"].classifications[0].prediction in ("good", "bad")


def test_langchain_as_it_comes(reading: Server, named: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    from openai import BadRequestError

    # The vocabulary of the encoding that it wants is not on every machine; a smaller one takes its place.
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "cl100k_base", tiktoken.get_encoding("standin"))
    (example,) = [block.text for block in EXAMPLES if "langchain" in block.text]
    as_it_comes = example.replace("    check_embedding_ctx_length=False,\n", "")
    assert as_it_comes != example
    left = run(as_it_comes.replace("text-embedding-3-small", "any"), reading)
    reference = reference_vectors(folder, TEXTS)
    assert np.abs(np.array(left["vectors"]) - reference).max() <= 1e-5 * np.abs(reference).max()
    with pytest.raises(BadRequestError, match="check_embedding_ctx_length=False"):
        run(as_it_comes, named)
