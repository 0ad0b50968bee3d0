"""How errors look on the wire."""

from __future__ import annotations

import inspect

import orjson
import pytest

from cenote import errors
from cenote.server import refusals

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.CenoteError) and kind is not errors.CenoteError
]
# These stop a start; no request raises them.
AT_START = {"checkpoint", "config"}


def made(kind: type[errors.CenoteError]) -> errors.CenoteError:
    return kind("It happened.", retry_after_s=1.5) if kind is errors.Overloaded else kind("It happened.")


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_kind_has_a_status(kind: type[errors.CenoteError]) -> None:
    assert kind.kind in refusals.STATUS_BY_KIND or kind.kind in AT_START
    response = refusals.answer(made(kind))
    body = orjson.loads(response.body)["error"]
    assert body["code"] == response.status_code
    assert set(body) == {"message", "type", "param", "code"}
    assert response.status_code != 422


def test_overload_says_when_to_come_back() -> None:
    response = refusals.answer(made(errors.Overloaded))
    assert (response.status_code, response.headers["retry-after"], response.headers["retry-after-ms"]) == (
        429,
        "2",
        "1500",
    )


def test_an_unforeseen_error_tells_the_log_only(caplog: pytest.LogCaptureFixture) -> None:
    response = refusals.answer(RuntimeError("secret /var/lib/secret.bin"), request_id="some-id")
    assert response.status_code == 500
    assert b"secret" not in response.body
    assert b"some-id" in response.body
    assert "secret" in caplog.text


@pytest.mark.parametrize(
    ("message", "clean"),
    [
        ("cannot read /srv/models/a b", "cannot read <path> b"),
        ("'/srv/models/a.json'", "'<path>'"),
        (r"C:\models\a.json is gone", "<path> is gone"),
        ("<Model object at 0x7f00aa>", "<Model object>"),
        ("BAAI/bge-m3 takes 8192", "BAAI/bge-m3 takes 8192"),
        ("1/2 and a/b/c", "1/2 and a/b/c"),
    ],
)
def test_messages_are_scrubbed(message: str, clean: str) -> None:
    assert refusals.scrub(message) == clean
