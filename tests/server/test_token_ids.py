"""Token ids of another tokenizer: refused with the setting that helps, or read as text with tiktoken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tiktoken
from transformers import AutoTokenizer

from cenote.errors import ConfigError
from cenote.server.token_ids import TokenIds
from support.texts import short_texts

from .conftest import Kind
from .running import Server

# A small encoding in the form in which tiktoken takes plugins: all bytes, and two longer pieces.
PLUGIN = r"""
def standin():
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"th": 256, b"the": 257}
    return {"name": "standin", "pat_str": r"\S+|\s+", "mergeable_ranks": ranks, "special_tokens": {"<|end|>": 300}}

ENCODING_CONSTRUCTORS = {"standin": standin}
"""
TEXTS = ["the other one", *short_texts(3), "Grüße, 世界"]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the encoding, which this process knows too."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "tiktoken_ext").mkdir()
    (folder / "tiktoken_ext" / "standin.py").write_text(PLUGIN, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setattr("tiktoken.registry.ENCODING_CONSTRUCTORS", None)
        tiktoken.registry._available_plugin_modules.cache_clear()
        yield folder
        tiktoken.registry._available_plugin_modules.cache_clear()
    sys.modules.pop("tiktoken_ext.standin", None)


@pytest.fixture(scope="module")
def reading(folder: Path, plugin: Path) -> Iterator[Server]:
    """The normalising model behind a server that reads ids of that encoding as text."""
    with Server(folder, served_model_name=["any"], openai_token_ids="tiktoken:standin", paths=[plugin]) as running:
        yield running


def vectors(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return np.array([row["embedding"] for row in response.json()["data"]], np.float32)


def test_ids_of_tiktoken_are_read_as_text(reading: Server, embedder: Kind) -> None:
    encoding = tiktoken.get_encoding("standin")
    ids = [encoding.encode(text) for text in TEXTS]
    assert ids[0][0] == 257
    found = httpx.post(f"{reading.url}/v1/embeddings", json={"input": ids}, timeout=60)
    np.testing.assert_allclose(vectors(found), vectors(embedder.post("/v1/embeddings", input=TEXTS)), atol=2e-6)
    one = httpx.post(f"{reading.url}/v1/embeddings", json={"input": ids[0]}, timeout=60)
    np.testing.assert_allclose(vectors(one), vectors(found)[:1], atol=2e-6)
    text = httpx.post(f"{reading.url}/v1/embeddings", json={"input": TEXTS[0]}, timeout=60)
    np.testing.assert_allclose(vectors(text), vectors(one), atol=2e-6)


@pytest.mark.parametrize("ids", [[280], [299, 1], [2**31 - 1]])
def test_ids_that_the_encoding_lacks_are_refused(reading: Server, ids: list[int]) -> None:
    refused = httpx.post(f"{reading.url}/v1/embeddings", json={"input": [[1], ids]}, timeout=60)
    assert refused.status_code == 400
    told = refused.json()["error"]
    assert told["param"] == "input"
    assert "Input 1 has token ids that are not of standin" in told["message"]


@pytest.mark.parametrize("form", ["bare", "no-end", "no-start", "outside"])
def test_the_models_own_ids_need_its_special_tokens(embedder: Kind, form: str) -> None:
    whole = AutoTokenizer.from_pretrained(embedder.folder)(TEXTS[1])["input_ids"]
    ids = {"bare": whole[1:-1], "no-end": whole[:-1], "no-start": whole[1:], "outside": [*whole, 99_999]}[form]
    refused = embedder.ask("/v1/embeddings", input=[whole, ids])
    assert refused.status_code == 400
    told = refused.json()["error"]
    assert told["param"] == "input"
    assert "Input 1" in told["message"]
    assert "--openai-token-ids" in told["message"]
    assert "check_embedding_ctx_length=False" in told["message"]
    assert vectors(embedder.post("/v1/embeddings", input=whole)).shape[0] == 1
    if form != "outside":
        meant = embedder.post("/v1/embeddings", input=ids, add_special_tokens=False)
        assert meant.json()["usage"]["prompt_tokens"] == len(ids)


@pytest.mark.parametrize(
    ("setting", "part"),
    [("other", "native, tiktoken"), ("native:x", "native, tiktoken"), ("tiktoken:none-such", "cannot load")],
)
def test_settings_that_are_refused(setting: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        TokenIds(setting)
