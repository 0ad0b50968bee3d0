"""Settings: where a value comes from, and what is refused."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from cenote.config import MachineSettings, ModelSettings, ServerSettings, env_name, help_of, resolve
from cenote.errors import ConfigError
from cenote.values import choices_of


def test_user_wins_over_the_environment_and_that_over_the_default() -> None:
    env = {"CENOTE_DTYPE": "float16", "CENOTE_MAX_MODEL_LEN": "77", "CENOTE_ON_LONG": "cut"}
    resolved = resolve(ModelSettings, {"dtype": "bfloat16", "max_model_len": None}, env)
    assert (resolved.settings.dtype, resolved.settings.max_model_len) == ("bfloat16", 77)
    assert resolved.settings.on_long == "cut"
    assert resolved.sources["dtype"] == "user"
    assert resolved.sources["max_model_len"] == "env CENOTE_MAX_MODEL_LEN"
    assert resolved.sources["revision"] == "default"


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("a, b,", "api_key", ("a", "b")),
        ("9000", "port", 9000),
        ("2.5", "drain_s", 2.5),
        ("debug", "log_level", "debug"),
    ],
)
def test_the_environment_is_read_by_type(text: str, field: str, value: Any) -> None:
    assert getattr(resolve(ServerSettings, {}, {env_name(field): text}).settings, field) == value


@pytest.mark.parametrize(("text", "value"), [("1", True), ("off", False), ("TRUE", True)])
def test_switches_are_read_from_the_environment(text: str, value: bool) -> None:
    assert resolve(ModelSettings, {}, {"CENOTE_TRUST_REMOTE_CODE": text}).settings.trust_remote_code is value


@pytest.mark.parametrize(
    ("cls", "user", "env", "message"),
    [
        (ModelSettings, {"modle": "x"}, {}, "Unknown setting modle"),
        (ModelSettings, {"max_model_len": "12"}, {}, "max_model_len='12' is of type str. It takes int."),
        (ModelSettings, {"max_model_len": True}, {}, "is of type bool"),
        (ModelSettings, {"on_long": "chop"}, {}, "Allowed are refuse, cut"),
        (MachineSettings, {"num_workers": -1}, {}, "num_workers=-1. It is at least 0."),
        (MachineSettings, {"tokenizer_threads": -1}, {}, "tokenizer_threads=-1. It is at least 0."),
        (MachineSettings, {"max_batch_seqs": 0}, {}, "max_batch_seqs=0. It is at least 1."),
        (MachineSettings, {}, {"CENOTE_MAX_BATCH_SEQS": "0"}, "max_batch_seqs=0. It is at least 1."),
        (MachineSettings, {}, {"CENOTE_NUM_WORKERS": "two"}, "CENOTE_NUM_WORKERS='two' cannot be read"),
        (ModelSettings, {}, {"CENOTE_TRUST_REMOTE_CODE": "maybe"}, "CENOTE_TRUST_REMOTE_CODE='maybe' cannot be read"),
    ],
)
def test_bad_values_are_named(cls: Any, user: dict[str, Any], env: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        resolve(cls, user, env)


def test_every_setting_explains_itself() -> None:
    for cls in (ModelSettings, MachineSettings, ServerSettings):
        for field in fields(cls):
            assert help_of(field).endswith("."), field.name


def test_choices_are_found_in_optional_literals() -> None:
    import typing

    assert choices_of(typing.get_type_hints(ModelSettings)["on_long"]) == ("refuse", "cut", "chunk")
    assert choices_of(int) == ()
