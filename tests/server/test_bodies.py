"""What a body may be: whatever it is, the answer is a decoded request or a 400."""

from __future__ import annotations

import msgspec
import pytest

from cenote.server import bodies
from cenote.server.dialect import OPENAI, VLLM
from cenote.server.openai import EmbeddingRequest
from cenote.server.refusals import Refusal
from cenote.server.route import Route, by_place
from cenote.server.routes import ROUTES

EMBEDDINGS = by_place(ROUTES)["/v1/embeddings", "POST"]
DEEP = 100_000

# No route takes these, whatever its own field is called.
_BROKEN = {
    "empty": b"",
    "not-json": b"FIELD=a",
    "null": b"null",
    "list": b"[]",
    "cut-off": b'{"FIELD": "a"',
    "trailing": b'{"FIELD": "a"} b',
    "not-utf-8": b'{"FIELD": "\xff"}',
    "utf-16": '{"FIELD": "a"}'.encode("utf-16"),
    "lone-surrogate": rb'{"FIELD": "\ud800"}',
    "lone-surrogate-in-a-key": rb'{"FIELD": "a", "\udfff": 1}',
    "nan": b'{"FIELD": "a", "other": NaN}',
    "deep": b'{"FIELD": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep-in-a-record": b'{"FIELD": [{"role": ' + b"[" * DEEP + b"]" * DEEP + b"}]}",
    "deep-in-an-unknown-field": b'{"FIELD": "a", "other": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "twice": b'{"FIELD": "a", "FIELD": "b"}',
    "no-text": b'{"FIELD": null}',
    "truth": b'{"FIELD": [true]}',
    "fraction": b'{"FIELD": [1.5]}',
    "too-deep-a-list": b'{"FIELD": [[[1]]]}',
}
# These have a field of vectors that is wrong.
_WRONG = {
    "infinity": b'{"input": "a", "dimensions": 1e999}',
    "too-wide": b'{"input": "a", "priority": 9223372036854775808}',
    "choice": b'{"input": "a", "encoding_format": "hex"}',
    "salt": b'{"input": "a", "cache_salt": "a/b"}',
    "below": b'{"input": "a", "truncate_prompt_tokens": -2}',
}
BROKEN = tuple(_BROKEN)


def broken(name: str, field: str) -> bytes:
    """A broken body for a route whose main field is called `field`."""
    return _BROKEN[name].replace(b"FIELD", field.encode())


@pytest.mark.parametrize("name", [*BROKEN, *_WRONG])
def test_broken_bodies_are_400(name: str) -> None:
    with pytest.raises(Refusal) as caught:
        bodies.decode(_WRONG.get(name) or broken(name, "input"), EMBEDDINGS)
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


def test_a_repeated_field_is_found_among_many() -> None:
    # Comparing each name with all others would take hours.
    many = b",".join(b'"k%d": 1' % number for number in range(300_000))
    with pytest.raises(Refusal, match="'input' stands more than once"):
        bodies.decode(b"{" + many + b', "input": "a", "input": "b"}', EMBEDDINGS)


def test_a_wrong_choice_names_the_right_ones() -> None:
    with pytest.raises(Refusal, match="native, big, little"):
        bodies.decode(b'{"input": "a", "endianness": "middle"}', EMBEDDINGS)


def test_unknown_fields_are_passed_over_and_named() -> None:
    decoded = bodies.decode('{"input": "a", "use_activations": true, "é,": 1}'.encode(), EMBEDDINGS)
    assert isinstance(decoded.body, EmbeddingRequest)
    assert decoded.ignored == ("use_activations", "é,")
    assert bodies.named(decoded.ignored) == "use_activations, %C3%A9%2C"


def test_the_row_that_a_body_is_for_names_its_own_choices() -> None:
    invocations = [route for route in ROUTES if route.path == "/invocations"]
    with pytest.raises(Refusal, match="bi-encoder, cross-encoder, late-interaction"):
        bodies.decode(b'{"query": "a", "documents": ["b"], "score_type": "other"}', invocations)


def test_rows_that_share_a_path_are_told_apart_by_their_keys() -> None:
    class Texts(msgspec.Struct):
        texts: list[str]

    class Documents(msgspec.Struct):
        documents: list[str]

    answer = EMBEDDINGS[0].answer
    texts = Route("POST", "/r", answer, "", OPENAI, keys=frozenset({"texts"}), request=Texts)
    other = Route("POST", "/r", answer, "", VLLM, request=Documents)
    assert bodies.decode(b'{"texts": ["a"]}', [texts, other]).route is texts
    assert bodies.decode(b'{"documents": ["a"]}', [texts, other]).route is other
    with pytest.raises(Refusal, match="documents"):
        bodies.decode(b"{}", [texts, other])
