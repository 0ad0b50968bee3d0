"""Templates that make one text of messages: Jinja in the dialect of Hugging Face, in a sandbox."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .errors import BadInput, ConfigError

RESERVED: Final = ("chat_template", "tools", "tokenize", "messages", "add_generation_prompt", "continue_final_message")
"""Names of variables that a caller cannot set, as they have arguments of their own."""

_KEPT: Final = 64


class Template:
    """A template over `messages`; frozen, so threads share it.

    Args:
        source: Its text.

    Attributes:
        reads_parts: Whether it goes through the parts of a message's content, and so takes a list of them.
        reads_pairs: Whether it looks for messages of the roles `query` and `document`.
        reads_system: Whether it looks for one of the role `system`.
        takes_instruction: Whether an instruction reaches its text, as a variable or as the system message.

    Raises:
        BadInput: It is no Jinja template.
    """

    def __init__(self, source: str) -> None:
        try:
            self._template = _environment().from_string(source)
            tree = _environment().parse(source)
            self.reads_parts = _reads_parts(tree)
        except jinja2.TemplateError as error:
            raise BadInput(f"The template cannot be read: {error}.", param="chat_template") from error
        words = {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
        self.reads_pairs = {"query", "document"} <= words
        self.reads_system = "system" in words
        self.takes_instruction = self.reads_system or "instruction" in meta.find_undeclared_variables(tree)

    def render(self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any], **known: Any) -> str:
        """The text of `messages`.

        Args:
            messages: Each has a `role` and a `content`.
            variables: Further variables, by a caller; they win over `known`.
            known: Further variables.

        Raises:
            BadInput: A variable has a reserved name, or the template fails.
        """
        reserved = sorted(set(variables).intersection(RESERVED))
        if reserved:
            raise BadInput(
                f"chat_template_kwargs contains reserved keys {reserved}.",
                allowed=f"It takes all names but {', '.join(RESERVED)}.",
                param="chat_template_kwargs",
            )
        try:
            return self._template.render({"tools": None, "documents": None, **known, **variables, "messages": messages})
        except Exception as error:
            # The template is the user's: it may fail in any way, and each of them is bad input.
            what = f"The template fails on its messages: {type(error).__name__}: {error}."
            raise BadInput(what, param="chat_template") from error


@functools.lru_cache(_KEPT)
def compiled(source: str) -> Template:
    """The template of `source`, made once."""
    return Template(source)


def reads_pairs(source: str) -> bool:
    """Whether a stored template is made for a query and a document; one that cannot be read is not."""
    try:
        return compiled(source).reads_pairs
    except BadInput:
        return False


def from_setting(given: str) -> str:
    """The text of a template that a setting gives inline or by the path of its file.

    Raises:
        ConfigError: There is no such file, or it holds no template.
    """
    source = given
    if "{" not in given and "\n" not in given:
        try:
            source = Path(given).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"The chat template {given!r} cannot be read: {error}.",
                allowed="It is the path of a file, or a Jinja template itself, which has a `{`.",
                param="chat_template",
            ) from error
    try:
        compiled(source)
    except BadInput as error:
        raise ConfigError(error.what, fix="Repair the template.", param="chat_template") from error
    return source


def continued(rendered: str, last: str) -> str:
    """`rendered` up to the end of its last message, so that what follows goes on with it.

    Raises:
        BadInput: The template changes the message, so that its end cannot be found.
    """
    start = rendered.rfind(last.strip())
    if start < 0 or not last.strip():
        raise BadInput(
            "continue_final_message is set, and the template does not hold the last message as it was given.",
            fix="Leave continue_final_message out.",
            param="continue_final_message",
        )
    whole = last.lstrip()
    return rendered[: start + len(whole if rendered.startswith(whole, start) else whole.rstrip())]


class _Generation(Extension):
    """`{% generation %}` marks for training what an assistant wrote; here it stands as it is."""

    tags = {"generation"}  # noqa: RUF012, the name and the form that Jinja asks for

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@functools.cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


def _to_json(value: Any, ensure_ascii: bool = False, **form: Any) -> str:
    """Jinja's own filter escapes for HTML, which models were not trained on."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **form)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _reads_parts(tree: nodes.Template) -> bool:
    assigned = [node for node in tree.find_all(nodes.Assign) if isinstance(node.target, nodes.Name)]
    names = {node.target.name for node in assigned if isinstance(node.target, nodes.Name) and _is_content(node.node)}
    return any(_is_content(loop.iter, names) for loop in tree.find_all(nodes.For))


def _is_content(node: nodes.Node | None, names: Collection[str] = ()) -> bool:
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    if isinstance(node, nodes.Filter):
        return _is_content(node.node, names)
    return isinstance(node, nodes.Name) and node.name in names
