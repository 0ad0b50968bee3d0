"""ALBERT beyond its hidden states: its heads, its words, and what is refused."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForMaskedLM

from cenote import LLM, Pair, models
from cenote.errors import CheckpointError
from support.classifiers import Reference
from support.fixtures import Tiny
from support.parity import REFERENCE_LIMIT
from support.references import worst_error
from support.saving import read_json
from support.texts import short_texts

TEXTS = short_texts(3)


@pytest.mark.parametrize("head", ["sequence_classification", "token_classification"])
def test_classes_are_those_of_the_reference(tiny: Tiny, head: str) -> None:
    folder = tiny("albert", head=head)
    reference = Reference(folder, tokens=head == "token_classification")
    task = "classify" if head == "sequence_classification" else "token_classify"
    inputs: list[str | Pair] = [*TEXTS, Pair("a fox", "is red")]
    with LLM(str(folder), num_workers=1, threads_per_worker=1) as llm:
        found = llm.encode(inputs, pooling_task=task, use_activation=False)
    for item, one in zip(inputs, found, strict=True):
        assert worst_error(one.outputs.data, reference.logits(item, return_token_type_ids=True)) <= REFERENCE_LIMIT


def test_both_implementations_give_the_same_rows(tiny: Tiny) -> None:
    folder = tiny("albert", head="masked_lm")
    rows = []
    for who in ("cenote", "transformers"):
        with LLM(str(folder), model_impl=who, num_workers=1, threads_per_worker=1) as llm:
            rows.append(llm.embed(TEXTS, output="numpy"))
    assert worst_error(*rows) <= REFERENCE_LIMIT


def test_words_are_those_of_the_reference(tiny: Tiny) -> None:
    folder = tiny("albert", head="masked_lm")
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    with LLM(str(folder), num_workers=1, threads_per_worker=1) as llm:
        (found,) = llm.encode(TEXTS[:1], pooling_task="token_classify", use_activation=False)
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([found.prompt_token_ids])).logits[0].numpy()
    assert worst_error(found.outputs.data, logits) <= REFERENCE_LIMIT


@pytest.mark.parametrize("key", ["num_hidden_groups", "inner_group_num"])
def test_several_layers_to_share_are_refused(tiny: Tiny, key: str) -> None:
    raw = read_json(tiny("albert") / "config.json") | {key: 2}
    with pytest.raises(CheckpointError, match=key):
        models.find(raw).Config.from_hf(raw)
