"""The offline API."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, overload

from . import options, plugged, prompting
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
from .opened import Opened, Params
from .outputs import (
    ClassificationRequestOutput,
    EmbeddingRequestOutput,
    HybridRequestOutput,
    PoolingRequestOutput,
    RerankResult,
    ScoringRequestOutput,
)
from .precisions import Precision, check
from .started import Started, UseTqdm
from .types import FloatArray
from .uses import entities, fill_mask, late_chunks, reward, score, zero_shot
from .uses.entities import Aggregation, Entity
from .uses.fill_mask import Filled, Targets
from .uses.zero_shot import TEMPLATE, ZeroShot

Output = Literal["objects", "numpy"]
Vectors = list[EmbeddingRequestOutput]

# Inputs of one piece of a stream, and how many pieces may be under way; together they bound its memory.
PIECE: Final = 1024
PIECES_AHEAD: Final = 4


class LLM(Opened):
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

        With `pooling_task="plugin"` and a prompt `{"data": ...}` the model's IO processor reads the data, and there is
        one output, which holds the IO processor's answer as `outputs`.

        Args:
            more: Fields of the task's `Params`; of `token_embed` among them `input_type`, `query` or `document`, which
                late-interaction models read in ways of their own, and `pool_factor`.
        """
        how: dict[str, Any] = {"lora_request": lora_request, "tokenization_kwargs": tokenization_kwargs, **more}
        if (data := plugged.data_of(prompts, pooling_task)) is not None:
            return plugged.answered(self.ask_plugin(data, pooling_params, use_tqdm, how))
        task = options.task_named(pooling_task, self.recipe)
        started = self.start(prompts, task, pooling_params, **how)
        return pooling_outputs(started.finish(use_tqdm), options.sparse_size(task, self.recipe))

    def encode_query(self, prompts: Any, **more: Any) -> list[PoolingRequestOutput]:
        """`encode` of queries as the model's own task: a vector per prompt, or late interaction's vector per token."""
        return self.encode(prompts, **{"pooling_task": self.recipe.default_task, "input_type": "query", **more})

    def encode_document(self, prompts: Any, **more: Any) -> list[PoolingRequestOutput]:
        """`encode_query` for documents."""
        return self.encode(prompts, **{"pooling_task": self.recipe.default_task, "input_type": "document", **more})

    @overload
    def embed(self, prompts: Any, *, output: Literal["numpy"], **more: Any) -> FloatArray: ...
    @overload
    def embed(self, prompts: Any, *, output: Literal["objects"] = "objects", **more: Any) -> Vectors: ...
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
    def embed_query(self, prompts: Any, *, output: Literal["objects"] = "objects", **more: Any) -> Vectors: ...
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
    def embed_document(self, prompts: Any, *, output: Literal["objects"] = "objects", **more: Any) -> Vectors: ...
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
        route = prompting.route(self.recipe, asked.input_type)
        read_by = self.recipe.by_route[route], self.engine.tokenizers[route]
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

    @overload
    def entities(self, texts: str, **more: Any) -> list[Entity]: ...
    @overload
    def entities(self, texts: list[str], **more: Any) -> list[list[Entity]]: ...
    def entities(
        self,
        texts: str | list[str],
        *,
        aggregation: Aggregation = "simple",
        ignore_labels: Sequence[str] = ("O",),
        stride: int | None = None,
        use_tqdm: UseTqdm = True,
        **more: Any,
    ) -> list[Entity] | list[list[Entity]]:
        """What a token classifier finds in each text, from its start to its end; a text alone is answered alone.

        Args:
            aggregation, ignore_labels: See `uses.entities.Options`.
            stride: A text that is longer than the model is read in windows which share so many tokens; None as
                `on_long` says.
            more: `tokenization_kwargs`, `on_long`, `use_cache`.

        Raises:
            UnsupportedTask: The model labels no tokens.
        """
        how = entities.Options(aggregation, ignore_labels)
        planned, started = self.start_entities(texts, how, stride=stride, **more)
        found = entities.finish(self.recipe, self.engine.tokenizer, planned, started.finish(use_tqdm).rows)
        return found[0] if isinstance(texts, str) else found

    @overload
    def zero_shot(self, texts: str, labels: str | Sequence[str], **more: Any) -> ZeroShot: ...
    @overload
    def zero_shot(self, texts: list[str], labels: str | Sequence[str], **more: Any) -> list[ZeroShot]: ...
    def zero_shot(
        self,
        texts: str | list[str],
        labels: str | Sequence[str],
        *,
        multi_label: bool = False,
        hypothesis_template: str = TEMPLATE,
        use_tqdm: UseTqdm = True,
        **more: Any,
    ) -> ZeroShot | list[ZeroShot]:
        """Which of `labels` fits each text, by a model of natural language inference; a text alone is answered alone.

        Args:
            labels: Any, as a list or with commas between them.
            multi_label: Whether several may hold, so that each has a probability of its own.
            hypothesis_template: A sentence that says of a text that it is `{}`.
            more: As in `classify`. Where a text is cut, the hypothesis stays whole.

        Raises:
            UnsupportedTask: The model has no such labels.
        """
        planned, started = self.start_zero_shot(texts, labels, multi_label, hypothesis_template, **more)
        found = zero_shot.finish(planned, started.finish(use_tqdm).rows)
        return found[0] if isinstance(texts, str) else found

    def fill_mask(
        self,
        texts: str | Sequence[str],
        *,
        top_k: int = 5,
        targets: Targets = None,
        use_tqdm: UseTqdm = True,
        **more: Any,
    ) -> Filled:
        """The likeliest words in the place of each mask, from likely to unlikely; a text alone is answered alone.

        Args:
            texts: One text or several, each with at least one mask token; one with several has a list for each.
            top_k: How many words each mask gets.
            targets: The only words that are looked at; of one that is no token its first token.
            more: `tokenization_kwargs`.
        """
        planned = fill_mask.plan(self.recipe, self.engine.tokenizer, texts, top_k, targets)
        started = self.start(planned.texts, "token_classify", **more, **planned.options)
        return fill_mask.finish(planned, self.engine.tokenizer, started.finish(use_tqdm))

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
            more: `pooling_params`, `lora_request`, `tokenization_kwargs`, `chat_template`, `on_long`, `chunk_overlap`,
                and the fields of `uses.score.Options`: `use_activation`, `max_tokens_per_query`, `max_tokens_per_doc`,
                `score_type`, `weights`, `instruction`.

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
        score.check_ranking(query, top_n, min_score)
        planned, started = self.start_score(query, documents, **more)
        scores = score.finish(self.recipe, planned, started.finish(use_tqdm))
        return score.ranking(scores, documents, top_n, min_score)
