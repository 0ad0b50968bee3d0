"""Classes of texts and of tokens through the offline API, against transformers and sentence-transformers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cenote import LLM, Pair, PoolerConfig, PoolingParams
from cenote.errors import BadInput, CheckpointError, ConfigError, UnsupportedTask
from support.checkpoints import MODEL_TYPES
from support.classifiers import Item, Reference, changed, predictions, saved_by_cross_encoder
from support.decoders import DECODERS
from support.fixtures import Tiny
from support.parity import BATCH_LIMIT, REFERENCE_LIMIT, cosine
from support.references import Float32, worst_error
from support.rotary import ROTARY
from support.texts import edge_texts, paragraphs, short_texts

Float64 = npt.NDArray[np.float64]
CUT = {"truncate_prompt_tokens": -1}
TEXTS = [*short_texts(8), *edge_texts()]
PAIRS = [Pair(a, b) for a, b in zip(short_texts(5), [*short_texts(8)[4:], paragraphs(1)[0]], strict=True)]
IDS = ([5], [7, 3, 200, 11, 9], list(range(20, 60)))
ITEMS: list[Item] = [*TEXTS, *PAIRS, Pair("", "a"), Pair("a", ""), *IDS]

PLAIN: dict[str, Callable[[Any], Any]] = {
    "identity": lambda logits: logits,
    "sigmoid": lambda logits: 1 / (1 + np.exp(-logits)),
    "softmax": lambda logits: np.exp(logits) / np.exp(logits).sum(-1, keepdims=True),
    "tanh": np.tanh,
}


def raw(llm: LLM, items: Sequence[Any], **more: Any) -> list[Float32]:
    """Logits of whole texts."""
    outs = llm.classify(items, use_activation=False, use_tqdm=False, tokenization_kwargs=CUT, **more)
    return [np.array(out.outputs.probs, np.float32) for out in outs]


def by_token(llm: LLM, items: Sequence[Any], **more: Any) -> list[Float32]:
    """Values of each token."""
    outs = llm.encode(items, pooling_task="token_classify", use_tqdm=False, tokenization_kwargs=CUT, **more)
    return [out.outputs.data.numpy() for out in outs]


def worst(ours: Sequence[Any], reference: Sequence[Any] | Float32 | Float64) -> float:
    """Of all inputs together: a lone logit may be as small as it likes."""
    return worst_error(np.concatenate(ours), np.concatenate(reference))


@pytest.mark.parametrize("num_labels", [1, 2, 5])
@pytest.mark.parametrize("model_type", [*MODEL_TYPES, *ROTARY, *DECODERS])
def test_logits_equal_the_reference(tiny: Tiny, model_type: str, num_labels: int) -> None:
    folder = tiny(model_type, head="sequence_classification", num_labels=num_labels)
    reference = Reference(folder)
    with LLM(str(folder)) as llm:
        assert llm.get_supported_tasks() == ("classify", "token_classify")
        together = raw(llm, ITEMS)
        assert worst(together, [reference.logits(item) for item in ITEMS]) <= REFERENCE_LIMIT
        outs = llm.classify(PAIRS, use_tqdm=False, tokenization_kwargs=CUT)
        assert [out.prompt_token_ids for out in outs] == [reference.ids(pair) for pair in PAIRS]
        assert worst([raw(llm, [item])[0] for item in ITEMS[::3]], together[::3]) <= BATCH_LIMIT
        assert worst(raw(llm, ITEMS[::-1])[::-1], together) <= BATCH_LIMIT


@pytest.mark.parametrize("model_type", [*MODEL_TYPES, *ROTARY, *(name for name in DECODERS if name != "gemma3_text")])
def test_token_logits_equal_the_reference(tiny: Tiny, model_type: str) -> None:
    folder = tiny(model_type, head="token_classification", num_labels=5)
    reference = Reference(folder, tokens=True)
    with LLM(str(folder)) as llm:
        assert llm.get_supported_tasks() == ("token_classify",)
        together = by_token(llm, ITEMS, use_activation=False)
        assert worst(together, [reference.logits(item) for item in ITEMS]) <= REFERENCE_LIMIT
        assert worst(by_token(llm, ITEMS[::-1], use_activation=False)[::-1], together) <= BATCH_LIMIT
        assert worst(by_token(llm, ITEMS[3:4], use_activation=False), together[3:4]) <= BATCH_LIMIT
        assert worst(by_token(llm, ITEMS), [PLAIN["softmax"](logits) for logits in together]) <= REFERENCE_LIMIT


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("model_type", ["bert", "electra", "roberta", "mpnet"])
def test_cut_pairs_keep_their_segments(tiny: Tiny, model_type: str, side: str) -> None:
    folder = tiny(model_type, head="sequence_classification", num_labels=2)
    reference = Reference(folder)
    reference.tokenizer.truncation_side = side
    pairs = [*PAIRS, Pair(PAIRS[3].text_pair, paragraphs(2)[1]), Pair(paragraphs(2)[1], "short")]
    with LLM(str(folder)) as llm:
        for limit in (8, 9, 24, 70):
            cut = {"truncate_prompt_tokens": limit, "truncation_side": side}
            outs = llm.classify(pairs, use_activation=False, use_tqdm=False, tokenization_kwargs=cut)
            assert [out.prompt_token_ids for out in outs] == [reference.ids(p, max_length=limit) for p in pairs]
            expected = [reference.logits(pair, max_length=limit) for pair in pairs]
            assert worst([out.outputs.probs for out in outs], expected) <= REFERENCE_LIMIT


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_keeps_the_classes(tiny: Tiny, dtype: str) -> None:
    folder = tiny("bert", head="sequence_classification", num_labels=5)
    items = [*short_texts(30), *PAIRS]
    with LLM(str(folder)) as llm:
        exact = np.stack(raw(llm, items))
    with LLM(str(folder), dtype=dtype) as llm:
        half = np.stack(raw(llm, items))
    assert cosine(half, exact) >= 0.9995
    two = np.sort(exact, axis=1)[:, -2:]
    clear = two[:, 1] - two[:, 0] > 0.05 * np.abs(exact).max()
    assert clear.sum() > len(items) // 2
    assert (half.argmax(1) == exact.argmax(1))[clear].all()


ACTIVATIONS: dict[str, tuple[int, dict[str, Any], str, bool]] = {
    # name -> labels, keys of config.json, the activation, whether sentence-transformers says the same
    "one label": (1, {}, "sigmoid", True),
    "two labels": (2, {}, "softmax", False),
    "five labels": (5, {}, "softmax", False),
    "regression": (1, {"problem_type": "regression"}, "identity", False),
    "single label": (2, {"problem_type": "single_label_classification"}, "softmax", False),
    "multi label": (5, {"problem_type": "multi_label_classification"}, "sigmoid", False),
    "identity": (1, {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, "identity", True),
    "sigmoid": (
        5,
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}},
        "sigmoid",
        True,
    ),
    "tanh": (1, {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}, "tanh", True),
    "tanh of five": (5, {"sentence_transformers": {"activation_fn": "torch.nn.Tanh"}}, "tanh", True),
    "oldest key": (1, {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, "identity", True),
    "named before problem": (
        2,
        {
            "problem_type": "multi_label_classification",
            "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity",
        },
        "identity",
        True,
    ),
    "softmax of one, literally": (
        1,
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Softmax"}},
        "softmax",
        False,
    ),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_those_that_the_checkpoint_says(tiny: Tiny, name: str) -> None:
    num_labels, keys, activation, agreed = ACTIVATIONS[name]
    folder = tiny("bert", head="sequence_classification", num_labels=num_labels, **keys)
    logits = [Reference(folder).logits(pair).astype(np.float64) for pair in PAIRS]
    with LLM(str(folder)) as llm:
        outs = llm.classify(PAIRS, use_tqdm=False, tokenization_kwargs=CUT)
        ours = [out.outputs.probs for out in outs]
        assert worst(ours, [PLAIN[activation](row) for row in logits]) <= REFERENCE_LIMIT
        assert worst(raw(llm, PAIRS), logits) <= REFERENCE_LIMIT
        assert worst(by_token(llm, PAIRS, use_activation=True), by_token(llm, PAIRS)) == 0
    if agreed:
        assert worst(ours, predictions(folder, PAIRS).reshape(len(PAIRS), -1)) <= REFERENCE_LIMIT


def test_where_sentence_transformers_shows_logits_cenote_shows_probabilities(tiny: Tiny) -> None:
    folder = tiny("bert", head="sequence_classification", num_labels=5)
    with LLM(str(folder)) as llm:
        assert worst(raw(llm, PAIRS), predictions(folder, PAIRS)) <= REFERENCE_LIMIT
        shown = [out.outputs.probs for out in llm.classify(PAIRS, use_tqdm=False, tokenization_kwargs=CUT)]
        assert worst(shown, predictions(folder, PAIRS, apply_softmax=True)) <= REFERENCE_LIMIT


@pytest.mark.parametrize("num_labels", [1, 5])
@pytest.mark.parametrize("activation", [None, "Identity", "Sigmoid", "Tanh"])
def test_folders_saved_by_cross_encoder(tiny: Tiny, tmp_path: Path, activation: str | None, num_labels: int) -> None:
    import torch

    source = tiny("roberta", head="sequence_classification", num_labels=num_labels)
    options = {"activation_fn": getattr(torch.nn, activation)()} if activation else {}
    folder = saved_by_cross_encoder(source, tmp_path / "saved", **options)
    assert (folder / "modules.json").exists()
    with LLM(str(folder)) as llm:
        ours = [out.outputs.probs for out in llm.classify(PAIRS, use_tqdm=False, tokenization_kwargs=CUT)]
        assert llm.recipe.sources["activation"] == "config_sentence_transformers.json: activation_fn"
    assert worst(ours, predictions(folder, PAIRS).reshape(len(PAIRS), -1)) <= REFERENCE_LIMIT


def test_prompts_of_a_cross_encoder_go_before_the_first_text(tiny: Tiny, tmp_path: Path) -> None:
    prompts = {"query": "Find what answers: ", "other": "Other: "}
    source = tiny("bert", head="sequence_classification", num_labels=1)
    folder = saved_by_cross_encoder(source, tmp_path / "saved", prompts=prompts, default_prompt_name="query")
    with LLM(str(folder)) as llm:
        ours = [out.outputs.probs[0] for out in llm.classify(PAIRS, use_tqdm=False, tokenization_kwargs=CUT)]
        assert worst_error(ours, predictions(folder, PAIRS)) <= REFERENCE_LIMIT
        scores = llm.score([p.text for p in PAIRS], [p.text_pair for p in PAIRS], use_tqdm=False,
                           tokenization_kwargs=CUT)  # fmt: skip
        assert [out.outputs.score for out in scores] == ours
        other = [out.outputs.probs[0] for out in llm.classify(PAIRS, use_tqdm=False, tokenization_kwargs=CUT,
                                                              prompt_name="other")]  # fmt: skip
        assert worst_error(other, predictions(folder, PAIRS, prompt_name="other")) <= REFERENCE_LIMIT
        with pytest.raises(BadInput, match="no prompt named 'absent'"):
            llm.classify(PAIRS, use_tqdm=False, prompt_name="absent")


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("config.json", {"sbert_ce_default_activation_function": "os.system"}, "restricted to torch.nn"),
        ("config.json", {"sbert_ce_default_activation_function": "torch.nn.Nonsense"}, r"Nonsense.*not allowed"),
        ("config.json", {"sbert_ce_default_activation_function": "torch.nn.Threshold"}, "needs arguments"),
        ("config.json", {"sbert_ce_default_activation_function": "torch.nn.GLU"}, r"turns 2 logits.*\(2, 1\)"),
        ("config.json", {"sbert_ce_default_activation_function": "torch.nn.LSTMCell"}, "LSTMCell"),
        ("config.json", {"problem_type": "ranking"}, "problem_type='ranking'"),
        ("config.json", {"id2label": {"a": "x", "b": "y"}}, "id2label"),
        ("config.json", {"id2label": {"1": "x", "2": "y"}}, "id2label"),
        ("config.json", {"id2label": {"0": "x"}}, "classifier has shape"),
    ],
)
def test_a_classifier_that_cannot_be_read_stops_the_start(
    tiny: Tiny, tmp_path: Path, file: str, values: dict[str, Any], message: str
) -> None:
    folder = changed(tiny("bert", head="sequence_classification", num_labels=2), tmp_path / "m", file, **values)
    with pytest.raises(CheckpointError, match=message):
        LLM(str(folder))


def test_modules_that_name_a_classifier_need_one(tiny: Tiny, tmp_path: Path) -> None:
    source = tiny("bert", head="sequence_classification", num_labels=1)
    saved = saved_by_cross_encoder(source, tmp_path / "saved")
    folder = changed(saved, tmp_path / "m", architectures=["BertModel"])
    with pytest.raises(CheckpointError, match=r"modules.json lists a classifier.*BertModel"):
        LLM(str(folder))


def test_calibration_comes_before_the_activation_and_stays_without_it(tiny: Tiny, tmp_path: Path) -> None:
    source = tiny("bert", head="sequence_classification", num_labels=1)
    logits = np.stack([Reference(source).logits(pair) for pair in PAIRS]).astype(np.float64)
    by_file = changed(source, tmp_path / "m", logit_mean=0.5, logit_sigma=2.0)
    by_user: dict[str, Any] = {"pooler_config": {"logit_mean": 0.5, "logit_sigma": 2.0}}
    for folder, settings in ((by_file, {}), (source, by_user)):
        with LLM(str(folder), **settings) as llm:
            expected = (logits - 0.5) / 2
            assert worst(raw(llm, PAIRS), expected) <= REFERENCE_LIMIT
            shown = [out.outputs.probs for out in llm.classify(PAIRS, use_tqdm=False, tokenization_kwargs=CUT)]
            assert worst(shown, PLAIN["sigmoid"](expected)) <= REFERENCE_LIMIT
    with LLM(str(by_file), pooler_config=PoolerConfig(logit_mean=0.0, use_activation=False)) as llm:
        shown = [out.outputs.probs for out in llm.classify(PAIRS, use_tqdm=False, tokenization_kwargs=CUT)]
        assert worst(shown, logits / 2) <= REFERENCE_LIMIT
    with pytest.raises(ConfigError, match=r"logit_sigma cannot be 0 \(division by zero\)"):
        LLM(str(source), pooler_config={"logit_sigma": 0.0})


def test_rewards_are_raw_unless_an_activation_is_asked_for(tiny: Tiny) -> None:
    texts = short_texts(4)
    folder = tiny("bert", head="sequence_classification", num_labels=1)
    logits = [Reference(folder).logits(text) for text in texts]

    def rewards(llm: LLM, **more: Any) -> list[Float32]:
        return [out.outputs.data.numpy() for out in llm.reward(texts, use_tqdm=False, **more)]

    with LLM(str(folder)) as llm:
        for more in ({}, {"use_activation": None}, {"pooling_params": PoolingParams()}, {"use_activation": False}):
            assert worst(rewards(llm, **more), logits) <= REFERENCE_LIMIT
        each = [PoolingParams(use_activation=True), PoolingParams(), PoolingParams(), PoolingParams()]
        mixed = rewards(llm, pooling_params=each)
        assert worst(mixed, [PLAIN["sigmoid"](logits[0]), *logits[1:]]) <= REFERENCE_LIMIT
        everywhere = [PLAIN["sigmoid"](row) for row in logits]
        for more in ({"use_activation": True}, {"pooling_params": PoolingParams(use_activation=True)}):
            assert worst(rewards(llm, **more), everywhere) <= REFERENCE_LIMIT
    folder = tiny("bert", head="token_classification", num_labels=3)
    with LLM(str(folder)) as llm:
        expected = [Reference(folder, tokens=True).logits(text) for text in texts]
        assert worst(rewards(llm), expected) <= REFERENCE_LIMIT
    with LLM() as llm, pytest.raises(UnsupportedTask, match="gives no rewards"):
        llm.reward("a", use_tqdm=False)


def test_labels_and_reprs(tiny: Tiny) -> None:
    names = {0: "sad", 1: "glad", 2: "mad"}
    folder = tiny("bert", head="sequence_classification", num_labels=3, id2label=names)
    (logits,) = (Reference(folder).logits("a text"),)
    with LLM(str(folder)) as llm:
        (out,) = llm.classify("a text", use_tqdm=False)
        (pooled,) = llm.encode("a text", pooling_task="classify", use_tqdm=False)
        (both,) = llm.encode([["a", "b"][0]], pooling_task="token_classify", use_tqdm=False)
    assert out.outputs.labels == ("sad", "glad", "mad")
    assert out.outputs.label == names[int(logits.argmax())]
    assert out.outputs.num_classes == 3
    assert sum(out.outputs.probs) == pytest.approx(1, abs=1e-6)
    ids = out.prompt_token_ids
    assert repr(out) == (
        f"ClassificationRequestOutput(request_id='{out.request_id}', outputs=ClassificationOutput(num_classes=3), "
        f"prompt_token_ids={ids}, num_cached_tokens=0, finished=True)"
    )
    assert repr(pooled) == (
        f"PoolingRequestOutput(request_id='{pooled.request_id}', outputs=PoolingOutput(data={pooled.outputs.data!r}), "
        f"prompt_token_ids={ids}, num_cached_tokens=0, finished=True)"
    )
    assert pooled.outputs.data.tolist() == out.outputs.probs
    assert both.outputs.data.shape == (len(both.prompt_token_ids), 3)


def test_a_list_of_two_texts_is_two_prompts(tiny: Tiny) -> None:
    with LLM(str(tiny("bert", head="sequence_classification", num_labels=2))) as llm:
        two, alone = raw(llm, ["a query", "a document"]), raw(llm, [Pair("a query", "a document")])
        by_dict = raw(llm, [{"text": "a query", "text_pair": "a document"}])
        assert (len(two), len(alone)) == (2, 1)
        assert np.array_equal(alone, by_dict)
        assert not np.allclose(two[0], alone[0])
        with pytest.raises(BadInput, match="not one of token ids"):
            raw(llm, [["a query", "a document"]])


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    caplog.set_level(logging.WARNING, "cenote")
    return lambda: sum("a text was given alone" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("model_type", "num_labels", "expected"), [("bert", 1, 1), ("bert", 2, 0), ("roberta", 1, 0), ("electra", 1, 1)]
)
def test_a_text_alone_given_to_a_cross_encoder_is_read_and_warned_of_once(
    tiny: Tiny, tmp_path: Path, warned: Callable[[], int], model_type: str, num_labels: int, expected: int
) -> None:
    # A name of its own: once means once for each model of the process.
    source = tiny(model_type, head="sequence_classification", num_labels=num_labels)
    with LLM(str(changed(source, tmp_path / "alone"))) as llm:
        raw(llm, PAIRS)
        if num_labels == 1:
            llm.score("a", "b", use_tqdm=False, chat_template="{{ messages[0].content }}")
        raw(llm, [IDS[1]])
        assert warned() == 0
        first, second = raw(llm, ["alone"]), raw(llm, ["alone", "and again"])
        assert warned() == expected
        assert np.array_equal(first[0], second[0])
        assert worst(first, [Reference(tmp_path / "alone").logits("alone")]) <= REFERENCE_LIMIT


def test_tasks_that_a_model_lacks_are_named(tiny: Tiny) -> None:
    with LLM(str(tiny("bert", head="sequence_classification", num_labels=2))) as llm:
        with pytest.raises(UnsupportedTask, match=r"Embedding API is not supported by this model.*\('classify', "):
            llm.embed("a", use_tqdm=False)
        with pytest.raises(UnsupportedTask, match=r"Unsupported task: 'embed' Supported tasks: \('classify'"):
            llm.encode("a", pooling_task="embed", use_tqdm=False)
        with pytest.raises(BadInput, match=r"Task 'classify' only supports .* does not support \['dimensions'\] param"):
            llm.classify("a", pooling_params=PoolingParams(dimensions=3), use_tqdm=False)
        with pytest.raises(BadInput, match="only supported for the 'plugin' pooling task"):
            llm.classify({"data": 1}, use_tqdm=False)
        with pytest.raises(BadInput, match="truncation='only_second'"):
            llm.classify("a", tokenization_kwargs={"truncation": "only_second"}, use_tqdm=False)
        with pytest.warns(DeprecationWarning, match="task=reward is an old name, say task=token_classify"):
            llm.encode("a", pooling_task="reward", use_tqdm=False)
    with LLM() as llm:
        with pytest.raises(UnsupportedTask, match=r"Classification API is not supported by this model"):
            llm.classify("a", use_tqdm=False)
        with pytest.warns(DeprecationWarning, match="task=score is an old name, say task=embed"):
            llm.encode("a", pooling_task="score", use_tqdm=False)
        with pytest.warns(DeprecationWarning, match="task=encode is an old name, say task=token_embed"):
            llm.encode("a", pooling_task="encode", use_tqdm=False)
