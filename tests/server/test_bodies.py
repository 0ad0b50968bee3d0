"""What a body may be: whatever it is, the answer is a decoded request or a 400."""

from __future__ import annotations

import msgspec
import pytest

from cenote.server import bodies
from cenote.server.openai import EmbeddingRequest
from cenote.server.refusals import Refusal
from cenote.server.routes import ROUTES, Route

EMBEDDINGS = [route for route in ROUTES if route.path == "/v1/embeddings"]
DEEP = 100_000

BROKEN = {
    "empty": b"",
    "not-json": b"input=a",
    "null": b"null",
    "list": b"[]",
    "cut-off": b'{"input": "a"',
    "trailing": b'{"input": "a"} b',
    "not-utf-8": b'{"input": "\xff"}',
    "utf-16": '{"input": "a"}'.encode("utf-16"),
    "lone-surrogate": rb'{"input": "\ud800"}',
    "lone-surrogate-in-a-key": rb'{"input": "a", "\udfff": 1}',
    "nan": b'{"input": "a", "dimensions": NaN}',
    "infinity": b'{"input": "a", "dimensions": 1e999}',
    "too-wide": b'{"input": "a", "priority": 9223372036854775808}',
    "deep": b'{"input": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep-in-an-unknown-field": b'{"input": "a", "other": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "twice": b'{"input": "a", "input": "b"}',
    "no-text": b'{"input": null}',
    "truth": b'{"input": [true]}',
    "fraction": b'{"input": [1.5]}',
    "too-deep-a-list": b'{"input": [[[1]]]}',
    "choice": b'{"input": "a", "encoding_format": "hex"}',
    "salt": b'{"input": "a", "cache_salt": "a/b"}',
    "below": b'{"input": "a", "truncate_prompt_tokens": -2}',
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_bodies_are_400(name: str) -> None:
    with pytest.raises(Refusal) as caught:
        bodies.decode(BROKEN[name], EMBEDDINGS)
    assert caught.value.status_code == 400
    assert "Traceback" not in caught.value.detail


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"input": "a", "dimensions": "8"}', "dimensions"),
        (b'{"input": ["a", null]}', "input[1]"),
        (b'{"input": "a", "endianness": "middle"}', "endianness"),
        (b'{"input": "a", "user": "u", "user": "v"}', "user"),
    ],
)
def test_the_field_at_fault_is_named(body: bytes, param: str) -> None:
    with pytest.raises(Refusal) as caught:
        bodies.decode(body, EMBEDDINGS)
    assert caught.value.param == param


def test_a_wrong_choice_names_the_right_ones() -> None:
    with pytest.raises(Refusal, match="native, big, little"):
        bodies.decode(b'{"input": "a", "endianness": "middle"}', EMBEDDINGS)


def test_unknown_fields_are_passed_over_and_named() -> None:
    decoded = bodies.decode('{"input": "a", "use_activations": true, "é,": 1}'.encode(), EMBEDDINGS)
    assert isinstance(decoded.body, EmbeddingRequest)
    assert decoded.ignored == ("use_activations", "é,")
    assert bodies.named(decoded.ignored) == "use_activations, %C3%A9%2C"


def test_rows_that_share_a_path_are_told_apart_by_their_keys() -> None:
    class Texts(msgspec.Struct):
        texts: list[str]

    class Documents(msgspec.Struct):
        documents: list[str]

    answer = EMBEDDINGS[0].answer
    texts = Route("POST", "/r", answer, "", "openai", keys=frozenset({"texts"}), request=Texts)
    other = Route("POST", "/r", answer, "", "vllm", request=Documents)
    assert bodies.decode(b'{"texts": ["a"]}', [texts, other]).route is texts
    assert bodies.decode(b'{"documents": ["a"]}', [texts, other]).route is other
    with pytest.raises(Refusal, match="documents"):
        bodies.decode(b"{}", [texts, other])
