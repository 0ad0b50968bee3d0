"""The offline API."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, overload

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from . import inputs, options
from .call import Call
from .errors import BadInput, ConfigError, UnsupportedTask
from .outputs import EmbeddingOutput, EmbeddingRequestOutput, PoolingOutput, PoolingParams, PoolingRequestOutput
from .registry import Registry
from .tasks import TASKS, embed
from .types import Encoded, FloatArray, Input, Length, Outcome

if TYPE_CHECKING:
    from .engine import Engine
    from .recipe import Recipe

Output = Literal["objects", "numpy"]
UseTqdm = bool | Callable[..., Any]
Params = PoolingParams | Sequence[PoolingParams] | None

# Inputs of one piece of a stream, and how many pieces may be under way; together they bound its memory.
_PIECE: Final = 1024
_PIECES_AHEAD: Final = 4

_ids = itertools.count()


class LLM:
    """A pooling model in this process; its methods may be called from several threads at once.

    Args:
        model: Folder or hub id; empty for the embedded all-MiniLM-L6-v2.
        runner: `auto` or `pooling`, which is what every model here is.
        task: The reference's old switch; warns.
        settings: Fields of `config.ModelSettings` and `config.MachineSettings`; those of the reference that only tune
            it are noted once.

    Raises:
        CenoteError: The model cannot be found or served, or a setting is not allowed; the message says which and why.
    """

    def __init__(self, model: str = "", *, runner: str = "auto", task: str | None = None, **settings: Any) -> None:
        if task is not None:
            options.old_task(task)
        if runner not in ("auto", "pooling"):
            allowed = "Allowed are auto and pooling."
            raise ConfigError(f"This model does not support `--runner {runner}`.", allowed=allowed, param="runner")
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

    def get_supported_tasks(self) -> tuple[str, ...]:
        """What the model can be read as; all of it at once."""
        return self.recipe.tasks

    def encode(
        self,
        prompts: Any,
        pooling_params: Params = None,
        *,
        use_tqdm: UseTqdm = True,
        lora_request: None = None,
        pooling_task: str | None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
    ) -> list[PoolingRequestOutput]:
        """Read the model as `pooling_task`; one output per prompt, in order.

        Args:
            prompts: A text, token ids, a dict, or a list of these.
            pooling_params: Options of all prompts, or one per prompt.
            use_tqdm: Whether a progress bar is shown, or what makes it.
            pooling_task: Name of a task.
            tokenization_kwargs: Truncation and special tokens, by the reference's names.

        Raises:
            BadInput: A prompt or an option is not allowed; nothing was run.
        """
        task = self.check_task(pooling_task)
        started = self.start(prompts, task, pooling_params, lora_request, tokenization_kwargs)
        return pooling_outputs(started.finish(use_tqdm))

    @overload
    def embed(self, prompts: Any, *, output: Literal["numpy"], **options: Any) -> FloatArray: ...
    @overload
    def embed(
        self, prompts: Any, *, output: Literal["objects"] = "objects", **options: Any
    ) -> list[EmbeddingRequestOutput]: ...
    def embed(
        self,
        prompts: Any,
        *,
        output: Output = "objects",
        use_tqdm: UseTqdm = True,
        pooling_params: Params = None,
        lora_request: None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> list[EmbeddingRequestOutput] | FloatArray:
        """One vector per prompt, in order.

        Args:
            prompts: A text, token ids, a dict, or a list of these.
            output: `objects` as the reference has them, or `numpy` for one float32 array `[N, E]`.
            use_tqdm, pooling_params, tokenization_kwargs: As in `encode`.
            more: `normalize`, `dimensions`, `prompt_name`, `prompt`: fields of `tasks.embed.Params`.

        Raises:
            BadInput: A prompt or an option is not allowed; nothing was run.
        """
        _check_output(output)
        started = self.start(prompts, "embed", pooling_params, lora_request, tokenization_kwargs, **more)
        outcome = started.finish(use_tqdm)
        return as_array(outcome) if output == "numpy" else embedding_outputs(outcome)

    @overload
    def embed_iter(
        self, prompts: Iterable[Any], *, output: Literal["numpy"], **options: Any
    ) -> Iterator[FloatArray]: ...
    @overload
    def embed_iter(
        self, prompts: Iterable[Any], *, output: Literal["objects"] = "objects", **options: Any
    ) -> Iterator[EmbeddingRequestOutput]: ...
    def embed_iter(
        self,
        prompts: Iterable[Any],
        *,
        output: Output = "objects",
        tokenization_kwargs: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Iterator[Any]:
        """Vectors of a stream of prompts, in order, with bounded memory.

        Args:
            prompts: Any iterable; it is read a few thousand prompts ahead.
            output: `objects`, or `numpy` for one float32 array `[E]` per prompt.
            tokenization_kwargs, more: As in `embed`.

        Raises:
            BadInput: A prompt is not allowed; the vectors of the pieces before it were given out.
        """
        _check_output(output)
        source = iter(prompts)
        ahead: deque[Started] = deque()
        try:
            while True:
                while len(ahead) < _PIECES_AHEAD and (piece := list(itertools.islice(source, _PIECE))):
                    ahead.append(self.start(piece, "embed", None, None, tokenization_kwargs, **more))
                if not ahead:
                    return
                outcome = ahead.popleft().finish()
                yield from as_array(outcome) if output == "numpy" else embedding_outputs(outcome)
        finally:
            for started in ahead:
                started.cancel()

    def start(
        self,
        prompts: Any,
        task: str,
        pooling_params: Params = None,
        lora_request: None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Started:
        """Hand in prompts without waiting for the answers; the arguments are those of `embed`."""
        if lora_request is not None:
            raise BadInput("lora_request was given, but Cenote serves no adapters.", param="lora_request")
        parsed = inputs.parse(prompts)
        default = Length(self.settings.on_long or "refuse")
        length, special = options.tokenization(tokenization_kwargs, self.recipe, default)
        params = options.embed_params(pooling_params, len(parsed), task, special, more)

        def part(where: NDArray[np.intp], given: Sequence[Input], one: embed.Params) -> Part:
            return Part(where, self.engine.submit(task, given, one, length=length, lane="bulk", wait=True))

        if isinstance(params, embed.Params):
            return Started([part(np.arange(len(parsed)), parsed, params)])
        groups = {one: np.flatnonzero([one == other for other in params]) for one in dict.fromkeys(params)}
        return Started([part(where, [parsed[i] for i in where], one) for one, where in groups.items()])

    def check_task(self, task: str | None) -> str:
        """The task by its name.

        Raises:
            UnsupportedTask: There is none, or the model does not serve it.
        """
        if task is None:
            allowed = f"Choose one of {TASKS}."
            raise BadInput("pooling_task is required for LLM.encode.", allowed=allowed, param="pooling_task")
        if task not in self.recipe.tasks:
            allowed = f"Supported tasks: {self.recipe.tasks}"
            raise UnsupportedTask(f"Unsupported task: {task!r}", allowed=allowed, param="pooling_task")
        return task

    def close(self) -> None:
        """Stop the threads and let go of the weights; what is under way ends with `Unavailable`."""
        self._registry.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Part:
    """Prompts with the same options: their positions, and the call that runs them."""

    where: NDArray[np.intp]
    call: Call


@dataclass(frozen=True)
class Started:
    """Prompts that were handed in; one call for each distinct set of options."""

    parts: Sequence[Part]

    def finish(self, use_tqdm: UseTqdm = False) -> Outcome:
        """Wait, showing how far it is, and raise the first error there is."""
        try:
            if use_tqdm:
                _show([part.call for part in self.parts], tqdm if use_tqdm is True else use_tqdm)
            return self.merge([part.call.result() for part in self.parts])
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Give up what has not ended."""
        for part in self.parts:
            part.call.cancel()

    def merge(self, outcomes: Sequence[Outcome]) -> Outcome:
        """Outcomes of the parts as one, in the order of the prompts; raises the first error there is."""
        for outcome in outcomes:
            outcome.raise_first()
        if len(outcomes) == 1:
            return outcomes[0]
        num = sum(len(part.where) for part in self.parts)
        rows: list[FloatArray] = [np.zeros(0, np.float32)] * num
        encoded = [Encoded(np.zeros(0, np.int32))] * num
        for part, outcome in zip(self.parts, outcomes, strict=True):
            for position, row, item in zip(part.where.tolist(), outcome.rows, outcome.encoded, strict=True):
                rows[position], encoded[position] = row, item
        return Outcome(rows, encoded)


def embedding_outputs(outcome: Outcome) -> list[EmbeddingRequestOutput]:
    """One object per input, as the reference has them."""
    return [
        EmbeddingRequestOutput(str(next(_ids)), EmbeddingOutput(row), item.ids.tolist(), num_cut_tokens=item.num_cut)
        for row, item in zip(_lists(outcome), outcome.encoded, strict=True)
    ]


def pooling_outputs(outcome: Outcome) -> list[PoolingRequestOutput]:
    """One object per input, its data a torch tensor."""
    import torch

    return [
        PoolingRequestOutput(
            str(next(_ids)), PoolingOutput(torch.from_numpy(row)), item.ids.tolist(), num_cut_tokens=item.num_cut
        )
        for row, item in zip(outcome.rows, outcome.encoded, strict=True)
    ]


def as_array(outcome: Outcome) -> FloatArray:
    """Rows as one array `[N, E]`.

    Raises:
        BadInput: They are not of one size.
    """
    if isinstance(outcome.rows, np.ndarray):
        return outcome.rows
    sizes = sorted({len(row) for row in outcome.rows})
    if len(sizes) > 1:
        fix = "Ask for the same dimensions for all prompts, or for output='objects'."
        raise BadInput(f"The vectors have sizes {sizes}, which make no array.", fix=fix, param="output")
    return np.stack(outcome.rows)


def _lists(outcome: Outcome) -> list[list[float]]:
    rows = outcome.rows
    return rows.tolist() if isinstance(rows, np.ndarray) else [row.tolist() for row in rows]


def _check_output(output: str) -> None:
    if output not in ("objects", "numpy"):
        raise BadInput(f"output={output!r}.", allowed="It is objects or numpy.", param="output")


def _show(calls: Sequence[Call], make_bar: Callable[..., Any]) -> None:
    """A bar with texts/s, and tokens/s beside it."""
    total = sum(call.num_inputs for call in calls)
    with make_bar(total=total, desc="Processed prompts", unit="text", dynamic_ncols=True) as bar:
        for call in calls:
            before = bar.n
            ended = False
            while not ended:
                ended = call.wait(0.1)
                bar.set_postfix_str(f"{call.num_done_tokens / max(call.age_s, 1e-9):,.0f} tokens/s", refresh=False)
                bar.update(before + call.num_done - bar.n)
