"""Templates that make one text of a query and a document, in a sandbox."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..errors import BadInput

_RESERVED = ("chat_template", "tools", "tokenize", "messages")


class Template:
    """A score template: Jinja over `messages` of the roles `query` and `document`.

    Args:
        source: Text of the template.

    Raises:
        BadInput: It is no Jinja template.
    """

    def __init__(self, source: str) -> None:
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise BadInput(f"The template cannot be read: {error}.", param="chat_template") from error

    def render(self, query: str, document: str, variables: Mapping[str, Any]) -> str:
        """The text of one pair.

        Raises:
            BadInput: A variable has a reserved name, or the template fails.
        """
        reserved = sorted(set(variables).intersection(_RESERVED))
        if reserved:
            what = f"chat_template_kwargs contains reserved keys {reserved}."
            raise BadInput(what, param="chat_template_kwargs")
        messages = [{"role": "query", "content": query}, {"role": "document", "content": document}]
        try:
            return self._template.render(messages=messages, tools=None, **variables)
        except Exception as error:
            # The template is the user's: it may fail in any way, and each of them is bad input.
            what = f"The template fails on a pair: {type(error).__name__}: {error}."
            raise BadInput(what, param="chat_template") from error


@functools.cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"], undefined=jinja2.Undefined
    )
    environment.globals["raise_exception"] = _raise
    # Jinja's own escapes what HTML would misread, and a model would read the escapes.
    environment.filters["tojson"] = _to_json
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
