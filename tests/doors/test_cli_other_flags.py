"""Flags of text-embeddings-inference and of the reference's server, given to `cenote serve`."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from cenote.cli.app import app
from cenote.cli.other_flags import BY_VALUE, ELSEWHERE, IDLE, SAME
from cenote.cli.serve import serve


def taken(*arguments: str) -> dict[str, Any]:
    """What `cenote serve` reads out of a command line, by parameter; what was not written is left out."""
    with serve.make_context("serve", list(arguments), **app.context_settings) as made:
        return {name: value for name, value in made.params.items() if value not in (None, ())}


def test_a_command_line_of_tei() -> None:
    line = (
        "--model-id some/model --revision v1 --dtype float32 --hostname 0.0.0.0 --port 3000 --auto-truncate false "
        "--pooling last-token --payload-limit=1000 --max-batch-tokens 99 --max-batch-requests 7 --api-key k "
        "--tokenization-workers 3 --uds-path /tmp/x --served-model-name m --max-client-batch-size 5"
    )
    got = taken(*line.split())
    assert (got["model"], got["revision"], got["host"], got["port"]) == ("some/model", "v1", "0.0.0.0", 3000)
    assert (got["on_long"], got["max_body_bytes"], got["max_batch_tokens"]) == ("refuse", 1000, 99)
    assert (got["max_batch_seqs"], got["tokenizer_threads"]) == (7, 3)
    assert got["max_inputs"] == 5
    assert "name" not in got
    assert got["pooler_config__seq_pooling_type"] == "LAST"


def test_a_command_line_of_the_reference() -> None:
    line = (
        "some/model --max_model_len 128 --max-num-seqs 9 --max-num-batched-tokens=77 --enforce-eager --seed 1 "
        '--gpu-memory-utilization=0.5 --tensor-parallel-size 1 --trust-remote-code --hf-overrides {"a":1} '
        "--no-enable-prefix-caching --runner pooling"
    )
    got = taken(*line.split())
    assert (got["name"], got["max_model_len"], got["max_batch_seqs"]) == ("some/model", 128, 9)
    assert (got["max_batch_tokens"], got["trust_remote_code"], got["hf_overrides"]) == (77, True, '{"a":1}')


def test_lists_of_the_reference() -> None:
    line = 'some/model --served-model-name a b --api-key k l --port 1 --allowed-origins ["x","y"]'
    got = taken(*line.split())
    assert (got["name"], got["served_model_name"], got["api_key"]) == ("some/model", ("a", "b"), ("k", "l"))
    assert (got["allowed_origins"], got["port"]) == (("x", "y"), 1)
    named = taken("--model-id", "some/model", "--served-model-name", "a", "b", "--api-key=k")
    assert (named["model"], named["served_model_name"], named["api_key"]) == ("some/model", ("a", "b"), ("k",))


def test_a_word_after_a_value_is_the_model_where_none_was_named() -> None:
    got = taken("--api-key", "k", "some/model", "--served-model-name", "a")
    assert (got["name"], got["api_key"], got["served_model_name"]) == ("some/model", ("k",), ("a",))


@pytest.mark.parametrize("value", ["[1]", "[", '["a"'])
def test_a_list_that_is_none(value: str) -> None:
    result = CliRunner().invoke(app, ["serve", "--allowed-origins", value])
    assert result.exit_code == 2
    assert "JSON list" in result.stderr


@pytest.mark.parametrize(("written", "on_long"), [(["true"], "cut"), (["false"], "refuse"), ([], "cut")])
def test_auto_truncate_with_and_without_a_value(written: list[str], on_long: str) -> None:
    got = taken("--auto-truncate", *written, "--port", "1")
    assert got == {"on_long": on_long, "port": 1}


@pytest.mark.parametrize("flag", ELSEWHERE)
def test_what_means_something_else_names_the_way(flag: str) -> None:
    result = CliRunner().invoke(app, ["serve", flag, "2"])
    assert result.exit_code == 2
    assert result.stderr == f"error: {flag} is a flag of another server. {ELSEWHERE[flag]}\n"


def test_a_pooling_that_is_none() -> None:
    result = CliRunner().invoke(app, ["serve", "--pooling", "median"])
    assert result.exit_code == 2
    assert "cls, mean, last-token, splade" in result.stderr


def test_ours_are_flags_of_the_command_and_theirs_are_not() -> None:
    own = {name for option in serve.params for name in (*option.opts, *option.secondary_opts)}
    by_value = {flag for values in BY_VALUE.values() for flag, _ in values.values()}
    assert {*SAME.values(), *by_value} <= own
    assert own.isdisjoint([*SAME, *BY_VALUE, *IDLE, *ELSEWHERE])
