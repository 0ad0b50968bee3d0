"""Vectors of texts by a model in this process, in all their forms."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, overload

from . import options, prompting
from .answers import as_array, check_output, embedding_outputs, hybrid_outputs, sparse_answer
from .calibration import in_precision
from .opened import Opened
from .outputs import EmbeddingRequestOutput, HybridRequestOutput
from .precisions import Precision, check
from .started import Started, UseTqdm
from .types import FloatArray
from .uses import late_chunks

Output = Literal["objects", "numpy"]
VectorOutputs = list[EmbeddingRequestOutput]

# Inputs of one piece of a stream, and how many pieces may be under way; together they bound its memory.
PIECE: Final = 1024
PIECES_AHEAD: Final = 4


class Vectors(Opened):
    """What `LLM` does as an embedder; arguments that its methods have in common are explained there."""

    @overload
    def embed(self, prompts: Any, *, output: Literal["numpy"], **more: Any) -> FloatArray: ...
    @overload
    def embed(self, prompts: Any, *, output: Literal["objects"] = "objects", **more: Any) -> VectorOutputs: ...
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
                `normalize`, `dimensions`, `prompt_name`, `prompt`, `input_type`, `pooling`, `adapter`.
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
    def embed_query(self, prompts: Any, *, output: Literal["objects"] = "objects", **more: Any) -> VectorOutputs: ...
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
    def embed_document(self, prompts: Any, *, output: Literal["objects"] = "objects", **more: Any) -> VectorOutputs: ...
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
        """VectorOutputs of a stream of prompts, in order, with bounded memory.

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
        read_by = self.recipe, self.engine.tokenizers
        return late_chunks.finish(*read_by, planned, outcome.rows[0], outcome.encoded[0], asked)

    def embed_sparse(
        self, prompts: Any, *, output: Literal["objects", "csr"] = "objects", use_tqdm: UseTqdm = True, **more: Any
    ) -> Any:
        """One sparse vector per prompt, in order: a weight for each word of the vocabulary, most of them zero.

        Args:
            output: `objects` for a list of `SparseEmbeddingRequestOutput`, or `csr` for one `scipy.sparse.csr_array`,
                float32 `[N, V]`.
            more: `tokenization_kwargs`, and the fields of `tasks.sparse.Params`: `top_k`, `threshold`, `prompt_name`.
        """
        check_output(output, ("objects", "csr"))
        options.check_served("sparse", self.recipe)
        outcome = self.start(prompts, "sparse", **more).finish(use_tqdm)
        return sparse_answer(outcome, self.recipe, self.engine.tokenizer, output)

    def embed_all(self, prompts: Any, *, use_tqdm: UseTqdm = True, **more: Any) -> list[HybridRequestOutput]:
        """Vector, sparse vector and token vectors of each prompt by one forward (BGE-M3); `more` as in `embed`."""
        options.check_served("hybrid", self.recipe)
        outcome = self.start(prompts, "hybrid", **more).finish(use_tqdm)
        return hybrid_outputs(outcome, self.recipe, self.engine.tokenizer)
