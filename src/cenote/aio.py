"""The offline API for an event loop."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar, overload

from . import options, pieces, plugged, prompting, uses
from .answers import (
    as_array,
    check_output,
    classification_outputs,
    embedding_outputs,
    hybrid_outputs,
    pooling_outputs,
    scoring_outputs,
    sparse_answer,
)
from .calibration import in_precision
from .llm import LLM
from .opened import Params
from .outputs import (
    ClassificationRequestOutput,
    EmbeddingRequestOutput,
    HybridRequestOutput,
    PoolingRequestOutput,
    RerankResult,
    ScoringRequestOutput,
)
from .precisions import Precision, check
from .recipe import Recipe
from .started import Started
from .types import FloatArray, Outcome
from .uses import entities, fill_mask, reward, score, zero_shot
from .uses.entities import Aggregation, Entity
from .uses.fill_mask import Filled, Targets
from .uses.score import Plan, Scores
from .uses.zero_shot import TEMPLATE, ZeroShot
from .vectors import PIECE, PIECES_AHEAD, Output

T = TypeVar("T")

_FEW_BYTES = 64 * 1024
"""What is done with less than so many bytes of rows takes no longer than going to another thread and back."""


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

    async def fingerprint(self) -> str:
        """`LLM.fingerprint`, awaited."""
        return await asyncio.to_thread(lambda: self._llm.fingerprint)

    def get_supported_tasks(self) -> tuple[str, ...]:
        """What the model can be read as; all of it at once."""
        return self._llm.get_supported_tasks()

    async def encode(
        self, prompts: Any, pooling_params: Params = None, *, pooling_task: str | None = None, **more: Any
    ) -> list[PoolingRequestOutput]:
        """`LLM.encode`, awaited."""
        if (data := plugged.data_of(prompts, pooling_task)) is not None:
            return plugged.answered(await self._plugged(data, pooling_params, more))
        task = options.task_named(pooling_task, self.recipe)
        outcome = await self._run(prompts, task, pooling_params, **more)
        return pooling_outputs(outcome, options.sparse_size(task, self.recipe))

    async def encode_query(self, prompts: Any, **more: Any) -> list[PoolingRequestOutput]:
        """`LLM.encode_query`, awaited."""
        return await self.encode(prompts, **{"pooling_task": self.recipe.default_task, "input_type": "query", **more})

    async def encode_document(self, prompts: Any, **more: Any) -> list[PoolingRequestOutput]:
        """`LLM.encode_document`, awaited."""
        return await self.encode(
            prompts, **{"pooling_task": self.recipe.default_task, "input_type": "document", **more}
        )

    @overload
    async def embed(self, prompts: Any, *, output: Literal["numpy"], **more: Any) -> FloatArray: ...
    @overload
    async def embed(
        self, prompts: Any, *, output: Literal["objects"] = "objects", **more: Any
    ) -> list[EmbeddingRequestOutput]: ...
    async def embed(
        self, prompts: Any, *, output: Output = "objects", precision: Precision = "float32", **more: Any
    ) -> list[EmbeddingRequestOutput] | FloatArray:
        """`LLM.embed`, awaited."""
        check_output(output)
        options.check_served("embed", self.recipe)
        check(precision)
        started = await self._start(prompts, "embed", **more)
        outcome = await self._in_precision(started, precision)
        return as_array(outcome) if output == "numpy" else embedding_outputs(outcome)

    @overload
    async def embed_query(self, prompts: Any, *, output: Literal["numpy"], **more: Any) -> FloatArray: ...
    @overload
    async def embed_query(
        self, prompts: Any, *, output: Literal["objects"] = "objects", **more: Any
    ) -> list[EmbeddingRequestOutput]: ...
    async def embed_query(self, prompts: Any, **more: Any) -> list[EmbeddingRequestOutput] | FloatArray:
        """`LLM.embed_query`, awaited."""
        answers: list[EmbeddingRequestOutput] | FloatArray
        answers = await self.embed(prompts, **prompting.preferring(prompting.QUERY, self.recipe, more))
        return answers

    @overload
    async def embed_document(self, prompts: Any, *, output: Literal["numpy"], **more: Any) -> FloatArray: ...
    @overload
    async def embed_document(
        self, prompts: Any, *, output: Literal["objects"] = "objects", **more: Any
    ) -> list[EmbeddingRequestOutput]: ...
    async def embed_document(self, prompts: Any, **more: Any) -> list[EmbeddingRequestOutput] | FloatArray:
        """`LLM.embed_document`, awaited."""
        answers: list[EmbeddingRequestOutput] | FloatArray
        answers = await self.embed(prompts, **prompting.preferring(prompting.DOCUMENT, self.recipe, more))
        return answers

    async def embed_chunks(
        self, text: str | Sequence[str], spans: Sequence[tuple[int, int]] | None = None, **more: Any
    ) -> FloatArray:
        """`LLM.embed_chunks`, awaited; a document that is being read is read to its end."""
        return await asyncio.to_thread(self._llm.embed_chunks, text, spans, **more)

    async def embed_iter(
        self, prompts: Iterable[Any], *, output: Output = "objects", precision: Precision = "float32", **more: Any
    ) -> AsyncIterator[Any]:
        """`LLM.embed_iter`, awaited one vector at a time; `prompts` is read between awaits, so it should not block."""
        check_output(output)
        options.check_served("embed", self.recipe)
        check(precision)
        source = iter(prompts)
        ahead: deque[Started] = deque()
        try:
            while True:
                while len(ahead) < PIECES_AHEAD and (piece := list(itertools.islice(source, PIECE))):
                    ahead.append(await _off_the_loop(Started.cancel, self._llm.start, piece, "embed", **more))
                if not ahead:
                    return
                outcome = await self._in_precision(ahead.popleft(), precision)
                for one in as_array(outcome) if output == "numpy" else embedding_outputs(outcome):
                    yield one
        finally:
            for started in ahead:
                started.cancel()

    async def embed_sparse(self, prompts: Any, *, output: Literal["objects", "csr"] = "objects", **more: Any) -> Any:
        """`LLM.embed_sparse`, awaited."""
        check_output(output, ("objects", "csr"))
        options.check_served("sparse", self.recipe)
        outcome = await self._run(prompts, "sparse", **more)
        return sparse_answer(outcome, self.recipe, self._llm.engine.tokenizer, output)

    async def embed_all(self, prompts: Any, **more: Any) -> list[HybridRequestOutput]:
        """`LLM.embed_all`, awaited."""
        options.check_served("hybrid", self.recipe)
        return hybrid_outputs(await self._run(prompts, "hybrid", **more), self.recipe, self._llm.engine.tokenizer)

    async def classify(self, prompts: Any, **more: Any) -> list[ClassificationRequestOutput]:
        """`LLM.classify`, awaited."""
        options.check_served("classify", self.recipe)
        outcome = await self._run(prompts, "classify", **more)
        assert self.recipe.classifier is not None
        return classification_outputs(outcome, self.recipe.classifier.labels)

    @overload
    async def entities(self, texts: str, **more: Any) -> list[Entity]: ...
    @overload
    async def entities(self, texts: list[str], **more: Any) -> list[list[Entity]]: ...
    async def entities(
        self,
        texts: str | list[str],
        *,
        aggregation: Aggregation = "simple",
        ignore_labels: Sequence[str] = ("O",),
        **more: Any,
    ) -> list[Entity] | list[list[Entity]]:
        """`LLM.entities`, awaited."""
        how = entities.Options(aggregation, ignore_labels)
        planned, started = await self._planned(self._llm.start_entities, texts, how, **more)
        tokenizer, outcome = self._llm.engine.tokenizer, await started.outcome()
        found = await _aside(outcome, entities.finish, self.recipe, tokenizer, planned, outcome.rows)
        return found[0] if isinstance(texts, str) else found

    @overload
    async def zero_shot(self, texts: str, labels: str | Sequence[str], **more: Any) -> ZeroShot: ...
    @overload
    async def zero_shot(self, texts: list[str], labels: str | Sequence[str], **more: Any) -> list[ZeroShot]: ...
    async def zero_shot(
        self,
        texts: str | list[str],
        labels: str | Sequence[str],
        *,
        multi_label: bool = False,
        hypothesis_template: str = TEMPLATE,
        **more: Any,
    ) -> ZeroShot | list[ZeroShot]:
        """`LLM.zero_shot`, awaited."""
        asked = (texts, labels, multi_label, hypothesis_template)
        planned, started = await self._planned(self._llm.start_zero_shot, *asked, **more)
        found = zero_shot.finish(planned, (await started.outcome()).rows)
        return found[0] if isinstance(texts, str) else found

    async def fill_mask(
        self, texts: str | Sequence[str], *, top_k: int = 5, targets: Targets = None, **more: Any
    ) -> Filled:
        """`LLM.fill_mask`, awaited."""
        tokenizer = self._llm.engine.tokenizer
        planned = fill_mask.plan(self.recipe, tokenizer, texts, top_k, targets)
        outcome = await self._run(planned.texts, "token_classify", **more, **planned.options)
        return fill_mask.finish(planned, tokenizer, outcome)

    async def reward(self, prompts: Any, **more: Any) -> list[PoolingRequestOutput]:
        """`LLM.reward`, awaited."""
        return pooling_outputs(await self._run(prompts, reward.task(self.recipe), **reward.options(more)))

    async def use(self, name: str, given: Any, /, **more: Any) -> Any:
        """`LLM.use`, awaited."""
        use, planned, started = await _off_the_loop(
            lambda parts: parts[2].cancel(), self._llm.start_use, name, given, **more
        )
        tokenizer, outcome = self._llm.engine.tokenizer, await started.outcome()
        return await asyncio.to_thread(uses.finish, use, self.recipe, tokenizer, planned, outcome)

    async def score(self, data_1: Any, data_2: Any, /, **more: Any) -> list[ScoringRequestOutput]:
        """`LLM.score`, awaited."""
        planned, outcome, scores = await self._score(data_1, data_2, **more)
        return scoring_outputs(planned, outcome, scores, self._llm.engine.tokenizer.pad_id)

    async def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_n: int | None = None,
        min_score: float | None = None,
        **more: Any,
    ) -> list[RerankResult]:
        """`LLM.rerank`, awaited."""
        score.check_ranking(query, top_n, min_score)
        _, _, scores = await self._score(query, documents, **more)
        return score.ranking(scores, documents, top_n, min_score)

    async def _run(self, *args: Any, **more: Any) -> Outcome:
        started = await self._start(*args, **more)
        return await started.outcome()

    async def _start(self, prompts: Any, *args: Any, **more: Any) -> Started:
        if _are_few(prompts):
            with self._llm.engine.held_idle() as idle:
                if idle:  # there is room, so that nothing blocks the loop
                    return self._llm.start(prompts, *args, **more)
        return await _off_the_loop(Started.cancel, self._llm.start, prompts, *args, **more)

    async def _plugged(self, data: Any, pooling_params: Params, how: dict[str, Any]) -> Any:
        plugin, start = plugged.served(self._llm.io_plugin), self._llm.start_plugged
        with plugged.handled(plugin) as request_id:
            prompts = await plugged.prompts_of(plugin, data, request_id)
            planned, started = await _off_the_loop(
                lambda both: both[1].cancel(), start, plugin, prompts, pooling_params, **how
            )
            return await plugged.answer_of(plugin, planned, await started.outcome(), self.recipe, request_id)

    async def _in_precision(self, started: Started, precision: Precision) -> Outcome:
        outcome = await started.outcome()
        if precision == "float32":
            return outcome
        # The first one-byte vectors wait for the sample.
        return await asyncio.to_thread(in_precision, self._llm.engine, started.params, outcome, precision)

    async def _planned(self, start: Callable[..., tuple[T, Started]], *args: Any, **more: Any) -> tuple[T, Started]:
        return await _off_the_loop(lambda both: both[1].cancel(), start, *args, **more)

    async def _score(self, *args: Any, **more: Any) -> tuple[Plan, Outcome, Scores]:
        planned, started = await self._planned(self._llm.start_score, *args, **more)
        outcome = await started.outcome()
        return planned, outcome, await _aside(outcome, score.finish, self.recipe, planned, outcome)

    def close(self) -> None:
        """Stop the threads. The weights go with this object."""
        self._llm.close()

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def _are_few(prompts: Any) -> bool:
    """Whether prompts are texts which are handed in sooner than another thread begins to."""
    texts = [prompts] if isinstance(prompts, str) else prompts
    if not isinstance(texts, list) or len(texts) > pieces.FEW_INPUTS:
        return False
    return all(isinstance(text, str) for text in texts) and pieces.are_few(texts)


async def _aside(outcome: Outcome, work: Callable[..., T], *args: Any) -> T:
    """Do `work` on the rows of an outcome here where they are few, else in a thread."""
    if sum(row.nbytes for row in outcome.rows) < _FEW_BYTES:
        return work(*args)
    return await asyncio.to_thread(work, *args)


async def _off_the_loop(give_up: Callable[[T], object], function: Callable[..., T], *args: Any, **more: Any) -> T:
    """Handing in may wait for room in the queue; `give_up` is for what comes of it after its task was cancelled."""
    handing_in = asyncio.get_running_loop().run_in_executor(None, functools.partial(function, *args, **more))

    def nobody_waits(ended: asyncio.Future[T]) -> None:
        if not ended.cancelled() and ended.exception() is None:
            give_up(ended.result())

    try:
        # Without the shield the result would be lost: a thread cannot be cancelled, and hands in all the same.
        return await asyncio.shield(handing_in)
    except asyncio.CancelledError:
        handing_in.add_done_callback(nobody_waits)
        raise
