"""The offline API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from . import options, plugged, uses
from .answers import classification_outputs, pooling_outputs, scoring_outputs
from .opened import Params
from .outputs import ClassificationRequestOutput, PoolingRequestOutput, RerankResult, ScoringRequestOutput
from .started import UseTqdm
from .uses import entities, fill_mask, reward, score, zero_shot
from .uses.entities import Aggregation, Entity
from .uses.fill_mask import Filled, Targets
from .uses.zero_shot import TEMPLATE, ZeroShot
from .vectors import Vectors


class LLM(Vectors):
    """A pooling model in this process; its methods may be called from several threads at once.

    Methods take these arguments alike:

    - `prompts`: a text, a `Pair`, token ids, a dict, or a list of these.
    - `use_tqdm`: whether a progress bar is shown, once a call takes longer than a moment, or what makes it.
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

    def use(self, name: str, given: Any, /, *, use_tqdm: UseTqdm = True, **more: Any) -> Any:
        """What a plugin's use called `name` makes of what is given; its result.

        Args:
            more: Options of the use, and `tokenization_kwargs`, `on_long`, `use_cache`.

        Raises:
            UnsupportedTask: The model cannot be used so.
        """
        use, planned, started = self.start_use(name, given, **more)
        return uses.finish(use, self.recipe, self.engine.tokenizer, planned, started.finish(use_tqdm))

    def score(
        self, data_1: Any, data_2: Any, /, *, use_tqdm: UseTqdm = True, **more: Any
    ) -> list[ScoringRequestOutput]:
        """How well texts fit together: one of `data_1` with one or each of `data_2`, or pair by pair.

        Args:
            more: `pooling_params`, `lora_request`, `tokenization_kwargs`, `chat_template`, `on_long`, `chunk_overlap`,
                and the fields of `uses.score.Options`: `use_activation`, `max_tokens_per_query`, `max_tokens_per_doc`,
                `score_type`, `weights`, `instruction`, and `query_input_type`, `document_input_type`, `query_adapter`
                and `document_adapter` where texts are read apart.

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
