"""The offline API for an event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import Any, Literal, overload

from .llm import LLM, Output, Params, Started, as_array, embedding_outputs, pooling_outputs
from .outputs import EmbeddingRequestOutput, PoolingRequestOutput
from .recipe import Recipe
from .types import FloatArray, Outcome


class AsyncLLM:
    """A pooling model in this process; its methods are awaited, and cancelling the task cancels the work.

    Args:
        model, settings: As for `LLM`.
    """

    def __init__(self, model: str = "", **settings: Any) -> None:
        self._llm = LLM(model, **settings)

    @property
    def recipe(self) -> Recipe:
        """Everything that was decided about the checkpoint."""
        return self._llm.recipe

    def get_supported_tasks(self) -> tuple[str, ...]:
        """What the model can be read as; all of it at once."""
        return self._llm.get_supported_tasks()

    async def encode(
        self,
        prompts: Any,
        pooling_params: Params = None,
        *,
        lora_request: None = None,
        pooling_task: str | None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
    ) -> list[PoolingRequestOutput]:
        """`LLM.encode`, awaited."""
        task = self._llm.check_task(pooling_task)
        outcome = await self._run(prompts, task, pooling_params, lora_request, tokenization_kwargs)
        return pooling_outputs(outcome)

    @overload
    async def embed(self, prompts: Any, *, output: Literal["numpy"], **options: Any) -> FloatArray: ...
    @overload
    async def embed(
        self, prompts: Any, *, output: Literal["objects"] = "objects", **options: Any
    ) -> list[EmbeddingRequestOutput]: ...
    async def embed(
        self,
        prompts: Any,
        *,
        output: Output = "objects",
        pooling_params: Params = None,
        lora_request: None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> list[EmbeddingRequestOutput] | FloatArray:
        """`LLM.embed`, awaited."""
        outcome = await self._run(prompts, "embed", pooling_params, lora_request, tokenization_kwargs, **more)
        return as_array(outcome) if output == "numpy" else embedding_outputs(outcome)

    async def _run(self, *args: Any, **more: Any) -> Outcome:
        # Handing in may wait for room in the queue, so it does not happen on the loop.
        loop = asyncio.get_running_loop()
        started: Started = await loop.run_in_executor(None, functools.partial(self._llm.start, *args, **more))
        try:
            return started.merge([await part.call.outcome() for part in started.parts])
        except BaseException:
            started.cancel()
            raise

    def close(self) -> None:
        """Stop the threads and let go of the weights."""
        self._llm.close()

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
