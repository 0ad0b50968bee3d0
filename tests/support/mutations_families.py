"""Edits of families whose files lie otherwise than their numbers are computed."""

from __future__ import annotations

from typing import Final

from .mutation import Mutation
from .mutations_decoders import DECODERS, HIDDEN

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
