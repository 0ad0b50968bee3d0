"""What the files beside `tokenizer.json` say counts as it does for `AutoTokenizer`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cenote.errors import CheckpointError, MissingExtra
from cenote.types import Pair
from support.tokenizer_parity import NO_LIMIT, TEXTS, Both, load, plain
from support.tokenizers import bert, bert_vocab_file, change_json, llama, mpnet, paragraphs, qwen, roberta


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize(
    "stated",
    [
        {"do_lower_case": True},
        {"do_lower_case": False},
        {"do_lower_case": False, "strip_accents": True},
        {"do_lower_case": True, "strip_accents": False},
        {"tokenize_chinese_chars": False},
        {},
    ],
)
def test_switches_of_the_bert_normalizer_are_those_of_the_config(
    tmp_path: Path, lower_case: bool, stated: dict[str, Any]
) -> None:
    bert(tmp_path, lower_case=lower_case)

    def change(config: dict[str, Any]) -> None:
        for key in ("do_lower_case", "strip_accents", "tokenize_chinese_chars"):
            config.pop(key, None)
        config.update(stated)

    change_json(tmp_path / "tokenizer_config.json", change)
    both = Both(tmp_path)
    for text in (*TEXTS, *paragraphs()[:5]):
        assert plain(both.ours.encode([text], limit=NO_LIMIT)[0]) == both.expected(text)


@pytest.mark.parametrize("named", ["BertTokenizerFast", "PreTrainedTokenizerFast", None])
def test_the_tokenizer_class_decides_who_reads_the_switches(tmp_path: Path, named: str | None) -> None:
    bert(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    change_json(
        tmp_path / "tokenizer_config.json",
        lambda config: (config.pop("tokenizer_class"), config.update(do_lower_case=False)),
    )
    if named:
        change_json(tmp_path / "tokenizer_config.json", lambda config: config.update(tokenizer_class=named))
    both = Both(tmp_path)
    for text in TEXTS:
        assert both.ours.encode([text], limit=NO_LIMIT)[0].ids.tolist() == both.expected(text)[0]


@pytest.mark.parametrize("space", [True, False])
def test_leading_space_of_byte_level_models(tmp_path: Path, space: bool) -> None:
    roberta(tmp_path)
    change_json(tmp_path / "tokenizer_config.json", lambda config: config.update(add_prefix_space=space))
    both = Both(tmp_path)
    for text in TEXTS:
        assert plain(both.ours.encode([text], limit=NO_LIMIT)[0]) == both.expected(text)


def test_tokens_that_only_the_config_adds(tmp_path: Path) -> None:
    bert(tmp_path)
    change_json(
        tmp_path / "tokenizer_config.json",
        lambda config: config.setdefault("added_tokens_decoder", {}).update(
            {"700": {"content": "<new>", "lstrip": True, "special": False}, "701": {"content": "[Q]", "special": True}}
        ),
    )
    both = Both(tmp_path)
    text = "a <new> b [Q]c"
    assert both.ours.vocab_size == 702
    assert plain(both.ours.encode([text], limit=NO_LIMIT)[0]) == both.expected(text)
    assert {700, 701} <= set(both.expected(text)[0])


@pytest.mark.parametrize("add_bos", [True, False])
def test_end_of_sequence_token_that_the_config_asks_for(tmp_path: Path, add_bos: bool) -> None:
    llama(tmp_path)
    if not add_bos:
        change_json(tmp_path / "tokenizer.json", lambda raw: raw.update(post_processor=None))
    without = Both(tmp_path)
    change_json(tmp_path / "tokenizer_config.json", lambda config: config.update(add_eos_token=True))
    tokenizer = load(tmp_path)
    eos = without.reference.eos_token_id
    texts = [text for text in TEXTS if text]
    found = tokenizer.encode(texts, limit=NO_LIMIT)
    assert [e.ids.tolist() for e in found] == [[*without.expected(text)[0], eos] for text in texts]
    pair = without.expected("one")[0] + [eos] + without.expected("two")[0] + [eos]
    assert tokenizer.encode([Pair("one", "two")], limit=NO_LIMIT)[0].ids.tolist() == pair
    (cut,) = tokenizer.encode(["one two three four five"], limit=5, on_long="cut")
    assert cut.ids.tolist()[-1] == eos


def test_end_of_sequence_token_is_not_added_twice(tmp_path: Path) -> None:
    qwen(tmp_path)
    change_json(tmp_path / "tokenizer_config.json", lambda config: config.update(add_eos_token=True))
    both = Both(tmp_path)
    for text in TEXTS:
        assert plain(both.ours.encode([text], limit=NO_LIMIT)[0]) == both.expected(text)


def test_end_of_sequence_token_must_be_in_the_vocabulary(tmp_path: Path) -> None:
    qwen(tmp_path)
    change_json(
        tmp_path / "tokenizer_config.json", lambda config: (config.pop("eos_token"), config.update(add_eos_token=True))
    )
    with pytest.raises(CheckpointError, match="'</s>', which the vocabulary lacks"):
        load(tmp_path)


def test_lower_casing_and_prompt_length_equal_sentence_transformers(tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Transformer

    roberta(tmp_path)
    (tmp_path / "config.json").write_text(
        json.dumps(
            {"model_type": "roberta", "vocab_size": 700, "hidden_size": 8, "num_hidden_layers": 1}
            | {"num_attention_heads": 1, "intermediate_size": 8, "architectures": ["RobertaModel"]}
        )
    )
    from transformers import AutoConfig, AutoModel

    model: Any = AutoModel
    model.from_config(AutoConfig.from_pretrained(tmp_path)).save_pretrained(tmp_path)
    module = Transformer(str(tmp_path), do_lower_case=True)
    texts = [*TEXTS, "ABC </s> Def"]
    expected = [module.tokenizer(text)["input_ids"] for text in texts]
    lower = load(tmp_path, do_lower_case=True).encode(texts, limit=NO_LIMIT)
    assert [encoded.ids.tolist() for encoded in lower] == expected
    assert [encoded.ids.tolist() for encoded in load(tmp_path).encode(texts, limit=NO_LIMIT)] != expected
    for prefix in ("Search query: ", "query:", "</s>"):
        expected_length = module.preprocess(["some text"], prompt=prefix)["prompt_length"]
        assert load(tmp_path, do_lower_case=True).prompt_length(prefix) == expected_length


@pytest.mark.parametrize(("maximum", "found"), [(512, 512), (int(1e30), None), (None, None), (8192.0, 8192)])
def test_maximum_length(tmp_path: Path, maximum: float | None, found: int | None) -> None:
    mpnet(tmp_path)
    change_json(tmp_path / "tokenizer_config.json", lambda config: config.update(model_max_length=maximum))
    assert load(tmp_path).model_max_length == found


def test_vocabulary_with_holes(tmp_path: Path) -> None:
    bert(tmp_path)
    change_json(tmp_path / "tokenizer.json", lambda raw: raw["model"]["vocab"].update(far=5000))
    tokenizer = load(tmp_path)
    assert tokenizer.vocab_size == 5001
    assert tokenizer.token_strings([5000, 4000]) == ["far", ""]


def test_the_config_may_say_that_there_are_no_segments(tmp_path: Path) -> None:
    bert(tmp_path)
    names = ["input_ids", "attention_mask"]
    change_json(tmp_path / "tokenizer_config.json", lambda config: config.update(model_input_names=names))
    both = Both(tmp_path)
    assert not both.ours.has_segments
    assert plain(both.ours.encode([Pair("a", "b")], limit=9)[0]) == both.expected(("a", "b"))


def test_folder_without_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(CheckpointError, match="Save the tokenizer beside the model"):
        load(tmp_path)


def test_damaged_file(tmp_path: Path) -> None:
    bert(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json of .* cannot be read"):
        load(tmp_path)


def test_without_transformers_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bert_vocab_file(tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"cenote\[transformers\]"):
        load(tmp_path)
