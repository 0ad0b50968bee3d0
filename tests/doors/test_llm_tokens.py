"""Token vectors through the offline API, requests of different kinds at once, and ids that the model does not have."""

from __future__ import annotations

import shutil
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer

from cenote import LLM, PoolingParams
from cenote.call import Call
from cenote.errors import BadInput, TooLong
from cenote.inputs import parse
from cenote.tasks import classify, embed, token_classify, token_embed
from cenote.types import Batch, Length, ReadKey
from support.checkpoints import MODEL_TYPES
from support.classifiers import Reference, changed
from support.decoders import DECODERS
from support.fixtures import Tiny, TinySentence
from support.forwards import recipe_of
from support.parity import BATCH_LIMIT, REFERENCE_LIMIT
from support.references import EXACT, Float32, reference_vectors, worst_error
from support.sentence_folders import Dense
from support.texts import edge_texts, paragraphs, short_texts

CUT = {"truncate_prompt_tokens": -1}
TEXTS = [*short_texts(10), *edge_texts(), short_texts(1)[0]]


def by_token(llm: LLM, texts: Any, **more: Any) -> list[Float32]:
    outs = llm.encode(texts, pooling_task="token_embed", use_tqdm=False, tokenization_kwargs=CUT, **more)
    assert [len(out.outputs.data) for out in outs] == [len(out.prompt_token_ids) for out in outs]
    return [out.outputs.data.numpy() for out in outs]


def reference_tokens(folder: Path, texts: list[str], **more: Any) -> list[Float32]:
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True, model_kwargs=dict(EXACT))
    found = (
        model.float()
        .eval()
        .encode(texts, batch_size=1, output_value="token_embeddings", show_progress_bar=False, **more)
    )
    return [row.numpy() for row in found]


def assert_equal(ours: Any, theirs: Any, limit: float = REFERENCE_LIMIT) -> None:
    assert max(worst_error(a, b) for a, b in zip(ours, theirs, strict=True)) <= limit


def assert_equal_together(ours: Any, theirs: Any) -> None:
    """Of all rows as one: the few logits of a lone row may be as small as they like."""
    assert [row.shape for row in ours] == [row.shape for row in theirs]
    assert worst_error(*(np.concatenate([row.ravel() for row in rows]) for rows in (ours, theirs))) <= BATCH_LIMIT


@pytest.mark.parametrize("model_type", [*MODEL_TYPES, *DECODERS])
def test_token_vectors_equal_the_reference(tiny_sentence: TinySentence, model_type: str) -> None:
    folder = tiny_sentence(model_type=model_type, pooling="mean")
    with LLM(str(folder)) as llm:
        assert llm.get_supported_tasks() == ("embed", "token_embed")
        together = by_token(llm, TEXTS)
        assert_equal(together, reference_tokens(folder, TEXTS))
        assert_equal(by_token(llm, TEXTS[::-1])[::-1], together, BATCH_LIMIT)
        assert_equal(by_token(llm, TEXTS[2:3]), together[2:3], BATCH_LIMIT)
        assert np.array_equal(together[0], together[-1])


@pytest.mark.parametrize("pooling", ["cls", "mean", "lasttoken"])
def test_each_token_goes_through_the_modules_after_the_pooling(tiny_sentence: TinySentence, pooling: str) -> None:
    dense = Dense(out_features=28, activation="Tanh")
    folder = tiny_sentence(pooling=pooling, dense=dense, normalize=True)
    chain = SentenceTransformer(str(folder), device="cpu", local_files_only=True, model_kwargs=dict(EXACT)).float()
    tokens = reference_tokens(folder, TEXTS)
    with torch.inference_mode():
        expected = [chain[3](chain[2]({"sentence_embedding": torch.from_numpy(row)})) for row in tokens]
    with LLM(str(folder)) as llm:
        assert_equal(by_token(llm, TEXTS), [row["sentence_embedding"].numpy() for row in expected])
        raw = by_token(llm, TEXTS, pooling_params=PoolingParams(use_activation=False))
        norms = [np.linalg.norm(row, axis=1, keepdims=True) for row in raw]
        assert max(np.abs(norm - 1).max() for norm in norms) > 0.1
        assert_equal(by_token(llm, TEXTS), [row / norm for row, norm in zip(raw, norms, strict=True)], BATCH_LIMIT)


@pytest.mark.parametrize("include_prompt", [True, False])
def test_tokens_of_a_prompt_have_rows(tiny_sentence: TinySentence, include_prompt: bool) -> None:
    folder = tiny_sentence(pooling="mean", include_prompt=include_prompt, prompts={"q": "Find: "})
    texts = short_texts(4)
    with LLM(str(folder)) as llm:
        ours = by_token(llm, texts, prompt_name="q")
        assert_equal(ours, by_token(llm, [f"Find: {text}" for text in texts]), BATCH_LIMIT)
    assert_equal(ours, reference_tokens(folder, texts, prompt_name="q"))


def test_several_poolings_have_no_token_vectors(tiny_sentence: TinySentence) -> None:
    with LLM(str(tiny_sentence(pooling=["cls", "mean"]))) as llm:
        assert llm.get_supported_tasks() == ("embed",)


def test_identical_texts_do_not_share_memory(tiny_sentence: TinySentence) -> None:
    with LLM(str(tiny_sentence(pooling="mean"))) as llm:
        first, second = by_token(llm, ["same", "same"])
        kept = second.copy()
        first[:] = 0
        assert np.array_equal(second, kept)


def assert_one_batch_reads_all(llm: LLM, tasks: list[str], texts: list[str]) -> None:
    """Each task's rows of a batch of all tasks, one after the other, are those of a batch of its own."""
    encoded = llm.engine.tokenizer.encode(texts, limit=llm.recipe.max_len, on_long="cut")
    keys = list(islice(cycle(ReadKey(task) for task in tasks), len(encoded)))
    answers = llm.engine.runner.run(Batch.pack(encoded, keys))
    assert sorted(seq for answer in answers for seq in answer.seqs.tolist()) == list(range(len(encoded)))
    for task, answer in zip(tasks, answers, strict=True):
        assert answer.seqs.tolist() == [seq for seq, key in enumerate(keys) if key.task == task]
        own = [encoded[seq] for seq in answer.seqs]
        (alone,) = llm.engine.runner.run(Batch.pack(own, [ReadKey(task)] * len(own)))
        assert_equal_together(list(answer.rows), list(alone.rows))


def assert_calls_at_once_change_nothing(llm: LLM, kinds: list[tuple[str, Any]], texts: list[str]) -> list[Any]:
    """Rows of a call of each kind, which are the same when many calls of all kinds are under way."""

    def start(task: str, params: Any) -> Call:
        return llm.engine.submit(task, parse(texts), params, length=Length("cut"), lane="bulk")

    alone = [start(*kind).result().rows for kind in kinds]
    calls = [start(*kind) for _ in range(6) for kind in kinds]
    for number, call in enumerate(calls):
        assert_equal_together(list(call.result().rows), list(alone[number % len(kinds)]))
    return alone


@pytest.mark.parametrize("pooling", ["cls", "mean", "lasttoken"])
def test_requests_of_all_kinds_share_a_batch(tiny_sentence: TinySentence, tmp_path: Path, pooling: str) -> None:
    source = tiny_sentence(pooling=pooling, normalize=True, include_prompt=False, prompts={"q": "Find: "})
    folder = changed(source, tmp_path / "m", is_matryoshka=True)
    texts = short_texts(9)
    kinds: list[tuple[str, Any]] = [
        ("embed", embed.Params()),
        ("token_embed", token_embed.Params()),
        ("embed", embed.Params(normalize=False)),
        ("embed", embed.Params(dimensions=7)),
        ("token_embed", token_embed.Params(dimensions=5, normalize=False)),
        ("embed", embed.Params(prompt_name="q")),
        ("token_embed", token_embed.Params(prompt_name="q")),
    ]
    with LLM(str(folder)) as llm:
        assert_one_batch_reads_all(llm, ["embed", "token_embed"], texts)
        assert_one_batch_reads_all(llm, ["token_embed", "embed"], texts)
        alone = assert_calls_at_once_change_nothing(llm, kinds, texts)
    assert_equal(alone[0], reference_vectors(folder, texts))
    assert_equal(alone[5], reference_vectors(folder, texts, prompt_name="q"))
    assert_equal([row[:, :5] for row in reference_tokens(folder, texts)], alone[4])


def test_classes_of_texts_and_of_tokens_share_a_batch(tiny: Tiny) -> None:
    folder = tiny("bert", head="sequence_classification", num_labels=3)
    texts = [*short_texts(8), *paragraphs(2)]
    kinds: list[tuple[str, Any]] = [
        ("classify", classify.Params()),
        ("token_classify", token_classify.Params(use_activation=False)),
        ("classify", classify.Params(use_activation=False)),
    ]
    with LLM(str(folder)) as llm:
        assert_one_batch_reads_all(llm, ["classify", "token_classify"], texts)
        assert_one_batch_reads_all(llm, ["token_classify", "classify"], texts)
        _, tokens, whole = assert_calls_at_once_change_nothing(llm, kinds, texts)
    # The first token of a classifier of texts is the one that classifies.
    assert_equal_together([row[0] for row in tokens], list(whole))
    assert_equal(whole, [Reference(folder).logits(text) for text in texts])


def test_each_prompt_may_have_its_own_options(tiny_sentence: TinySentence) -> None:
    texts = short_texts(4)
    with LLM(str(tiny_sentence(pooling="mean", normalize=True))) as llm:
        each = [PoolingParams(use_activation=on) for on in (True, False, None, False)]
        mixed = by_token(llm, texts, pooling_params=each)
        plain, raw = by_token(llm, texts), by_token(llm, texts, normalize=False)
        assert_equal(mixed, [plain[0], raw[1], plain[2], raw[3]], BATCH_LIMIT)


def test_options_that_are_refused_for_one_prompt_stop_all_of_them(tiny_sentence: TinySentence) -> None:
    each = [PoolingParams(), PoolingParams(dimensions=128)]
    with LLM(str(tiny_sentence(pooling="mean"))) as llm:
        with pytest.raises(BadInput, match="dimensions"):
            llm.embed(["a", "b"], use_tqdm=False, pooling_params=each)
        assert llm.engine.snapshot().requests == 0


def test_errors_of_prompts_with_options_of_their_own_name_their_place(tiny_sentence: TinySentence) -> None:
    each = [PoolingParams(use_activation=on) for on in (True, False, True, False)]
    long = "a " * 600
    with LLM(str(tiny_sentence(pooling="mean"))) as llm:
        with pytest.raises(TooLong, match=r"input 1 has .* input 3 has") as refused:
            llm.embed(["a", long, "b", long], use_tqdm=False, pooling_params=each)
        assert (refused.value.index, refused.value.offenders) == (1, (1, 3))
        with pytest.raises(BadInput, match="Input 3: Token id 99999999") as bad:
            llm.embed(["a", "b", "c", [99999999]], use_tqdm=False, pooling_params=each)
        assert bad.value.index == 3


# Ids that the model has no row for.


def grown(folder: Path, to: Path) -> tuple[Path, int]:
    """A copy of a checkpoint whose tokenizer got a token more than the model has rows; and that token's id."""
    shutil.copytree(folder, to)
    tokenizer: Any = AutoTokenizer.from_pretrained(to)
    num_rows: int = recipe_of(folder).model.vocab_size
    while len(tokenizer) <= num_rows:
        tokenizer.add_tokens([f"<added{len(tokenizer)}>"])
    tokenizer.save_pretrained(to)
    return to, num_rows


def test_a_token_that_the_model_has_no_row_for_is_refused_before_any_forward(tiny: Tiny, tmp_path: Path) -> None:
    folder, outside = grown(tiny("bert", head="sequence_classification", num_labels=1), tmp_path / "m")
    text = f"an <added{outside}> token"
    with LLM(str(folder)) as llm:
        assert llm.engine.tokenizer.vocab_size == outside + 1
        for bad in (text, [outside], {"text": "fine", "text_pair": text}):
            with pytest.raises(BadInput, match=f"Input 2: Token id {outside} is out of vocabulary") as caught:
                llm.classify(["fine", "fine too", bad], use_tqdm=False)
            assert caught.value.index == 2
        with pytest.raises(BadInput, match=f"Input 1: Token id {outside} is out of vocabulary"):
            llm.score("fine", ["fine too", text], use_tqdm=False)
        assert llm.engine.snapshot().tokens == 0
        assert "forward_failed" not in llm.engine.snapshot().errors
        (out,) = llm.classify([[outside - 1]], use_tqdm=False)
        assert np.isfinite(out.outputs.probs).all()
        assert llm.engine.tokenizer.decode([outside]) == f"<added{outside}>"
