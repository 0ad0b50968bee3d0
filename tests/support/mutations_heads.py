"""Edits of classifiers, token vectors, scores and rankings."""

from __future__ import annotations

from typing import Final

from .mutation import Mutation

CLASSIFY: Final = "tests/doors/test_llm_classify.py::"
SCORE: Final = "tests/doors/test_llm_score.py::"
TOKENS: Final = "tests/doors/test_llm_tokens.py::"
SCORES: Final = "tests/meaning/test_scores.py::"

CLASSIFIERS = (
    Mutation(
        "activation between a classifier's layers dropped",
        "layers/heads.py",
        "activation=stage.activation,\n",
        "\n",
        (f"{CLASSIFY}test_logits_equal_the_reference[bert-1]",),
    ),
    Mutation(
        "pooler of a classifier skipped",
        "layers/heads.py",
        "for stage in self.stages:",
        "for stage in self.stages[-1:]:",
        (f"{CLASSIFY}test_logits_equal_the_reference[electra-2]",),
    ),
    Mutation(
        "activation after the last layer of a classifier",
        "models/roberta.py",
        '(Stage("classifier.dense", "tanh"), Stage("classifier.out_proj"))',
        '(Stage("classifier.dense"), Stage("classifier.out_proj", "tanh"))',
        (f"{CLASSIFY}test_logits_equal_the_reference[camembert-1]",),
    ),
    Mutation(
        "activation of distilbert's classifier is tanh",
        "models/distilbert.py",
        'Stage("pre_classifier", "relu")',
        'Stage("pre_classifier", "tanh")',
        (f"{CLASSIFY}test_logits_equal_the_reference[distilbert-1]",),
    ),
    Mutation(
        "activation of electra's classifier is tanh",
        "models/electra.py",
        'Stage("classifier.dense", "gelu")',
        'Stage("classifier.dense", "tanh")',
        (f"{CLASSIFY}test_logits_equal_the_reference[electra-5]",),
    ),
    Mutation(
        "classified by the second token",
        "layers/heads.py",
        "self.forward(self.pool(hidden_QD, spans))",
        "self.forward(self.pool(hidden_QD.roll(-1, 0), spans))",
        (f"{CLASSIFY}test_logits_equal_the_reference[bert-2]",),
    ),
    Mutation(
        "segment ids dropped",
        "tokenizer.py",
        "return segments if segments.any() else None",
        "return None",
        (f"{CLASSIFY}test_cut_pairs_keep_their_segments[bert-left]",),
    ),
    Mutation(
        "segment ids of a cut pair are those before the cut",
        "tokenizer_backends.py",
        "[type_ids[p] for p in keep]",
        "type_ids[: len(keep)]",
        (f"{CLASSIFY}test_cut_pairs_keep_their_segments[electra-left]",),
    ),
    Mutation(
        "sigma divides before the mean is subtracted",
        "activations.py",
        "values = values / np.float32(classifier.logit_sigma)",
        "values = logits / np.float32(classifier.logit_sigma) - np.float32(classifier.logit_mean or 0)",
        (f"{CLASSIFY}test_calibration_comes_before_the_activation_and_stays_without_it",),
    ),
    Mutation(
        "no calibration where no activation is asked for",
        "activations.py",
        "if use else values",
        "if use else logits",
        (f"{CLASSIFY}test_calibration_comes_before_the_activation_and_stays_without_it",),
    ),
    Mutation(
        "activation dropped",
        "activations.py",
        "return apply(values, classifier.activation) if use else values",
        "return values",
        (f"{CLASSIFY}test_activations_are_those_that_the_checkpoint_says[one label]",),
    ),
    Mutation(
        "problem type wins over a named activation",
        "classifying.py",
        "        if name:\n            sources",
        '        if name and raw.get("problem_type") is None:\n            sources',
        (f"{CLASSIFY}test_activations_are_those_that_the_checkpoint_says[named before problem]",),
    ),
    Mutation(
        "multi-label read as one label of many",
        "classifying.py",
        '"multi_label_classification": "sigmoid"',
        '"multi_label_classification": "softmax"',
        (f"{CLASSIFY}test_activations_are_those_that_the_checkpoint_says[multi label]",),
    ),
    Mutation(
        "softmax over the batch",
        "activations.py",
        "powers.sum(axis=-1, keepdims=True)",
        "powers.sum(axis=0, keepdims=True)",
        (f"{CLASSIFY}test_activations_are_those_that_the_checkpoint_says[five labels]",),
    ),
    Mutation(
        "prompt of a cross-encoder left out",
        "tasks/classify.py",
        "        prefix=prompting.text_before(recipe, prompt=params.prompt, prompt_name=params.prompt_name),\n",
        "",
        (f"{CLASSIFY}test_prompts_of_a_cross_encoder_go_before_the_first_text",),
    ),
)

TOKEN_ROWS = (
    Mutation(
        "rows of a prompt left out of the token vectors",
        "layers/pooling.py",
        "return self.ends_S - self.firsts_S",
        "return self.ends_S - self.starts_S",
        (f"{TOKENS}test_tokens_of_a_prompt_have_rows[False]",),
    ),
    Mutation(
        "token vectors of other sequences of the batch",
        "layers/pooling.py",
        "offsets = self.firsts_S - torch",
        "offsets = 0 * self.firsts_S - 0 * torch",
        (f"{TOKENS}test_requests_of_all_kinds_share_a_batch[cls]",),
    ),
    Mutation(
        "token vectors skip the modules after the pooling",
        "tasks/token_embed.py",
        "return spans.ragged(heads.pooled.after_pooling(rows_QD))",
        "return spans.ragged(rows_QD.float())",
        (f"{TOKENS}test_each_token_goes_through_the_modules_after_the_pooling[cls]",),
    ),
    Mutation(
        "identical texts share one array",
        "call.py",
        "rows[index] = rows[leader].copy()",
        "rows[index] = rows[leader]",
        (f"{TOKENS}test_identical_texts_do_not_share_memory",),
    ),
    Mutation(
        "ids that the model has no row for are let through",
        "tokenizer.py",
        "if num_rows is None else min(num_rows, self.vocab_size)",
        "",
        (f"{TOKENS}test_a_token_that_the_model_has_no_row_for_is_refused_before_any_forward",),
    ),
)

SCORING = (
    Mutation(
        "MaxSim takes the mean",
        "uses/similarity.py",
        "(query @ document.T).max(axis=1).sum()",
        "(query @ document.T).mean(axis=1).sum()",
        (f"{SCORES}test_max_sim_equals_the_sums",),
    ),
    Mutation(
        "MaxSim over the document's tokens",
        "uses/similarity.py",
        "(query @ document.T).max(axis=1).sum()",
        "(query @ document.T).max(axis=0).sum()",
        (f"{SCORE}test_late_interaction_is_the_sum_of_the_best_matches",),
    ),
    Mutation(
        "distance without its sign",
        "uses/similarity.py",
        "return -np.asarray(np.linalg.norm(a - b, axis=1), np.float32)",
        "return np.asarray(np.linalg.norm(a - b, axis=1), np.float32)",
        (f"{SCORE}test_a_bi_encoder_scores_by_its_own_similarity[euclidean-True]",),
    ),
    Mutation(
        "similarity of the checkpoint ignored",
        "recipe.py",
        "return str(name or SIMILARITIES[0])",
        "return SIMILARITIES[0]",
        (f"{SCORE}test_a_bi_encoder_scores_by_its_own_similarity[manhattan-False]",),
    ),
    Mutation(
        "ranked from worst to best",
        "uses/score.py",
        "np.argsort(-self.order",
        "np.argsort(self.order",
        (f"{SCORE}test_a_cross_encoder_scores_and_ranks_as_the_reference[bert]",),
    ),
    Mutation(
        "ties in any order",
        "uses/score.py",
        'np.argsort(-self.order, kind="stable")',
        "np.argsort(self.order)[::-1]",
        (f"{SCORES}test_ties_stay_in_the_order_of_the_documents",),
    ),
    Mutation(
        "ranked by what the sigmoid rounds together",
        "uses/score.py",
        "return Scores(shown, order)",
        "return Scores(shown, shown)",
        (f"{SCORE}test_logits_rank_what_the_sigmoid_rounds_together",),
    ),
    Mutation(
        "the query is cut, not the document",
        "uses/score.py",
        'documents = _cut(documents, options.max_tokens_per_doc, "max_tokens_per_doc"',
        'queries = _cut(queries, options.max_tokens_per_doc, "max_tokens_per_doc"',
        (f"{SCORE}test_texts_are_cut_by_their_tokens[bert]",),
    ),
    Mutation(
        "texts cut one token too late",
        "tokenizer.py",
        "while len(spans := self._backend.spans(text)) > most:",
        "while len(spans := self._backend.spans(text)) > most + 1:",
        (f"{SCORE}test_texts_are_cut_by_their_tokens[roberta]",),
    ),
    Mutation(
        "texts of a pair swapped",
        "uses/score.py",
        "[Pair(query, document) for query, document in zip",
        "[Pair(document, query) for query, document in zip",
        (f"{SCORE}test_a_score_is_the_class_of_its_pair_to_the_bit",),
    ),
)
