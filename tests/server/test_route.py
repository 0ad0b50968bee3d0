"""How a request finds its row of the table, and how its dialect tells failures."""

from __future__ import annotations

import httpx
import msgspec
import orjson
import pytest
from starlette.requests import Request
from starlette.responses import Response

from cenote.errors import ModelNotFound
from cenote.server import bodies, refusals
from cenote.server.app import Places
from cenote.server.dialect import OPENAI, OPS, VLLM, Dialect, Failure
from cenote.server.refusals import Refusal
from cenote.server.route import Dialects, Route, by_header, by_place
from cenote.server.routes import ROUTES

from .conftest import KEY
from .running import Server


class Told(msgspec.Struct):
    """An error of the dialect below."""

    text: str


def tell(failure: Failure) -> Told:
    return Told(text=f"{failure.kind} {failure.request_id}")


class Texts(msgspec.Struct):
    """A body of the dialect below."""

    texts: list[str]


class Documents(msgspec.Struct):
    """Any other body."""

    documents: list[str]


OTHER = Dialect("other", Told, tell, {"model_not_found": 418})
ANSWER = ROUTES[0].answer
BY_HEADER = Route("POST", "/r", ANSWER, "", OTHER, header=("x-client", "other"), request=Documents)
BY_KEY = Route("POST", "/r", ANSWER, "", OTHER, bare=True, keys=frozenset({"texts"}), request=Texts)
REST = Route("POST", "/r", ANSWER, "", VLLM, (OPENAI,), request=Documents)
HIDDEN = Route("POST", "/s", ANSWER, "", OTHER, bare=False, request=Texts)
TABLE = (BY_HEADER, BY_KEY, REST, HIDDEN)


def test_a_row_is_found_under_its_path_and_its_prefixes() -> None:
    assert {place: len(rows) for place, rows in by_place(TABLE).items()} == {
        ("/r", "POST"): 3,
        ("/vllm/r", "POST"): 1,
        ("/openai/r", "POST"): 1,
        ("/other/r", "POST"): 2,
        ("/other/s", "POST"): 1,
    }


@pytest.mark.parametrize(
    ("headers", "body", "row"),
    [
        ({}, b'{"documents": []}', REST),
        ({}, b'{"texts": []}', BY_KEY),
        ({"x-client": "Other"}, b'{"documents": []}', BY_HEADER),
        ({"x-client": "another"}, b'{"documents": []}', REST),
    ],
)
def test_headers_and_keys_decide(headers: dict[str, str], body: bytes, row: Route) -> None:
    assert bodies.decode(body, by_header(by_place(TABLE)["/r", "POST"], headers)).route is row


@pytest.mark.parametrize(
    ("path", "headers", "dialect"),
    [
        ("/r", {}, VLLM),
        ("/r", {"x-client": "other"}, OTHER),
        ("/other/r", {}, OTHER),
        ("/openai/nothing", {}, OPENAI),
        ("/nothing", {}, OPS),
    ],
)
def test_the_dialect_is_known_before_the_body(path: str, headers: dict[str, str], dialect: Dialect) -> None:
    assert Dialects(TABLE).at(path, headers) is dialect


def test_a_body_that_names_its_row_is_refused_as_that_row_tells_it() -> None:
    with pytest.raises(Refusal) as caught:
        bodies.decode(b'{"texts": 1}', [BY_KEY, REST])
    response = refusals.answer(caught.value, VLLM, "some-id")
    assert orjson.loads(response.body) == {"text": "bad_body some-id"}


def test_a_dialect_has_its_own_body_and_statuses() -> None:
    response = refusals.answer(ModelNotFound("There is none."), OTHER, "some-id")
    assert response.status_code == 418
    assert orjson.loads(response.body) == {"text": "model_not_found some-id"}


def test_the_only_model_answers_to_every_name_where_that_is_wanted(guarded: Server) -> None:
    body = {"input": "a", "model": "text-embedding-3-large"}
    answer = httpx.post(f"{guarded.url}/v1/embeddings", json=body, headers={"x-api-key": KEY})
    assert answer.status_code == 200
    assert answer.json()["model"] == "text-embedding-3-large"


@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("GET", "/exact", "at once"),
        ("GET", "/exact/", "by pattern"),
        ("HEAD", "/exact", "by pattern"),
        ("POST", "/exact", "by pattern"),
        ("GET", "/mounted/exact", "by pattern"),
    ],
)
async def test_a_method_and_a_path_that_stand_in_the_table_need_no_pattern(method: str, path: str, found: str) -> None:
    async def endpoint(request: Request) -> Response:
        return Response(headers={"x-found": "at once", "x-path": request.url.path})

    app = Places(Response(headers={"x-found": "by pattern"}), {("GET", "/exact"): endpoint})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
        response = await client.request(method, path)
    assert response.headers["x-found"] == found
    assert response.headers.get("x-path") == ("/exact" if found == "at once" else None)
