"""The offline API."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, overload

import numpy as np
from numpy.typing import NDArray

from . import conversion, inputs, options, prompting
from .answers import as_array, classification_outputs, embedding_outputs, pooling_outputs, scoring_outputs
from .calibration import in_precision
from .config import OnLong
from .errors import BadInput
from .outputs import (
    ClassificationRequestOutput,
    EmbeddingRequestOutput,
    PoolingParams,
    PoolingRequestOutput,
    RerankResult,
    ScoringRequestOutput,
)
from .precisions import Precision, check
from .registry import Registry
from .started import Part, Started, UseTqdm, score_parts
from .types import FloatArray, Input, Length
from .uses import late_chunks, reward, score
from .uses.score import Plan

if TYPE_CHECKING:
    from .engine import Engine
    from .recipe import Recipe

Output = Literal["objects", "numpy"]
Params = PoolingParams | Sequence[PoolingParams] | None

# Inputs of one piece of a stream, and how many pieces may be under way; together they bound its memory.
PIECE: Final = 1024
PIECES_AHEAD: Final = 4


class LLM:
    """A pooling model in this process; its methods may be called from several threads at once.

    Methods take these arguments alike:

    - `prompts`: a text, a `Pair`, token ids, a dict, or a list of these.
    - `use_tqdm`: whether a progress bar is shown, or what makes it.
    - `pooling_params`: options by the reference's names, of all prompts, or one per prompt.
    - `tokenization_kwargs`: truncation and special tokens, by the reference's names.
    - `use_cache`: whether the cache of rows (`cache_bytes`) may answer, where there is one.
    - `on_long`: `refuse`, `cut` or `chunk` what is longer than the model; `chunk` embeds it in pieces, each of which
      shares `chunk_overlap` tokens with the one before.
    - `more`: options by our names, the fields of the task's `Params`.

    They raise `BadInput` where a prompt or an option is not allowed, before anything runs.

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

    def encode(
        self,
        prompts: Any,
        pooling_params: Params = None,
        *,
        use_tqdm: UseTqdm = True,
        lora_request: None = None,
        pooling_task: str | None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> list[PoolingRequestOutput]:
        """Read the model as `pooling_task`; one output per prompt, in order, its data a float32 tensor.

        Args:
            more: Fields of the task's `Params`; of `token_embed` among them `input_type`, `query` or `document`, which
                late-interaction models read in ways of their own, and `pool_factor`.
        """
        task = options.task_named(pooling_task, self.recipe)
        started = self.start(prompts, task, pooling_params, lora_request, tokenization_kwargs, **more)
        return pooling_outputs(started.finish(use_tqdm))

    def encode_query(self, prompts: Any, **more: Any) -> list[PoolingRequestOutput]:
        """`encode` of queries as the model's own task: a vector per prompt, or late interaction's vector per token."""
        return self.encode(prompts, **{"pooling_task": self.recipe.default_task, "input_type": "query", **more})

    def encode_document(self, prompts: Any, **more: Any) -> list[PoolingRequestOutput]:
        """`encode_query` for documents."""
        return self.encode(prompts, **{"pooling_task": self.recipe.default_task, "input_type": "document", **more})

    @overload
    def embed(self, prompts: Any, *, output: Literal["numpy"], **more: Any) -> FloatArray: ...
    @overload
    def embed(
        self, prompts: Any, *, output: Literal["objects"] = "objects", **more: Any
    ) -> list[EmbeddingRequestOutput]: ...
    def embed(
        self,
        prompts: Any,
        *,
        output: Output = "objects",
        precision: Precision = "float32",
        use_tqdm: UseTqdm = True,
        **more: Any,
    ) -> list[EmbeddingRequestOutput] | FloatArray:
        """One vector per prompt, in order.

        Args:
            output: `objects` as the reference has them, or `numpy` for one array `[N, E]`.
            precision: `float32`, or fewer bits as `precisions.quantize` has them; the ranges of `int8` and `uint8` are
                those of the setting `calibration`, else of sample texts, which is logged.
            more: `pooling_params`, `lora_request`, `tokenization_kwargs`, and the fields of `tasks.embed.Params`:
                `normalize`, `dimensions`, `prompt_name`, `prompt`, `input_type`, `pooling`.
        """
        check_output(output)
        options.check_served("embed", self.recipe)
        check(precision)
        started = self.start(prompts, "embed", **more)
        outcome = in_precision(self.engine, started.params, started.finish(use_tqdm), precision)
        return as_array(outcome) if output == "numpy" else embedding_outputs(outcome)

    @overload
    def embed_query(self, prompts: Any, *, output: Literal["numpy"], **more: Any) -> FloatArray: ...
    @overload
    def embed_query(
        self, prompts: Any, *, output: Literal["objects"] = "objects", **more: Any
    ) -> list[EmbeddingRequestOutput]: ...
    def embed_query(self, prompts: Any, **more: Any) -> list[EmbeddingRequestOutput] | FloatArray:
        """`embed` with the checkpoint's prompt for queries before each text, if it has one.

        The rules are those of `encode_query` of sentence-transformers: the prompt named `query`, else the default one;
        `prompt_name` or `prompt` wins.
        """
        answers: list[EmbeddingRequestOutput] | FloatArray
        answers = self.embed(prompts, **prompting.preferring(prompting.QUERY, self.recipe, more))
        return answers

    @overload
    def embed_document(self, prompts: Any, *, output: Literal["numpy"], **more: Any) -> FloatArray: ...
    @overload
    def embed_document(
        self, prompts: Any, *, output: Literal["objects"] = "objects", **more: Any
    ) -> list[EmbeddingRequestOutput]: ...
    def embed_document(self, prompts: Any, **more: Any) -> list[EmbeddingRequestOutput] | FloatArray:
        """`embed_query` for documents: the first prompt of `document`, `passage` and `corpus` that there is."""
        answers: list[EmbeddingRequestOutput] | FloatArray
        answers = self.embed(prompts, **prompting.preferring(prompting.DOCUMENT, self.recipe, more))
        return answers

    @overload
    def embed_iter(self, prompts: Iterable[Any], *, output: Literal["numpy"], **more: Any) -> Iterator[FloatArray]: ...
    @overload
    def embed_iter(
        self, prompts: Iterable[Any], *, output: Literal["objects"] = "objects", **more: Any
    ) -> Iterator[EmbeddingRequestOutput]: ...
    def embed_iter(
        self, prompts: Iterable[Any], *, output: Output = "objects", precision: Precision = "float32", **more: Any
    ) -> Iterator[Any]:
        """Vectors of a stream of prompts, in order, with bounded memory.

        Args:
            prompts: Any iterable; it is read a few thousand prompts ahead.
            output: `objects`, or `numpy` for one array `[E]` per prompt.
            precision: As in `embed`.
            more: As in `embed`.

        Raises:
            BadInput: A prompt is not allowed; the vectors of the pieces before it were given out.
        """
        check_output(output)
        options.check_served("embed", self.recipe)
        check(precision)
        source = iter(prompts)
        ahead: deque[Started] = deque()
        try:
            while True:
                while len(ahead) < PIECES_AHEAD and (piece := list(itertools.islice(source, PIECE))):
                    ahead.append(self.start(piece, "embed", **more))
                if not ahead:
                    return
                started = ahead.popleft()
                outcome = in_precision(self.engine, started.params, started.finish(), precision)
                yield from as_array(outcome) if output == "numpy" else embedding_outputs(outcome)
        finally:
            for left in ahead:
                left.cancel()

    def embed_chunks(
        self,
        text: str | Sequence[str],
        spans: Sequence[tuple[int, int]] | None = None,
        *,
        unit: late_chunks.Unit = "chars",
        separator: str = " ",
        **more: Any,
    ) -> FloatArray:
        """Late chunking: the model reads a whole document, and each span of it gets a vector, `[spans, E]`.

        Args:
            text: A document, or the pieces of one, which are joined and are the spans.
            spans: Start and end of each span of a document; they may overlap.
            unit: What they count: `chars` of the text, or `tokens` with special ones.
            separator: What stands between pieces.
            more: Fields of `tasks.embed.Params`.

        Raises:
            BadInput: A span has no tokens, or the document is longer than the model.
        """
        for task in ("embed", late_chunks.TASK):
            options.check_served(task, self.recipe)
        planned = late_chunks.plan(text, spans, unit, separator)
        (asked,) = options.task_params("embed", None, 1, True, more)
        asked.check(self.recipe)
        outcome = self.engine.run_call(late_chunks.TASK, [planned.text], late_chunks.params(asked))
        return late_chunks.finish(
            self.recipe, self.engine.tokenizer, planned, outcome.rows[0], outcome.encoded[0], asked
        )

    def classify(self, prompts: Any, *, use_tqdm: UseTqdm = True, **more: Any) -> list[ClassificationRequestOutput]:
        """One value per label for each prompt, in order.

        Args:
            more: `pooling_params`, `lora_request`, `tokenization_kwargs`, and the fields of `tasks.classify.Params`.

        Raises:
            UnsupportedTask: The model is no classifier.
        """
        options.check_served("classify", self.recipe)
        outcome = self.start(prompts, "classify", **more).finish(use_tqdm)
        assert self.recipe.classifier is not None
        return classification_outputs(outcome, self.recipe.classifier.labels)

    def reward(self, prompts: Any, *, use_tqdm: UseTqdm = True, **more: Any) -> list[PoolingRequestOutput]:
        """Raw values of a classifier, per text or per token as the checkpoint has them; one output per prompt.

        Args:
            more: As in `classify`; `use_activation=True` applies the activation.

        Raises:
            UnsupportedTask: The model is no classifier.
        """
        started = self.start(prompts, reward.task(self.recipe), **reward.options(more))
        return pooling_outputs(started.finish(use_tqdm))

    def score(
        self, data_1: Any, data_2: Any, /, *, use_tqdm: UseTqdm = True, **more: Any
    ) -> list[ScoringRequestOutput]:
        """How well texts fit together: one of `data_1` with one or each of `data_2`, or pair by pair.

        Args:
            more: `pooling_params`, `lora_request`, `tokenization_kwargs`, `chat_template`, and the fields of
                `uses.score.Options`: `use_activation`, `max_tokens_per_query`, `max_tokens_per_doc`, `score_type`,
                `instruction`.

        Raises:
            UnsupportedTask: The model cannot score.
        """
        planned, started = self.start_score(data_1, data_2, **more)
        outcome = started.finish(use_tqdm)
        scores = score.finish(self.recipe, planned, outcome)
        return scoring_outputs(planned, outcome, scores, self.engine.tokenizer.pad_id)

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_n: int | None = None,
        min_score: float | None = None,
        use_tqdm: UseTqdm = True,
        **more: Any,
    ) -> list[RerankResult]:
        """Documents from best to worst; ties in input order.

        Args:
            top_n: How many to keep; None or 0 for all.
            min_score: Leave out documents below it.
            more: As in `score`.
        """
        score.check_ranking(query, top_n)
        planned, started = self.start_score(query, documents, **more)
        scores = score.finish(self.recipe, planned, started.finish(use_tqdm))
        return score.ranking(scores, documents, top_n, min_score)

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
        parsed = inputs.parse(prompts)
        length, special = self._length(lora_request, tokenization_kwargs, on_long, chunk_overlap)
        params = options.task_params(task, pooling_params, len(parsed), special, more)

        submit = functools.partial(self.engine.submit, length=length, lane="bulk", wait=True, use_cache=use_cache)

        def part(where: NDArray[np.intp], given: Sequence[Input], one: Any) -> Part:
            return Part(where, submit(task, given, one))

        if len(params) == 1:
            return Started([part(np.arange(len(parsed)), parsed, params[0])])
        groups: dict[Any, list[int]] = {}
        for position, one in enumerate(params):
            groups.setdefault(one, []).append(position)
        for one in groups:
            one.check(self.recipe)
        return Started.of(
            part(np.array(where, np.intp), [parsed[i] for i in where], one) for one, where in groups.items()
        )

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
        **more: Any,
    ) -> tuple[Plan, Started]:
        """Hand in pairs without waiting for the scores."""
        length, special = self._length(lora_request, tokenization_kwargs)
        how = options.score_options(pooling_params, chat_template, special, more)
        planned = score.plan(self.recipe, self.engine.tokenizer, data_1, data_2, how)
        submit = functools.partial(self.engine.submit, length=length, lane="bulk", wait=True, use_cache=use_cache)
        return planned, Started.of(score_parts(planned, submit))

    def _length(
        self, lora_request: None, tokenization_kwargs: Mapping[str, Any] | None, *asked: Any
    ) -> tuple[Length, bool]:
        default = options.default_length(lora_request, self.settings.on_long, *asked)
        return options.tokenization(tokenization_kwargs, self.recipe, default)

    def close(self) -> None:
        """Stop the threads; what is under way ends with `Unavailable`. The weights go with this object."""
        self._registry.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_output(output: str) -> None:
    """Raise `BadInput` where `output` is no form of output."""
    if output not in ("objects", "numpy"):
        raise BadInput(f"output={output!r}.", allowed="It is objects or numpy.", param="output")
