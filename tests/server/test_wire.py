"""What holds at every door: packed bodies and answers, pages of other origins, certificates, sockets, keys, limits."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cenote.config import ServerSettings
from cenote.errors import ConfigError
from cenote.server.encodings import unpacked
from cenote.server.front import known_keys
from cenote.server.listen import bind_unix, listening_socket, release
from cenote.server.refusals import Refusal
from support.faulty import KILLS
from support.texts import short_texts

from .conftest import NAME, Kind
from .running import Server

JSON = {"content-type": "application/json"}
GZIP = {**JSON, "content-encoding": "gzip"}
PAGE = "https://page.example"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("# of the tests\nfrom-the-file\n\n another  # with a comment\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def strict(folder: Path, keys: Path) -> Iterator[Server]:
    """A server with most of the settings that are off by default."""
    with Server(
        folder,
        machine={"max_call_tokens": 500},
        model_alias=["alias", "text-embedding-ada-002"],
        api_key_file=str(keys),
        allowed_origins=[PAGE],
        root_path="/behind/a/proxy",
        gzip_min_bytes=1,
    ) as running:
        yield running


def ask(server: Server, path: str = "/v1/embeddings", **body: Any) -> httpx.Response:
    headers = {"x-api-key": "from-the-file"}
    return httpx.post(server.url + path, json={"input": "a", **body}, headers=headers, timeout=60)


def test_a_packed_body_is_read(client: httpx.Client) -> None:
    body = json.dumps({"input": short_texts(3)}).encode()
    plain = client.post("/v1/embeddings", content=body, headers=JSON)
    packed = client.post("/v1/embeddings", content=gzip.compress(body), headers=GZIP)
    assert packed.json()["data"] == plain.json()["data"]
    members = b"".join(gzip.compress(part) for part in (body[:9], b"", body[9:]))
    in_members = client.post("/v1/embeddings", content=members, headers=GZIP)
    assert in_members.json()["data"] == plain.json()["data"]


@pytest.mark.parametrize(
    ("content", "encoding", "status"),
    [
        (b"no gzip", "gzip", 400),
        (gzip.compress(b'{"input": "a"}')[:-6], "gzip", 400),
        (b"", "gzip", 400),
        (gzip.compress(b'{"input": "' + b"a" * 2_000_000 + b'"}'), "gzip", 413),
        (gzip.compress(bytes(300_000_000), 1), "gzip", 413),
        (gzip.compress(b" " * 1_500_000) * 2, "gzip", 413),
        (gzip.compress(b'{"input": "a"}') + b"more", "gzip", 400),
        (gzip.compress(b'{"input": "a"}') + gzip.compress(b" ") * 1000, "gzip", 400),
        (b'{"input": "a"}', "br", 415),
    ],
    ids=["no-gzip", "cut-off", "empty", "too-large", "bomb", "large-in-all", "more", "members", "unknown"],
)
@pytest.mark.parametrize("path", ["/v1/embeddings", "/v2/embed"])
def test_packed_bodies_that_are_refused(
    client: httpx.Client, path: str, content: bytes, encoding: str, status: int
) -> None:
    response = client.post(path, content=content, headers={**JSON, "content-encoding": encoding})
    assert response.status_code == status
    told = response.json()
    assert set(told) == ({"error"} if path == "/v1/embeddings" else {"message", "id"})


def test_a_bomb_is_never_unpacked() -> None:
    bomb = gzip.compress(bytes(100_000_000), 1)
    tracemalloc.start()
    with pytest.raises(Refusal) as caught:
        unpacked(bomb, 1_000_000)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.status_code == 413
    assert most_bytes < 10_000_000


def test_answers_are_packed_for_those_who_take_it(client: httpx.Client) -> None:
    body = {"input": short_texts(40)}
    packed = client.post("/v1/embeddings", json=body, headers={"accept-encoding": "br, gzip;q=0.5"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "accept-encoding"
    for accepted in ("", "identity", "br", "gzip;q=0", "gzip; q=0.0"):
        plain = client.post("/v1/embeddings", json=body, headers={"accept-encoding": accepted})
        assert "content-encoding" not in plain.headers
        assert plain.json()["data"] == packed.json()["data"]
        assert len(plain.content) > int(packed.headers["content-length"])


def test_what_does_not_give_way_is_not_packed(default_embedder: Kind) -> None:
    body = {"input": short_texts(20), "encoding_format": "base64"}
    response = httpx.post(f"{default_embedder.server.url}/v1/embeddings", json=body, timeout=60)
    assert len(response.content) > 20_000
    assert "content-encoding" not in response.headers


def test_an_answer_that_is_very_large_is_not_packed(default_embedder: Kind) -> None:
    # Equal inputs run once, and each has its row.
    response = httpx.post(f"{default_embedder.server.url}/v1/embeddings", json={"input": ["a"] * 400}, timeout=60)
    assert len(response.content) > 1024 * 1024
    assert "content-encoding" not in response.headers


def test_pages_of_allowed_origins_may_ask(strict: Server, server: Server) -> None:
    asked = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "x-api-key"}
    may = httpx.options(f"{strict.url}/v1/embeddings", headers=asked)
    assert may.status_code == 200
    assert may.headers["access-control-allow-origin"] == PAGE
    other = httpx.options(f"{strict.url}/v1/embeddings", headers={**asked, "origin": "https://other.example"})
    assert other.status_code == 400
    # A page must be able to read why it was refused.
    refused = httpx.post(f"{strict.url}/v1/embeddings", json={}, headers={"origin": PAGE})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, PAGE)
    assert "access-control-allow-origin" not in httpx.get(f"{server.url}/health", headers={"origin": PAGE}).headers


def test_a_root_path_may_be_stripped_or_not(strict: Server) -> None:
    bare, whole = ask(strict), ask(strict, "/behind/a/proxy/v1/embeddings")
    assert bare.json()["data"] == whole.json()["data"]
    assert ask(strict, "/behind/a/proxies/v1/embeddings").status_code == 404
    headers = {"x-api-key": "another"}
    document = httpx.get(f"{strict.url}/behind/a/proxy/openapi.json", headers=headers).json()
    assert document["servers"] == [{"url": "/behind/a/proxy"}]
    assert httpx.get(f"{strict.url}/behind/a/proxy/health").status_code == 200


def test_keys_of_a_file_and_aliases(strict: Server, folder: Path) -> None:
    for key, status in (("from-the-file", 200), ("another", 200), ("# of the tests", 401)):
        response = httpx.get(f"{strict.url}/v1/models", headers={"authorization": f"Bearer {key}"})
        assert response.status_code == status
    listed = httpx.get(f"{strict.url}/v1/models", headers={"x-api-key": "another"}).json()["data"]
    names = [model["id"] for model in listed]
    assert names[1:] == ["alias", "text-embedding-ada-002"]
    assert names[0] in str(folder)
    assert ask(strict, model="alias").status_code == 200
    assert ask(strict, model="other").status_code == 404


def test_a_request_of_too_many_tokens_is_refused_before_any_work(strict: Server) -> None:
    refused = ask(strict, input=["some words here"] * 500)
    assert refused.status_code == 400
    assert "max_call_tokens is 500" in refused.json()["error"]["message"]
    metrics = httpx.get(f"{strict.url}/metrics", headers={"x-api-key": "another"}).text
    assert 'kind="bad_input"' in metrics
    assert ask(strict, input=["some words here"] * 50).status_code == 200


def test_many_inputs_of_one_request(client: httpx.Client) -> None:
    answer = client.post("/v1/embeddings", json={"input": [f"{number}" for number in range(2100)]}).json()
    assert [row["index"] for row in answer["data"]] == list(range(2100))


@pytest.mark.parametrize(
    ("content", "part"), [(None, "cannot be read"), ("# nothing\n\n", "has no key"), (b"\xff", "cannot be read")]
)
def test_files_of_keys_that_are_refused(tmp_path: Path, content: str | bytes | None, part: str) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=part):
        known_keys(ServerSettings(api_key_file=str(path)))


def test_an_empty_key_would_let_everybody_in() -> None:
    with pytest.raises(ConfigError, match="empty"):
        known_keys(ServerSettings(api_key=("fine", "")))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A key and a certificate of its own for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    key, chain = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", str(key), "-out", str(chain), "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, chain


def test_tls(folder: Path, certificate: tuple[Path, Path]) -> None:
    key, chain = certificate
    with Server(folder, served_model_name=[NAME], ssl_keyfile=str(key), ssl_certfile=str(chain)) as running:
        assert running.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(chain))
        answer = httpx.post(f"{running.url}/v1/embeddings", json={"input": "a"}, verify=trusting, timeout=60)
        assert answer.status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(running.url.replace("https", "http") + "/health")


def test_certificates_that_are_refused(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    key, chain = map(str, certificate)
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"ssl_keyfile": key}, "without a certificate"),
        ({"ssl_certfile": chain}, "cannot be used"),
        ({"ssl_certfile": str(tmp_path / "none.pem"), "ssl_keyfile": key}, "cannot be used"),
    )
    for settings, part in cases:
        with pytest.raises(ConfigError, match=part):
            listening_socket(ServerSettings(port=0, **settings))


def test_a_unix_socket(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "cenote.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(path))  # a server that was killed leaves its socket there
    with Server(folder, uds=str(path)) as running:
        assert running.url == f"unix:{path}"
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=60) as client:
            assert client.post("http://any/v1/embeddings", json={"input": "a"}).status_code == 200
        with pytest.raises(ConfigError, match="Cannot listen on the Unix socket"):
            bind_unix(str(path))
        running.terminate()
        assert running.end()[0] == 0
    assert not path.exists()
    path.write_text("a file of the user's", encoding="utf-8")
    with pytest.raises(ConfigError, match="Cannot listen"):
        bind_unix(str(path))
    assert path.exists()
    other = str(tmp_path / "other.sock")
    release(bind_unix(other), other)
    assert not (tmp_path / "other.sock").exists()


def test_a_server_whose_worker_died_ends_with_an_error(folder: Path) -> None:
    with Server(folder, faulty=True) as running:
        lost = httpx.post(f"{running.url}/v1/embeddings", json={"input": [2, KILLS, 3]}, timeout=60)
        assert lost.status_code == 503
        code, _ = running.end()
    assert code == 1
