"""Two models, each behind one real server for the whole session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from .running import Server

if TYPE_CHECKING:
    from support.fixtures import TinySentence

NAME, ALIAS, KEY = "tiny/normalised", "text-embedding-3-small", "sesame"
PROMPTS = {"query": "query: ", "passage": "passage: "}


@pytest.fixture(scope="session")
def folder(tiny_sentence: TinySentence) -> Path:
    """A BERT that normalises, has prompts, and was trained with Matryoshka sizes."""
    return tiny_sentence(normalize=True, prompts=PROMPTS, matryoshka_dimensions=[8, 16])


@pytest.fixture(scope="session")
def raw_folder(tiny_sentence: TinySentence) -> Path:
    """A RoBERTa that does not normalise and has one size."""
    return tiny_sentence(model_type="roberta", pooling="cls")


@pytest.fixture(scope="session")
def server(folder: Path) -> Iterator[Server]:
    """The normalising model under a name with a slash, with an alias and a low limit on bodies."""
    with Server(folder, served_model_name=[NAME, ALIAS], max_body_bytes=2_000_000) as running:
        yield running


@pytest.fixture(scope="session")
def guarded(raw_folder: Path) -> Iterator[Server]:
    """The other model, behind keys."""
    with Server(raw_folder, served_model_name=["raw"], api_key=["first", KEY]) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    """Asks the server of the normalising model."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
