"""Variables that containers of text-embeddings-inference are configured by, given to `cenote serve`."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from click.testing import CliRunner

from cenote.cli.app import app
from cenote.cli.other_env import ours
from cenote.cli.other_flags import ELSEWHERE
from cenote.config import MachineSettings, ModelSettings, ServerSettings, resolve
from cenote.errors import ConfigError
from cenote.server import serve

CONTAINER = {
    "MODEL_ID": "some/model",
    "REVISION": "v1",
    "DTYPE": "float32",
    "POOLING": "last-token",
    "AUTO_TRUNCATE": "false",
    "MAX_BATCH_TOKENS": "99",
    "MAX_BATCH_REQUESTS": "7",
    "MAX_CLIENT_BATCH_SIZE": "32",
    "TOKENIZATION_WORKERS": "3",
    "PAYLOAD_LIMIT": "1000",
    "CORS_ALLOW_ORIGIN": "*",
    "API_KEY": "k",
    "SERVED_MODEL_NAME": "m",
    "HOSTNAME": "0.0.0.0",
    "PORT": "80",
    "HF_TOKEN": "hf_x",
}


def settings(env: dict[str, str]) -> tuple[ModelSettings, MachineSettings, ServerSettings]:
    given = ours(env)
    kinds = (ModelSettings, MachineSettings, ServerSettings)
    model, machine, server = (resolve(kind, {}, given).settings for kind in kinds)
    assert isinstance(model, ModelSettings)
    assert isinstance(machine, MachineSettings)
    assert isinstance(server, ServerSettings)
    return model, machine, server


def test_what_means_the_same_is_read() -> None:
    model, machine, server = settings(CONTAINER)
    assert (model.model, model.revision, model.dtype, model.on_long) == ("some/model", "v1", "float32", "refuse")
    assert model.pooler_config.seq_pooling_type == "LAST"
    assert (machine.max_batch_tokens, machine.max_batch_seqs, machine.tokenizer_threads) == (99, 7, 3)
    assert (server.host, server.port, server.api_key, server.served_model_name) == ("0.0.0.0", 80, ("k",), ("m",))
    assert (server.max_inputs, server.max_body_bytes, server.allowed_origins) == (32, 1000, ("*",))


def test_ours_win() -> None:
    model, _, server = settings({**CONTAINER, "CENOTE_PORT": "81", "CENOTE_ON_LONG": "cut"})
    assert (model.on_long, server.port) == ("cut", 81)


def test_a_containers_name_is_no_address() -> None:
    assert settings({**CONTAINER, "HOSTNAME": "3f2a9c"})[2].host == "127.0.0.1"


@pytest.mark.parametrize("name", ["DEFAULT_PROMPT", "DEFAULT_PROMPT_NAME", "DENSE_PATH"])
def test_what_would_change_results_names_the_way(name: str) -> None:
    flag = "--" + name.lower().replace("_", "-")
    with pytest.raises(ConfigError, match=f"{name} is a variable of another server") as refused:
        ours({**CONTAINER, name: "query"})
    assert ELSEWHERE[flag] in str(refused.value)


@pytest.mark.parametrize("name", ["MAX_CONCURRENT_REQUESTS", "PROMETHEUS_PORT", "OTLP_ENDPOINT", "JSON_OUTPUT"])
def test_what_is_done_without_is_said(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ours({**CONTAINER, name: "1"})
    assert f"{name} is a variable of another server" in caplog.text


def test_a_pooling_that_is_none() -> None:
    with pytest.raises(ConfigError, match="cls, mean, last-token, splade"):
        ours({**CONTAINER, "POOLING": "median"})


@pytest.mark.parametrize(
    ("arguments", "env", "port"),
    [
        ([], CONTAINER, 80),
        (["--port", "82"], CONTAINER, 82),
        (["another"], CONTAINER, 8000),
        (["--model", "another"], CONTAINER, 8000),
        ([], {**CONTAINER, "CENOTE_MODEL": "another"}, 8000),
        (["another"], {"PORT": "80", "HOSTNAME": "0.0.0.0"}, 8000),
    ],
)
def test_the_variables_count_where_nobody_else_names_a_model(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], env: dict[str, str], port: int
) -> None:
    got: list[Any] = []

    def kept(*given: Any) -> int:
        got.extend(given)
        return 0

    monkeypatch.setattr(serve, "serve", kept)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert result.exit_code == 0, result.stderr
    model, _, server = got
    assert server.port == port
    assert model.model == ("some/model" if "another" not in (*arguments, env.get("CENOTE_MODEL")) else "another")
