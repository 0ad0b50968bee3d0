"""Edits of families whose files lie otherwise than their numbers are computed."""

from __future__ import annotations

from typing import Final

from .mutation import Mutation
from .mutations_decoders import BATCHES, DECODERS, HIDDEN

ENCODERS: Final = "tests/models/test_encoders.py::"
BIDIRECTIONAL: Final = "tests/models/test_bidirectional.py::"
PEFT: Final = "tests/golden/test_peft.py::test_hidden_states_equal_those_of_peft"
ADAPTERS: Final = "tests/models/test_adapters_of_peft.py::"
LISTS: Final = "tests/doors/test_llm_listwise.py::"
REWARDS: Final = "tests/doors/test_llm_rewards.py::"

PACKED: Final = (
    Mutation(
        "key and value of a group swapped",
        "models/internlm2.py",
        '("k", slice(-2, -1)), ("v", slice(-1, None))',
        '("v", slice(-2, -1)), ("k", slice(-1, None))',
        (f"{HIDDEN}[internlm2]",),
    ),
    Mutation(
        "queries of a group taken side by side",
        "models/internlm2.py",
        "groups[:, place].flatten(0, 2)",
        "groups[:, place].transpose(0, 1).flatten(0, 2)",
        (f"{HIDDEN}[internlm2-biased]",),
    ),
    Mutation(
        "attention of internlm2 has no bias unless said",
        "models/internlm2.py",
        'raw.get("bias", True)',
        'raw.get("bias", False)',
        (f"{DECODERS}test_defaults_are_those_of_the_reference[internlm2]",),
    ),
    Mutation(
        "reward of internlm2 is that of another class",
        "models/internlm2.py",
        'Reward((Stage("v_head", bias=False),), 1)',
        'Reward((Stage("v_head", bias=False),), 1, raw=True)',
        (f"{REWARDS}test_a_reward_model_of_one_layer_is_read_as_its_makers_read_it",),
    ),
)

BOTH_WAYS: Final = (
    Mutation(
        "a class that sees all of a text is causal",
        "hf.py",
        'found = (key for key, name in names.items() if name == "llama_bidirec" or "Bidirectional" in str(name))',
        'found = (key for key, name in names.items() if name == "llama_bidirec")',
        (f"{BIDIRECTIONAL}test_a_class_may_see_all_without_a_layer_of_its_own",),
    ),
    Mutation(
        "family that sees all of a text is causal",
        "models/llama.py",
        "nature = replace(nature, causal=False, causal_source=source, pooled",
        "nature = replace(nature, causal_source=source, pooled",
        (f"{HIDDEN}[llama_bidirec]",),
    ),
    Mutation(
        "texts of such a class read by their last token",
        "models/llama.py",
        'row: Row = "first" if config.nature.pooled == "cls" else config.nature.pooled',
        'row: Row = "last"',
        (f"{BIDIRECTIONAL}test_a_reranker_of_nvidia_scores_the_pooled_row[avg]",),
    ),
    Mutation(
        "linear layer behind a backbone left out",
        "pooler.py",
        "return (*_projected(transformer, nature), *found), normalize",
        "return found, normalize",
        (f"{BIDIRECTIONAL}test_an_embedder_may_end_in_a_linear_layer",),
    ),
    Mutation(
        "space before a line break of a reranker's prompt lost",
        "rerankers.py",
        "{{ messages[0].content }} \\n \\n passage:",
        "{{ messages[0].content }}\\n \\n passage:",
        (f"{BIDIRECTIONAL}test_a_reranker_of_nvidia_reads_pairs_as_its_card_says",),
    ),
)

CONVOLVED: Final = (
    Mutation(
        "convolution reads the text before",
        "layers/convolution.py",
        "(index_QW >= 0) & (index_QW",
        "(index_QW",
        (f"{BATCHES}[deberta-v2-convolved]",),
    ),
    Mutation(
        "convolution reads tokens that nobody attends to",
        "models/deberta_v2.py",
        "torch.full_like(own, run.key_len)",
        "torch.full_like(own, run.num_tokens)",
        (f"{ENCODERS}test_tokens_that_are_not_attended_to_reach_as_far_as_others[5]",),
    ),
    Mutation(
        "convolution of the first layer is not activated",
        "models/deberta_v2.py",
        "self.activation(self.kernel(around_QWD)), hidden_QD",
        "self.kernel(around_QWD), hidden_QD",
        (f"{HIDDEN}[deberta-v2-convolved]",),
    ),
    Mutation(
        "convolution mirrored",
        "layers/convolution.py",
        "self.weight.transpose(1, 2).reshape",
        "self.weight.flip(2).transpose(1, 2).reshape",
        (f"{HIDDEN}[deberta-v2-convolved-alone]",),
    ),
)

MERGED: Final = (
    Mutation(
        "update of an adapter not scaled",
        "lora.py",
        "stored.float() + self.scale * added",
        "stored.float() + added",
        (f"{PEFT}[plain-keep]",),
    ),
    Mutation(
        "scale of an adapter by its rank where its root counts",
        "lora.py",
        "alpha / (math.sqrt(rank) if config.value",
        "alpha / (rank if config.value",
        (f"{PEFT}[everything-keep]",),
    ),
    Mutation(
        "scale of one layer of an adapter left out",
        "lora.py",
        'float(next(own, config.number("lora_alpha", 8)))',
        'config.number("lora_alpha", 8)',
        (f"{PEFT}[everything-keep]",),
    ),
    Mutation(
        "update of a table left out",
        "lora.py",
        "(.*)\\.lora_(?:(A|B)\\.weight|embedding_(A|B))",
        "(.*)\\.lora_(?:(A|B)\\.weight|embeddings_(A|B))",
        (f"{PEFT}[table-keep]",),
    ),
    Mutation(
        "names of an adapter matched anywhere",
        "lora.py",
        'longer.endswith(f".{shorter}") and "." not in longer[: -len(shorter) - 1]',
        'longer.endswith(f".{shorter}")',
        (f"{ADAPTERS}test_adapters_that_do_not_fit_stop_the_start",),
    ),
    Mutation(
        "adapter of the first task for every one",
        "checkpoint.py",
        'checkpoint.config.get("jina_task", "retrieval")',
        '"retrieval"',
        (f"{ADAPTERS}test_jina_embeddings_v5_is_read_with_the_adapter_of_a_task[decoder]",),
    ),
    Mutation(
        "adapter left out of the fingerprint",
        "fingerprint.py",
        'said["adapter"] = _hash(recipe.transformer.over / ADAPTER_CONFIG)',
        "pass",
        (f"{ADAPTERS}test_an_adapter_counts_in_the_fingerprint",),
    ),
)

LISTWISE: Final = (
    Mutation(
        "documents of a list numbered from 1",
        "uses/listwise.py",
        "in enumerate(documents)\n",
        "in enumerate(documents, 1)\n",
        (f"{LISTS}test_a_query_and_its_documents_are_one_prompt",),
    ),
    Mutation(
        "tokens with rows left in the texts of a list",
        "uses/listwise.py",
        'text = text.replace(token, "")',
        "pass",
        (f"{LISTS}test_a_query_and_its_documents_are_one_prompt",),
    ),
    Mutation(
        "query of a list read by its first row",
        "uses/listwise.py",
        "matrices[prompt][-1] for",
        "matrices[prompt][0] for",
        (f"{LISTS}test_pairs_are_prompts_of_their_own",),
    ),
    Mutation(
        "instruction of a list left out",
        "uses/listwise.py",
        'if told else ""',
        'if not told else ""',
        (f"{LISTS}test_an_instruction_stands_in_the_prompt",),
    ),
    Mutation(
        "layers of a listwise reranker not activated",
        "modules/late_interaction.py",
        "return replace(first, activation=_RELU), last",
        "return first, last",
        (f"{LISTS}test_tokens_of_a_prompt_have_the_rows_that_are_scored",),
    ),
)

VALUES: Final = (
    Mutation(
        "reward of Jamba through a sigmoid",
        "classifying.py",
        "is_raw = name in _RAW or (",
        "is_raw = (",
        ("tests/models/test_fallback.py::test_a_reward_model_of_jamba_gives_its_values_as_they_are",),
    ),
    Mutation(
        "instruction of GritLM pooled too",
        "models/llama.py",
        "pools_prompt=not is_gritlm(raw)",
        "pools_prompt=True",
        (f"{BIDIRECTIONAL}test_gritlm_pools_what_comes_after_the_instruction",),
    ),
)
