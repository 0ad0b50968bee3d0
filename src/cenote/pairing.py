"""A pair as the one text that a language model scores: by a template, with the document as the part that may be cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from . import prompting, rerankers, templates
from .checkpoint import Checkpoint
from .classifying import Classifying
from .errors import BadInput
from .modules import Modules
from .templates import Template
from .tokenizer_files import chat_template
from .types import Framed, Pair

if TYPE_CHECKING:
    from .recipe import Recipe
    from .tokenizer import Tokenizer

# Stands for a text while a template is taken apart; a character that no text should have.
_QUERY: Final = "\ue000q\ue001"
_DOCUMENT: Final = "\ue000d\ue001"


def template_of(
    transformer: Checkpoint,
    listed: Modules | None,
    classifier: Classifying | None,
    user: str | None,
    sources: dict[str, str],
) -> str | None:
    """What makes one text of the two of a cross-encoder, or None where its tokenizer joins them.

    A stored template is for conversations, unless it looks for a query and a document or `modules.json` says that
    pairs are messages.

    Args:
        listed: What `modules.json` says.
        user: The user's own template.
        sources: Filled with the source of the answer.
    """
    if classifier is None or classifier.head != "sequence":
        sources["pair_template"] = "none: no classifier of texts"
        return None
    if user is not None:
        sources["pair_template"] = "user"
        return user
    stored = chat_template(transformer)
    if stored is not None and (templates.reads_pairs(stored) or (listed is not None and listed.first.reads_messages)):
        sources["pair_template"] = "the tokenizer's files"
        return stored
    vendor = rerankers.recognise(transformer, transformer.config)
    sources["pair_template"] = "none: the tokenizer joins pairs"
    if vendor is None:
        return None
    known, source = vendor
    sources["pair_template"] = f"the model card, as it is a {known.name.split('(')[0]} by {source}"
    return known.template


def joiner(
    recipe: Recipe,
    tokenizer: Tokenizer,
    *,
    template: str | None = None,
    variables: Mapping[str, Any] | None = None,
    instruction: str | None = None,
) -> Joiner | None:
    """What makes one text of each pair for a checkpoint, or None where its tokenizer joins them.

    Args:
        template: Wins over the checkpoint's.
        variables, instruction: As in `Joiner`.

    Raises:
        BadInput: The template cannot be read or has no place for the instruction.
    """
    source = recipe.pair_template if template is None else template
    if source is None:
        if instruction is not None:
            what = f"instruction was given, but {recipe.name} has no template that would show it to the model."
            raise BadInput(what, fix="Leave it out, or give a chat_template.", param="instruction")
        return None
    own = template is None and recipe.chat_template is None
    return Joiner(
        templates.compiled(source),
        tokenizer.special_tokens,
        variables=variables,
        instruction=instruction,
        system=prompting.text_before(recipe, prompt=None, prompt_name=None) if own else "",
        own=own,
    )


class Joiner:
    """Makes texts of pairs.

    Args:
        template: What joins them.
        special_tokens: Of the tokenizer, as variables.
        variables: Further ones, by the caller.
        instruction: What the model is to judge by; None as the template says.
        system: A system message before the two, "" for none.
        own: Whether the template is the checkpoint's: it writes special tokens itself, and texts which somebody put
            into its form are recognised.

    Raises:
        BadInput: The template has no place for an instruction.
    """

    def __init__(
        self,
        template: Template,
        special_tokens: Mapping[str, str],
        *,
        variables: Mapping[str, Any] | None = None,
        instruction: str | None = None,
        system: str = "",
        own: bool = False,
    ) -> None:
        if instruction is not None and not template.takes_instruction:
            raise BadInput(
                "instruction was given, and the template of this model has no place for it.",
                fix="Leave it out, or give a chat_template that has the variable `instruction`.",
                param="instruction",
            )
        self._template, self._special_tokens = template, special_tokens
        self._variables = dict(variables or {})
        if instruction is not None:
            self._variables.setdefault("instruction", instruction)
        if template.reads_system:
            system = str(self._variables.get("instruction") or system)
        self.own = own
        self._system = [("system", system)] if system else []
        self._marker = self._opening() if own else ""
        self._frame: tuple[str, tuple[str, str] | None] = ("", None)

    def join(self, pair: Pair) -> Framed:
        """The one text of a pair."""
        query, document = pair.text, pair.text_pair
        if self._marker and query.startswith(self._marker):
            return Framed("", query + document, "", self.own)
        rendered = self._render(query, document)
        before, after = self._around(query) or ("", "")
        fits = len(before) + len(after) <= len(rendered)
        if not (fits and rendered.startswith(before) and rendered.endswith(after)):
            # What the template writes around it depends on the document, so it cannot be told what has to stay.
            before = after = ""
        return Framed(before, rendered[len(before) : len(rendered) - len(after)], after, self.own)

    def _around(self, query: str) -> tuple[str, str] | None:
        """What the template writes before and after the document; None where that is not its form."""
        # One query mostly comes with many documents.
        if self._frame[1] is None or self._frame[0] != query:
            parts = self._render(query, _DOCUMENT).split(_DOCUMENT)
            self._frame = (query, (parts[0], parts[1]) if len(parts) == 2 else None)
        return self._frame[1]

    def _opening(self) -> str:
        """How the prompt begins, if that is a mark which no plain text has, such as `<|im_start|>system`."""
        line = self._render(_QUERY, _DOCUMENT).split(_QUERY)[0].split("\n")[0]
        return line if line.startswith("<|") else ""

    def _render(self, query: str, document: str) -> str:
        texts = [*self._system, ("query", query), ("document", document)]
        parts = self._template.reads_parts
        messages = [
            {"role": role, "content": [{"type": "text", "text": text}] if parts else text} for role, text in texts
        ]
        return self._template.render(messages, self._variables, **self._special_tokens)
