"""IO processors: guests that make prompts of any `data`, and any answer of what the model says to them. No torch.

The contract is that of the reference's IO processor plugins, so that a class written for those works here where it
reads no more of its two arguments than `PluginConfig` and `Renderer` have.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from . import plugins
from .config import ModelSettings, PoolerConfig
from .errors import CenoteError, ConfigError
from .outputs import PoolingParams, PoolingRequestOutput

if TYPE_CHECKING:
    from .recipe import Recipe
    from .tokenizer import Tokenizer

log = logging.getLogger(__name__)

TASK: Final = "plugin"
"""What a request names as its task where a plugin is to read its data."""

_METHODS: Final = (
    *("parse_data", "merge_pooling_params", "pre_process"),
    *("pre_process_async", "post_process", "post_process_async"),
)


class IOPlugin(ABC):
    """What an IO processor does for each request, in the order of the methods.

    One object serves all requests, and its methods may run in several threads at once. A `ValueError` of `parse_data`,
    `pre_process` or `merge_pooling_params` says that the data is at fault, and goes to the caller.

    Args:
        config: The model.
        renderer: Its tokenizer.
    """

    def __init__(self, config: PluginConfig, renderer: Renderer) -> None:
        self.config, self.renderer = config, renderer

    def parse_data(self, data: Any) -> Any:
        """Check what the request holds as `data`, and give what `pre_process` takes."""
        return data

    @abstractmethod
    def pre_process(self, prompt: Any, request_id: str | None = None, **kwargs: Any) -> Any:
        """One prompt or a list of prompts, in any form that `LLM.encode` takes; no other request has this id."""

    async def pre_process_async(self, prompt: Any, request_id: str | None = None, **kwargs: Any) -> Any:
        """`pre_process` for an event loop, in a thread."""
        return await asyncio.to_thread(self.pre_process, prompt, request_id, **kwargs)

    def merge_pooling_params(self, params: PoolingParams | None = None) -> PoolingParams:
        """Options of the prompts, after `pre_process`: the request's own, if there are any, and what the plugin wants.

        Their `task` is the one that the model is read as; None or `plugin` is the model's default one. Options that the
        reference does not have, such as `input_type`, go by their names into `extra_kwargs`.
        """
        return params or PoolingParams(task=TASK)

    @abstractmethod
    def post_process(
        self, model_output: Sequence[PoolingRequestOutput], request_id: str | None = None, **kwargs: Any
    ) -> Any:
        """The answer, made of one output per prompt, in their order; over HTTP it must be fit for JSON."""

    async def post_process_async(
        self,
        model_output: AsyncIterator[tuple[int, PoolingRequestOutput]],
        request_id: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """`post_process` for an event loop, in a thread; `model_output` gives outputs and their prompts' positions."""
        both = sorted([one async for one in model_output], key=lambda one: one[0])
        return await asyncio.to_thread(self.post_process, [output for _, output in both], request_id, **kwargs)

    def end(self, request_id: str) -> None:
        """A request is over, however it ended: what is kept of it can go. The reference has no such method."""
        return


class HFConfig(dict[str, Any]):
    """`config.json`: its keys, which are attributes too."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"config.json has no key {name!r}")
        return self[name]

    def to_dict(self) -> dict[str, Any]:
        """A dict of its own."""
        return dict(self)


@dataclass(frozen=True)
class ModelConfig:
    """The model, under the reference's names.

    Args:
        model: Folder or hub id that was asked for.
        tokenizer: The same of its tokenizer.
        hf_config: `config.json`, with `hf_overrides`.
        max_model_len: Longest input in tokens.
        embedding_size: Size of a finished vector; 0 for a classifier.
        pooler_config: What the user decided about reading it.
        trust_remote_code: As the user said; nothing here runs any.
        recipe: All that was decided; the reference has no such attribute.
    """

    model: str
    tokenizer: str
    hf_config: HFConfig
    max_model_len: int
    embedding_size: int
    pooler_config: PoolerConfig
    trust_remote_code: bool
    recipe: Recipe

    def get_hidden_size(self) -> int:
        """Values of a hidden state."""
        return self.recipe.model.hidden_size


@dataclass(frozen=True)
class PluginConfig:
    """What a plugin is told about where it runs; the reference has more beside `model_config`."""

    model_config: ModelConfig


class Words:
    """A tokenizer with the names of `transformers`, as far as plugins read them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.vocab_size = tokenizer.vocab_size
        self.special_tokens_map: Mapping[str, str] = tokenizer.special_tokens
        self.pad_token_id = tokenizer.pad_id

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids, however many."""
        return self._tokenizer.ids_of(text, add_special_tokens)

    def decode(self, token_ids: int | Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of ids, as near as the tokenizer can tell it."""
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        return self._tokenizer.decode(ids, skip_special_tokens)

    def convert_ids_to_tokens(self, ids: int | Sequence[int]) -> str | list[str]:
        """The vocabulary's own spelling of an id, or of each."""
        if isinstance(ids, int):
            return self._tokenizer.token_strings([ids])[0]
        return self._tokenizer.token_strings(ids)

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> int | list[int | None] | None:
        """The id of a token, or of each; None where there is no such token."""
        if isinstance(tokens, str):
            return self._tokenizer.id_of(tokens)
        return [self._tokenizer.id_of(token) for token in tokens]


@dataclass(frozen=True)
class Renderer:
    """How a plugin reaches the tokenizer."""

    config: PluginConfig
    tokenizer: Words

    def get_tokenizer(self) -> Words:
        """The tokenizer."""
        return self.tokenizer


def find(recipe: Recipe, settings: ModelSettings) -> tuple[str, Any] | None:
    """Name and class of the plugin that the user names, else of the one that `config.json` does; None without one.

    Raises:
        ConfigError: There is no such plugin, it cannot be imported, or it does not keep the contract.
    """
    name = settings.io_processor_plugin or recipe.transformer.config.get("io_processor_plugin")
    if name is None:
        return None
    kind = plugins.io_processor(str(name))
    missing = [method for method in _METHODS if not callable(getattr(kind, method, None))]
    if missing:
        raise ConfigError(
            f"The IO processor plugin {name!r} is {kind!r}, which lacks {', '.join(missing)}.",
            fix="Let it grow from cenote.io_plugins.IOPlugin.",
            param="io_processor_plugin",
        )
    source = "user" if settings.io_processor_plugin else "config.json"
    log.info("%s answers requests with data through the IO processor plugin %s (%s).", recipe.name, name, source)
    return str(name), kind


def made(name: str, kind: Any, recipe: Recipe, tokenizer: Tokenizer, settings: ModelSettings) -> IOPlugin:
    """The plugin, with the model that it serves.

    Raises:
        ConfigError: It cannot serve this model.
    """
    config = PluginConfig(
        ModelConfig(
            model=settings.model or recipe.checkpoint.name,
            tokenizer=settings.tokenizer or settings.model or recipe.checkpoint.name,
            hf_config=HFConfig(recipe.transformer.config),
            max_model_len=recipe.max_len,
            embedding_size=recipe.embedding_size,
            pooler_config=settings.pooler_config,
            trust_remote_code=settings.trust_remote_code,
            recipe=recipe,
        )
    )
    try:
        plugin: IOPlugin = kind(config, Renderer(config, Words(tokenizer)))
    except CenoteError:
        raise
    except Exception as error:
        # A guest can fail in any way.
        raise ConfigError(
            f"The IO processor plugin {name!r} cannot serve {recipe.name}: {type(error).__name__}: {error}.",
            fix="Name another as io_processor_plugin, or none.",
            param="io_processor_plugin",
        ) from error
    return plugin
