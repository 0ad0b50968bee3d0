"""One model of each kind, each behind one real server for the whole session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import huggingface_hub
import pytest

from cenote.checkpoint import embedded_default
from cenote.llm import LLM

from .running import Server

if TYPE_CHECKING:
    from support.fixtures import Tiny, TinySentence

NAME, ALIAS, KEY = "tiny/normalised", "text-embedding-3-small", "sesame"
PROMPTS = {"query": "query: ", "passage": "passage: "}
LABELS = {0: "contradiction", 1: "entailment", 2: "neutral"}
# One body that each route takes; every test that is about requests as such runs through all of them.
BODIES: dict[str, dict[str, object]] = {
    "/v1/embeddings": {"input": "a"},
    "/classify": {"input": "a"},
    "/pooling": {"input": "a"},
    "/score": {"text_1": "a", "text_2": "b"},
    "/v1/score": {"data_1": "a", "data_2": "b"},
    "/rerank": {"query": "a", "documents": ["b"]},
    "/v1/rerank": {"query": "a", "documents": ["b"]},
    "/v2/rerank": {"query": "a", "documents": ["b"]},
    "/invocations": {"input": "a"},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [1]},
}

# Routes whose call can run for seconds, and the fields in which they take many texts.
LONG_CALLS: dict[str, tuple[str, dict[str, str]]] = {
    "/v1/embeddings": ("input", {}),
    "/pooling": ("input", {"task": "token_embed"}),
    "/score": ("text_2", {"text_1": "a"}),
    "/rerank": ("documents", {"query": "a"}),
    "/invocations": ("input", {}),
}


@dataclass(frozen=True)
class Kind:
    """One model behind a real server, and the same in this process."""

    name: str
    folder: Path
    server: Server
    llm: LLM

    def post(self, path: str, **body: object) -> httpx.Response:
        """Ask the server; the answer is a 200."""
        response = self.ask(path, **body)
        assert response.status_code == 200, response.text
        return response

    def ask(self, path: str, **body: object) -> httpx.Response:
        """Ask the server."""
        return httpx.post(self.server.url + path, json=body, timeout=60)


def serving(name: str, folder: Path) -> Iterator[Kind]:
    """Serve a folder both ways."""
    with Server(folder, served_model_name=[name]) as server, LLM(str(folder), device="cpu") as llm:
        yield Kind(name, folder, server, llm)


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
    with Server(raw_folder, served_model_name=["raw"], api_key=["first", KEY], any_model_name=True) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    """Asks the server of the normalising model."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def embedder(folder: Path, server: Server) -> Iterator[Kind]:
    """The normalising model."""
    with LLM(str(folder), device="cpu") as llm:
        yield Kind(NAME, folder, server, llm)


@pytest.fixture(scope="session")
def default_embedder() -> Iterator[Kind]:
    """The embedded default."""
    yield from serving("default", embedded_default().folder)


@pytest.fixture(scope="session")
def cross_encoder(tiny: Tiny) -> Iterator[Kind]:
    """A BERT with one label."""
    yield from serving("cross-encoder", tiny("bert", head="sequence_classification", num_labels=1))


@pytest.fixture(scope="session")
def classifier(tiny: Tiny) -> Iterator[Kind]:
    """A RoBERTa with three named labels."""
    yield from serving("classifier", tiny("roberta", head="sequence_classification", id2label=LABELS))


@pytest.fixture(scope="session")
def token_classifier(tiny: Tiny) -> Iterator[Kind]:
    """An ELECTRA that labels tokens."""
    yield from serving("token-classifier", tiny("electra", head="token_classification"))


@pytest.fixture(scope="session")
def masked_lm(tiny: Tiny) -> Iterator[Kind]:
    """A BERT that fills masks, and so makes sparse vectors."""
    yield from serving("masked-lm", tiny("bert", head="masked_lm"))


@pytest.fixture
def hub_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let Hugging Face's client speak, which the tests' offline mode forbids; it keeps its connections until closed."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    yield
    huggingface_hub.close_session()


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    """The model that a test names, or the one that answers the path that it names."""
    found: Kind = request.getfixturevalue(KIND_OF.get(request.param, request.param))
    return found


KIND_OF = {
    **dict.fromkeys(BODIES, "embedder"),
    "/classify": "classifier",
    **{path: "cross_encoder" for path in BODIES if "score" in path or "rerank" in path},
}
