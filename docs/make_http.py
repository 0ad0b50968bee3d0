"""Writes docs/http.md from the route table: `python docs/make_http.py`. A test holds the file to it."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import orjson

from cenote.server import openapi, refusals, schemas, tei
from cenote.server.route import Route
from cenote.server.routes import ROUTES

PAGE = Path(__file__).with_name("http.md")
_INTRO = """# The HTTP routes

What `cenote serve` answers. The tables are those that requests are checked against; this page is written by
`python docs/make_http.py`. A running server says the same at `/openapi.json`, and to read at `/docs`.

## Every request

A body is one JSON object with `content-type: application/json`, as it is or with `content-encoding: gzip`; its limit is
that of the unpacked bytes. No URL in a request is ever fetched. The paths of a dialect are also reachable under its
prefix, which leaves no doubt where dialects share one. Where keys are set, all paths but those of health want one.

| request header | what it does |
|---|---|
| `authorization: Bearer KEY`, `x-api-key: KEY` | The key. |
| `accept-encoding: gzip` | Answers from `--gzip-min-bytes` to 1 MiB come packed, where that makes them smaller. |
| `x-request-id` | Names the request: in the answer's id, its headers, and the server's log. |
| `cache-control: no-cache` | The model reads the inputs anew: no row of the cache or of an equal input. |
| `x-request-timeout-ms` | How long the client waits; later the answer is 504 and the work is dropped. |

| response header | what it says |
|---|---|
| `x-request-id` | The request's id. |
| `x-total-time`, `x-queue-time`, `x-tokenization-time`, `x-inference-time` | Milliseconds. |
| `x-truncated` | How many inputs were cut. |
| `x-pieces` | In how many pieces all inputs were read, where one was longer than the model and had several. |
| `x-ignored-fields` | Fields of the body that had no effect, unknown ones too. |
| `warning` | An old name that was used, and the new one. |
| `metadata` | With `encoding_format: bytes`: JSON that says where each array lies in the body, and its shape. |
| `retry-after`, `retry-after-ms`, `x-should-retry` | When to come back after 429 and 503, and whether it can help. |

## Errors

`{"error": {"message", "type", "param", "code"}}`, where `code` is the status and `param` the field at fault. On
routes of Cohere it is `{"message", "id"}`, where `id` is the request's, and a task that the model does not serve is
400. On routes of TEI and Hugging Face it is `{"error", "error_type"}`: 422 for what is wrong with a request, 400 for
one without inputs, 424 where the model failed on an input. On routes of Ollama it is `{"error"}`, of Jina `{"detail",
"code", "request_id"}`, of Voyage `{"detail"}`, of Mixedbread `{"type", "url", "message", "details"}`, of infinity as
above, and of llama.cpp `{"error": {"code", "message", "type"}}`. A model's name that is not known is 400 for Jina,
Voyage and infinity.
"""
_AFTER_ERRORS = """
A request for a task that the model does not serve is 501 on `/v1/embeddings` and `/classify`, 400 on `/pooling` (its
field `task` is at fault) and 404 on the routes of scores, as if the route were not there.

## Paths that dialects share

A request of one of Cohere's own clients is known by its header `x-fern-sdk-name: cohere`; on `/v1/rerank`,
`/v2/rerank`, `/v1/models` and what lies below, it is answered as Cohere answers. All others get the answers of the
reference and of OpenAI there. `/cohere/...` leaves no doubt.

`/rerank` with `texts` is a request of TEI, with `documents` one of the reference; `/tokenize` and `/invocations` with
`inputs`, and `/invocations` with `query` and `texts`, are TEI's too. `POST /` is Hugging Face's, where classes are a
list of lists; `POST /tei` and `/invocations` give those of one text as a plain list, as TEI does. On routes of these
two and of Ollama, longer texts are cut unless the request or `--on-long` says otherwise.

`/v1/embeddings` is OpenAI's and the reference's; with `task`, `late_chunking` or `embedding_type` a body is Jina's,
with `truncation` or `output_dtype` Voyage's, with `truncation_strategy` Mixedbread's. `/v1/rerank` with `top_k` or
`truncation` is Voyage's. `/v1/reranking` is Mixedbread's with `input` and that of llama.cpp with `documents` or
`texts`. `/embeddings`, without a version, is infinity's, whose form is OpenAI's and TEI's too, and that of llama.cpp
with `content`, as is `/tokenize`. `/rerank` with `documents` and `raw_scores`, and `/classify` with `raw_scores`, are
infinity's. Everywhere else a prefix says which: `/jina/v1/rerank`, `/llamacpp/detokenize`.

Longer texts are cut for Voyage, Mixedbread and infinity, and refused for Jina and llama.cpp, unless the request or
`--on-long` says otherwise. Jina's `task` and Voyage's `input_type` choose as `input_type` does everywhere.
`late_chunking` and `/v1/contextualizedembeddings` read a document as a whole, its chunks joined by spaces, and refuse
one that is longer than the model. Several forms of one vector are an object by form. Vectors have the length that the
model gives them, but for `/embedding`, where `embd_normalize` says it.

Cohere's `input_type` chooses a prompt of the model: the one of that name, for `search_query` also `query`, for
`search_document` also `document`, `passage` or `corpus`. Where none fits there is no prompt, and `meta.warnings` says
so. It chooses the route of a model with routes too, and is refused where there is none for it. `int8` and `uint8`
vectors take their ranges from `--calibration`; without it from a small sample of texts, with a warning. `/v1/classify`
on an embedder gives each text the label whose examples are nearest on average; its confidences rank, and are no
calibrated probabilities. A classifier answers with its own labels, and takes no examples.

## Token ids

Token ids in `input` of `/v1/embeddings` are those of the model's own tokenizer. Ids that are not in its vocabulary, or
lack the special tokens that the model puts around a text, are probably of another tokenizer and refused;
`add_special_tokens: false` says that they are meant so. With `--openai-token-ids tiktoken` all ids are read as text of
OpenAI's encoding `cl100k_base` (`tiktoken:ENCODING` names another one) and tokenised anew.

## Conversations

`messages` is one conversation or a list of them; `input` takes the same. The template is the server's
`--chat-template` if there is one, else the tokenizer's own (`chat_template.jinja`, or `chat_template` in
`tokenizer_config.json`). Parts of a message that are no text are refused. The text is tokenised without special tokens
unless `add_special_tokens` says otherwise, because templates write them. No template, no conversations: 400.

A cross-encoder reads pairs by its tokenizer. With `--chat-template` it reads what that template makes of two messages
of the roles `query` and `document`; the tokenizer's own template is never used for pairs. A request cannot bring a
template for scores, and for conversations only where the server runs with `--trust-request-chat-template`.

## Fields that routes share
"""
_SHARED: dict[type[msgspec.Struct], str] = {
    schemas.CallFields: "Fields of every call",
    schemas.PromptFields: "Fields of inputs",
    schemas.ArrayFields: "Fields of arrays",
    tei.Fields: "Fields of TEI and Hugging Face",
}


def page() -> str:
    """The whole page."""
    known = orjson.loads(openapi.document(ROUTES, version="", keys=False))["components"]["schemas"]
    groups: dict[Any, list[Route]] = {}
    for route in ROUTES:
        groups.setdefault((route.method, route.answer, route.request, route.summary), []).append(route)
    parts = [_INTRO, *_statuses(), _AFTER_ERRORS]
    for kind, title in _SHARED.items():
        own = [field.encode_name for field in _own(kind)]
        schema = msgspec.json.schema_components([kind])[1][kind.__name__]
        parts += [f"### {title}\n", *_fields(schema, own), ""]
    parts.append("## Routes")
    for routes in groups.values():
        parts += ["", *_section(routes, known)]
    return "\n".join(parts) + "\n"


def _statuses() -> Iterator[str]:
    yield "| status | type | when |\n|---|---|---|"
    rows: dict[tuple[int, str], list[str]] = {row: [] for row in refusals.STATUS_BY_KIND.values()}
    for name, row in refusals.STATUS_BY_KIND.items():
        rows[row].append(name.replace("_", " "))
    for (status, kind), names in sorted(rows.items()):
        yield f"| {status} | `{kind}` | {', '.join(names)} |"
    for status, when in {
        400: "a body that does not fit its schema",
        401: "no valid key",
        404: "no such route",
        405: "another method",
        413: "a body over `--max-body-bytes`",
        415: "a body packed in another way than gzip",
    }.items():
        yield f"| {status} | `{HTTPStatus(status).phrase}` | {when} |"


def _own(kind: type[msgspec.Struct]) -> list[msgspec.structs.FieldInfo]:
    """Fields that a record has beyond those of the ones it grew from and that have a section of their own."""
    shared = {field.name for base in kind.__mro__[1:] if base in _SHARED for field in msgspec.structs.fields(base)}
    return [field for field in msgspec.structs.fields(kind) if field.name not in shared]


def _body(kind: type[msgspec.Struct]) -> str:
    """What the body of a route takes, in words; its own fields follow."""
    names = [title[:1].lower() + title[1:] for base, title in reversed(_SHARED.items()) if base in kind.__mro__]
    taken = f"takes the {' and the '.join(reversed(names))}" if names else "takes"
    joint = ", and:" if names and _own(kind) else "." if names else ":"
    return f"The body, `{kind.__name__}`, {taken}{joint}"


def _section(routes: list[Route], known: dict[str, Any]) -> Iterator[str]:
    first = routes[0]
    paths = ", ".join(dict.fromkeys(f"`{route.path}`" for route in routes))
    yield f"### {first.method} {paths}\n"
    prefixes = ", ".join(f"`/{prefix}`" for prefix in first.prefixes)
    yield first.summary + (f" Also under {prefixes}." if prefixes else "")
    if first.request is not None:
        own = [field.encode_name for field in _own(first.request)]
        yield f"\n{_body(first.request)}" + ("\n" if own else "")
        yield from _fields(known[first.request.__name__], own) if own else ()
    kinds = list(dict.fromkeys(kind for route in routes for kind in route.answers))
    if kinds:
        names = ", ".join(_named(kind) for kind in kinds)
        records = _records(kinds)
        yield f"\nAnswers with {names}{', or with raw bytes' if first.binary else ''}{':' if records else '.'}"
        yield from [""] if records else ()
        yield from (f"- {_named(kind)}: {_listed(known[kind.__name__], known)}" for kind in records)


def _named(kind: Any) -> str:
    """A record by its name, a list by what it holds."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return f"`{kind.__name__}`"
    return _kind(msgspec.json.schema_components([kind])[0][0])


def _records(kinds: Sequence[Any]) -> list[type[msgspec.Struct]]:
    """The records among some types and inside their lists."""
    found: list[type[msgspec.Struct]] = []
    for kind in kinds:
        inner = [kind] if msgspec.inspect.is_struct_type(kind) else _records(typing.get_args(kind))
        found += [one for one in inner if one not in found]
    return found


def _fields(schema: dict[str, Any], names: Sequence[str]) -> Iterator[str]:
    yield "| field | type | default | meaning |\n|---|---|---|---|"
    for name in names:
        field = schema["properties"][name]
        kind = _kind(field).replace("|", "\\|")
        default = "required" if name in schema["required"] else _default(field)
        yield f"| `{name}` | {kind} | {default} | {' '.join(_descriptions(field))} |"


def _default(field: dict[str, Any]) -> str:
    default = field.get("default")
    return "" if default is None else f"`{orjson.dumps(default).decode()}`"


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        kinds = [_kind(part) for part in schema["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"] if choice is not None)
    if schema.get("type") == "array":
        return (
            f"list of ({_kind(schema['items'])})" if "anyOf" in schema["items"] else f"list of {_kind(schema['items'])}"
        )
    return str(schema.get("type", "anything"))


def _descriptions(schema: dict[str, Any]) -> list[str]:
    own = schema.get("description")
    if own:
        return [str(own)]
    return list(dict.fromkeys(text for part in schema.get("anyOf", ()) for text in _descriptions(part)))


def _listed(schema: dict[str, Any], known: dict[str, Any]) -> str:
    """Names of the fields of an answer; those of the records that it lists in brackets."""
    return ", ".join(f"`{name}`{_inner(field, known)}" for name, field in schema["properties"].items())


def _inner(field: dict[str, Any], known: dict[str, Any]) -> str:
    ref = (field.get("items") or field).get("$ref", "")
    name = ref.rpartition("/")[2]
    return f" [{_listed(known[name], known)}]" if field.get("type") == "array" and name else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
