"""One model opened in this process: prompts are handed in, and whoever handed them in waits for the answers."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from . import conversion, inputs, options, plugged, routes, uses
from .config import OnLong
from .errors import BadInput
from .outputs import PoolingParams
from .registry import Registry
from .started import Part, Started, UseTqdm, parts_of
from .types import Input, Length
from .uses import entities, score, zero_shot
from .uses.score import Plan

if TYPE_CHECKING:
    from .engine import Engine
    from .io_plugins import IOPlugin
    from .plugged import Planned
    from .recipe import Recipe

Params = PoolingParams | Sequence[PoolingParams] | None


class Opened:
    """A model and its threads.

    Args:
        model, runner, task, settings: As for `LLM`.
    """

    def __init__(self, model: str = "", *, runner: str = "auto", task: str | None = None, **settings: Any) -> None:
        if task is not None:
            options.old_task(task)
        conversion.check_runner(runner)
        self.settings, machine = options.llm_settings({**settings, "model": model, "runner": runner})
        self._registry = Registry(machine)
        try:
            self.engine: Engine = self._registry.open(self.settings)
        except BaseException:
            self._registry.close()
            raise

    @property
    def recipe(self) -> Recipe:
        """Everything that was decided about the checkpoint."""
        return self.engine.recipe

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that stand for all that decides the vectors; the first time it reads the weights again.

        Keep it with an index: where it changed, so did the model, its pooling, its prompts or its precision.
        """
        assert self.engine.fingerprint is not None
        return self.engine.fingerprint.value()

    def get_supported_tasks(self) -> tuple[str, ...]:
        """What the model can be read as; all of it at once."""
        return self.recipe.tasks

    def start(
        self,
        prompts: Any,
        task: str,
        pooling_params: Params = None,
        lora_request: None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        use_cache: bool = True,
        on_long: OnLong | None = None,
        chunk_overlap: int | None = None,
        **more: Any,
    ) -> Started:
        """Hand in prompts without waiting for the answers."""
        prompts, key = routes.keyed(prompts, self.recipe)
        if key is not None:
            more = routes.of_kind(key, self.recipe, more)
        parsed = inputs.parse(prompts)
        length, special = self._length(lora_request, tokenization_kwargs, on_long, chunk_overlap)
        params = options.task_params(task, pooling_params, len(parsed), special, more)
        return self._hand_in(parsed, task, params, length, use_cache)

    @property
    def io_plugin(self) -> IOPlugin | None:
        """What answers `encode` of data; None where nothing does."""
        return self._registry.io_plugin(self.engine)

    def ask_plugin(self, data: Any, pooling_params: Params, use_tqdm: UseTqdm, how: Mapping[str, Any]) -> Any:
        """What the IO processor answers to data."""
        plugin = plugged.served(self.io_plugin)
        with plugged.handled(plugin) as request_id:
            with plugged.blaming_data():
                prompts = plugin.pre_process(plugin.parse_data(data), request_id=request_id)
            planned, started = self.start_plugged(plugin, prompts, pooling_params, **how)
            found = plugged.outputs(planned, started.finish(use_tqdm), self.recipe)
            return plugin.post_process(found, request_id=request_id)

    def start_plugged(
        self,
        plugin: IOPlugin,
        prompts: Any,
        pooling_params: Params = None,
        *,
        lora_request: None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        use_cache: bool = True,
        **more: Any,
    ) -> tuple[Planned, Started]:
        """Hand in what a plugin made of data, without waiting for the answers."""
        if more:
            fix = "A plugin sets options of its prompts itself."
            raise BadInput(f"plugin has no option {next(iter(more))!r}.", fix=fix, param=next(iter(more)))
        length, special = self._length(lora_request, tokenization_kwargs)
        planned = plugged.plan(self.recipe, plugin, prompts, pooling_params, special)
        return planned, self._hand_in(planned.inputs, planned.task, planned.params, length, use_cache)

    def _hand_in(
        self, parsed: Sequence[Input], task: str, params: Sequence[Any], length: Length, use_cache: bool
    ) -> Started:
        """One call for each distinct set of options."""
        submit = functools.partial(self.engine.submit, length=length, lane="bulk", wait=True, use_cache=use_cache)

        def part(where: Sequence[int], given: Sequence[Input], one: Any) -> Part:
            return Part(where, submit(task, given, one))

        if len(params) == 1:
            return Started([part(range(len(parsed)), parsed, params[0])])
        groups: dict[Any, list[int]] = {}
        for position, one in enumerate(params):
            groups.setdefault(one, []).append(position)
        for one in groups:
            one.check(self.recipe)
        return Started.of(part(where, [parsed[i] for i in where], one) for one, where in groups.items())

    def start_score(
        self,
        data_1: Any,
        data_2: Any,
        *,
        pooling_params: PoolingParams | None = None,
        lora_request: None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        chat_template: str | None = None,
        use_cache: bool = True,
        on_long: OnLong | None = None,
        chunk_overlap: int | None = None,
        **more: Any,
    ) -> tuple[Plan, Started]:
        """Hand in pairs without waiting for the scores."""
        length, special = self._length(lora_request, tokenization_kwargs, on_long, chunk_overlap)
        how = options.score_options(pooling_params, chat_template, special, more)
        planned = score.plan(self.recipe, self.engine.tokenizer, data_1, data_2, how)
        submit = functools.partial(self.engine.submit, length=length, lane="bulk", wait=True, use_cache=use_cache)
        return planned, Started.of(parts_of(planned.groups, submit))

    def start_use(
        self,
        name: str,
        given: Any,
        *,
        lora_request: None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        use_cache: bool = True,
        on_long: OnLong | None = None,
        **more: Any,
    ) -> tuple[uses.Use, uses.Planned, Started]:
        """Hand in what a plugin's use makes of what was given, without waiting for the answers."""
        length, special = self._length(lora_request, tokenization_kwargs, on_long)
        if not special:
            what = "add_special_tokens=False was given, which is for a use to decide."
            raise BadInput(what, fix="Leave it out.", param="add_special_tokens")
        use = uses.find(name, self.recipe)
        asked = options.use_options(use, more)
        planned = uses.plan(use, self.recipe, self.engine.tokenizer, given, asked)
        submit = functools.partial(self.engine.submit, length=length, lane="bulk", wait=True, use_cache=use_cache)
        return use, planned, Started.of(parts_of(planned.groups, submit))

    def start_entities(
        self,
        texts: str | Sequence[str],
        how: entities.Options,
        *,
        stride: int | None = None,
        lora_request: None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        use_cache: bool = True,
        on_long: OnLong | None = None,
    ) -> tuple[entities.Plan, Started]:
        """Hand in texts without waiting for their entities.

        Args:
            stride: Tokens that the windows of a longer text share; None where there are no windows, unless `on_long`
                or the settings say so.
        """
        asked: OnLong | None = on_long if stride is None else "chunk"
        length, special = self._length(lora_request, tokenization_kwargs, asked, stride)
        if stride is not None and (length.on_long != "chunk" or on_long not in (None, "chunk")):
            raise BadInput(f"Texts are to be cut or refused, and stride={stride} is for windows.", param="stride")
        given = [texts] if isinstance(texts, str) else texts
        planned = entities.plan(self.recipe, self.engine.tokenizer, given, how, length, special)
        submit = functools.partial(self.engine.submit, length=Length(), lane="bulk", wait=True, use_cache=use_cache)
        call = submit(entities.TASK, planned.inputs, entities.PARAMS)
        return planned, Started([Part(planned.text_of_window, call)])

    def start_zero_shot(
        self, texts: str | Sequence[str], labels: str | Sequence[str], multi_label: bool, template: str, **more: Any
    ) -> tuple[zero_shot.Plan, Started]:
        """Hand in texts without waiting for their labels."""
        given = [texts] if isinstance(texts, str) else texts
        planned = zero_shot.plan(self.recipe, given, labels, multi_label, template)
        started = self.start(planned.pairs, zero_shot.TASK, **more, **zero_shot.OPTIONS)
        return planned, Started(
            [replace(part, called="pair", named=planned.named_at(part.where)) for part in started.parts]
        )

    def _length(
        self, lora_request: None, tokenization_kwargs: Mapping[str, Any] | None, *asked: Any
    ) -> tuple[Length, bool]:
        default = options.default_length(lora_request, self.settings.on_long, *asked)
        return options.tokenization(tokenization_kwargs, self.recipe, default)

    def close(self) -> None:
        """Stop the threads; what is under way ends with `Unavailable`. The weights go with this object."""
        self._registry.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
