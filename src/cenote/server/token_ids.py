"""What token ids of `/v1/embeddings` are: the model's own, or those of an OpenAI tokenizer, which are read as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import BadInput, ConfigError, MissingExtra
from ..types import Input, IntArray, Tokens
from . import calls

if TYPE_CHECKING:
    from ..engine import Engine
    from ..tokenizer import Tokenizer
    from .prompts import Prompts

_DEFAULT: Final = "cl100k_base"
_SETTING: Final = "--openai-token-ids"
_BYTES_PER_ID: Final = 64  # of work, so to speak


class TokenIds:
    """Reads the inputs of a request that are token ids.

    Args:
        setting: `native`, `tiktoken`, or `tiktoken:ENCODING`.

    Raises:
        ConfigError: It is none of these, or there is no such encoding on this machine.
        MissingExtra: tiktoken is not installed.
    """

    def __init__(self, setting: str) -> None:
        kind, _, name = setting.partition(":")
        if kind not in ("native", "tiktoken") or (kind == "native" and name):
            allowed = "It is native, tiktoken, or tiktoken:ENCODING."
            raise ConfigError(f"openai_token_ids={setting!r}.", allowed=allowed, param="openai_token_ids")
        self._encoding: Any = _encoding(name or _DEFAULT) if kind == "tiktoken" else None

    async def read(self, engine: Engine, given: Prompts, *, as_they_are: bool) -> Prompts:
        """`given` with ids of another tokenizer turned into text, or refused.

        Args:
            as_they_are: The request says that nothing belongs around its ids.

        Raises:
            BadInput: Ids are not in the vocabulary, or are the model's without what the model puts around a text.
        """
        num_ids = sum([len(item.ids) for item in given.inputs if isinstance(item, Tokens)])
        if not num_ids:
            return given
        read = _check if self._encoding is None else self._texts
        inputs = await calls.aside(num_ids * _BYTES_PER_ID, read, engine, given.inputs, as_they_are)
        return replace(given, inputs=inputs)

    def _texts(self, engine: Engine, inputs: Sequence[Input], as_they_are: bool) -> list[Input]:
        return [self._text(item, index) if isinstance(item, Tokens) else item for index, item in enumerate(inputs)]

    def _text(self, item: Tokens, index: int) -> str:
        try:
            text: str = self._encoding.decode(item.ids.tolist())
        except Exception as error:  # a panic of its Rust, KeyError for an id, ValueError: it keeps to no class
            raise BadInput(
                f"Input {index} has token ids that are not of {self._encoding.name}.",
                allowed=f"The server reads ids as text of that encoding ({_SETTING}).",
                param="prompt_token_ids",
                index=index,
            ) from error
        return text


def _check(engine: Engine, inputs: Sequence[Input], as_they_are: bool) -> list[Input]:
    before, after = ([], []) if as_they_are else _frame(engine.tokenizer)
    for index, item in enumerate(inputs):
        if isinstance(item, Tokens):
            _check_one(engine, item.ids, index, before, after)
    return list(inputs)


def _frame(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The special tokens before a text and after it."""
    framed, bare = tokenizer.ids_of("a", True), tokenizer.ids_of("a", False)
    starts = (at for at in range(len(framed)) if framed[at : at + len(bare)] == bare)
    start = next(starts, None)
    return ([], []) if start is None else (framed[:start], framed[start + len(bare) :])


def _check_one(engine: Engine, ids: IntArray, index: int, before: list[int], after: list[int]) -> None:
    outside = ids[(ids < 0) | (ids >= engine.tokenizer.vocab_size)]
    if outside.size:
        what = f"Input {index}: Token id {outside[0]} is out of vocabulary."
    elif _starts(ids, before) and _starts(ids[::-1], after[::-1]):
        return
    else:
        what = f"Input {index} has token ids without the special tokens that {engine.name} puts around a text."
    raise BadInput(
        what,
        allowed=f"Ids are those of its own tokenizer, 0 to {engine.tokenizer.vocab_size - 1}, special ones included.",
        fix="Send texts (LangChain: check_embedding_ctx_length=False); or start the server with "
        f"{_SETTING} tiktoken if ids are OpenAI's; or send add_special_tokens=false if they are meant as they are.",
        param="prompt_token_ids",
        index=index,
    )


def _starts(ids: IntArray, wanted: Sequence[int]) -> bool:
    return len(ids) >= len(wanted) and bool(np.array_equal(ids[: len(wanted)], wanted))


def _encoding(name: str) -> Any:
    try:
        import tiktoken
    except ModuleNotFoundError:
        fix = "Run `pip install 'cenote[tiktoken]'`."
        raise MissingExtra(f"{_SETTING} tiktoken needs the package tiktoken.", fix=fix) from None
    try:
        return tiktoken.get_encoding(name)
    except Exception as error:  # of the network, of a file, of a name
        raise ConfigError(
            f"tiktoken cannot load the encoding {name}: {str(error).splitlines()[0] if str(error) else error!r}",
            fix="Without a network, let TIKTOKEN_CACHE_DIR name a folder that another machine's tiktoken has filled.",
            param="openai_token_ids",
        ) from error
