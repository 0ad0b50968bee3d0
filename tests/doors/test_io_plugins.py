"""IO processors offline: the installed example, one written as for the reference, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cenote import LLM, AsyncLLM, PoolingParams, plugins
from cenote.errors import BadInput, ConfigError, UnsupportedTask
from cenote.hookspecs import hookimpl
from support.classifiers import changed
from support.io_plugins import Told, install
from support.rows import BATCH_LIMIT, assert_equal
from support.texts import short_texts

if TYPE_CHECKING:
    from support.fixtures import Tiny, TinySentence

TEXT = "  one two three\nfour five  six seven"
PASSAGES = {"one two three": (2, 15), "four five  six": (16, 30), "seven": (31, 36)}
TEXTS = short_texts(3)


@pytest.fixture(scope="module")
def folder(tiny_sentence: TinySentence) -> Path:
    return tiny_sentence(normalize=True, prompts={"query": "q: ", "document": "d: "}, matryoshka_dimensions=[8])


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the reference's group is installed."""
    monkeypatch.syspath_prepend(str(install(tmp_path / "installed")))
    return tmp_path


def ask(llm: LLM, data: Any, **more: Any) -> Any:
    (output,) = llm.encode({"data": data}, pooling_task="plugin", use_tqdm=False, **more)
    assert (output.request_id, output.prompt_token_ids, output.finished) == ("", [], True)
    return output.outputs


def opened_told(folder: Path | str, **settings: Any) -> tuple[LLM, Any]:
    llm = LLM(str(folder), io_processor_plugin="told", **settings)
    plugin: Any = llm.io_plugin
    assert type(plugin) is Told
    return llm, plugin


async def test_the_installed_example_gives_vectors_of_passages(
    folder: Path, example_plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(example_plugin))
    data = {"text": TEXT, "chunk": 3}
    with LLM(str(folder), io_processor_plugin="passages") as llm:
        passages = ask(llm, data)
        cut = ask(llm, data, pooling_params=PoolingParams(dimensions=8))
        expected = llm.embed([*PASSAGES], output="numpy", use_tqdm=False, input_type="document")
        for bad, why in ({"text": TEXT}, "`text` and `chunk`"), ({"text": TEXT, "chunk": 0}, "at least 1, not 0"):
            with pytest.raises(BadInput, match=why):
                ask(llm, bad)
        with pytest.raises(BadInput, match="has 154 tokens"):
            ask(llm, {"text": "a " * 150, "chunk": 150})
        assert llm.io_plugin is not None
        assert vars(llm.io_plugin)["_spans"] == {}
    async with AsyncLLM(str(folder), io_processor_plugin="passages") as awaited:
        output: Any = (await awaited.encode({"data": data}, pooling_task="plugin"))[0]
    for found in (passages, output.outputs):
        assert [(one["start"], one["end"]) for one in found] == [*PASSAGES.values()]
        assert_equal([one["embedding"] for one in found], expected, BATCH_LIMIT)
    assert [len(one["embedding"]) for one in cut] == [8] * 3


@pytest.mark.parametrize(
    ("kind", "task", "read_as"),
    [
        (None, "embed", "embed"),
        (None, "token_embed", "token_embed"),
        (None, "plugin", "embed"),
        (None, None, "embed"),
        ("sequence_classification", "classify", "classify"),
        ("token_classification", None, "token_classify"),
        ("masked_lm", "sparse", "sparse"),
    ],
)
def test_the_plugin_says_what_the_model_is_read_as(
    tiny: Tiny, told: Path, kind: str | None, task: str | None, read_as: str
) -> None:
    llm, plugin = opened_told(tiny("bert", head=kind) if kind else tiny("bert"))
    with llm:
        plugin.task = task
        answer = ask(llm, {"prompts": TEXTS})
        expected = llm.encode(TEXTS, pooling_task=read_as, use_tqdm=False)
        assert (plugin.hidden_size, plugin.model_type) == (llm.recipe.model.hidden_size, "bert")
        for row, tokens, output in zip(answer["rows"], answer["tokens"], expected, strict=True):
            assert row.shape == output.outputs.data.shape
            assert_equal([row.flatten()], [output.outputs.data.to_dense().flatten()], BATCH_LIMIT)
            assert len(tokens) == len(output.prompt_token_ids)
            assert (tokens[0], tokens[-1]) == ("[CLS]", "[SEP]")


async def test_options_are_the_request_s_then_the_plugin_s(folder: Path, told: Path) -> None:
    llm, plugin = opened_told(folder)
    raw, cut = PoolingParams(use_activation=False), PoolingParams(use_activation=True)
    with llm:
        plugin.task = "embed"
        rows = ask(llm, {"prompts": TEXTS}, pooling_params=[raw, cut, raw])["rows"]
        lengths = [float(row.norm()) for row in rows]
        assert abs(lengths[1] - 1) < 1e-5
        assert min(abs(lengths[0] - 1), abs(lengths[2] - 1)) > 1e-2
        plugin.use_activation = False
        assert abs(float(ask(llm, {"prompts": "a"})["rows"][0].norm()) - 1) > 1e-2
        with pytest.raises(BadInput, match=r"lengths of prompts \(3\) and params \(1\) must be the same"):
            ask(llm, {"prompts": TEXTS}, pooling_params=[raw])
        with pytest.raises(BadInput, match="plugin has no option 'dimensions'"):
            ask(llm, {"prompts": TEXTS}, dimensions=8)
        assert ask(llm, {"prompts": {"prompt_token_ids": [5, 6]}})["tokens"] != [[]]
        assert plugin.open == {}


def test_a_plugin_may_ask_for_options_of_ours(folder: Path, told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm, plugin = opened_told(folder)
    params = PoolingParams(task="embed", extra_kwargs={"input_type": "query"})
    monkeypatch.setattr(plugin, "merge_pooling_params", lambda given: params)
    with llm:
        expected = llm.embed_query(TEXTS, output="numpy", use_tqdm=False)
        assert_equal(ask(llm, {"prompts": TEXTS})["rows"], expected, BATCH_LIMIT)
        each = iter([params, PoolingParams(task="token_embed")])
        monkeypatch.setattr(plugin, "merge_pooling_params", lambda given: next(each))
        with pytest.raises(BadInput, match=r"as embed and token_embed\. All are read as one task"):
            ask(llm, {"prompts": ["a", "b"]}, pooling_params=[PoolingParams()] * 2)


async def test_what_a_request_gets_wrong(folder: Path, told: Path) -> None:
    llm, plugin = opened_told(folder)
    with llm:
        with pytest.raises(BadInput, match="The plugin refuses the data: there are no prompts") as refused:
            ask(llm, {})
        assert refused.value.param == "data"
        with pytest.raises(BadInput, match="`data` is None"):
            ask(llm, None)
        with pytest.raises(BadInput, match="has `data` and prompt"):
            llm.encode({"data": {}, "prompt": "a"}, pooling_task="plugin")
        with pytest.raises(BadInput, match="only supported for the 'plugin' pooling task"):
            llm.encode({"data": {}}, pooling_task="embed")
        with pytest.raises(UnsupportedTask, match="Unsupported task: 'plugin'"):
            llm.encode("a", pooling_task="plugin")
        plugin.task = "classify"
        with pytest.raises(UnsupportedTask, match="Unsupported task: 'classify'"):
            ask(llm, {"prompts": "a"})
        assert plugin.open == {}
    with LLM(str(folder)) as llm, pytest.raises(BadInput, match="No IOProcessor plugin installed"):
        ask(llm, {"prompts": "a"})
    async with AsyncLLM(str(folder)) as awaited:
        with pytest.raises(BadInput, match="No IOProcessor plugin installed"):
            await awaited.encode({"data": 1}, pooling_task="plugin")


class Guest:
    """Registered in this process."""

    @hookimpl
    def cenote_io_processors(self) -> Mapping[str, str]:
        return {"guest": "support.io_plugins:Told"}


@pytest.fixture
def guest() -> Iterator[Guest]:
    visitor = Guest()
    plugins.register(visitor)
    yield visitor
    plugins.unregister(visitor)


def test_config_json_names_the_plugin_unless_the_user_does(
    tiny: Tiny, tmp_path: Path, guest: Guest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "cenote")
    named = changed(tiny("bert"), tmp_path / "named", io_processor_plugin="guest")
    with LLM(str(named)) as llm:
        assert len(ask(llm, {"prompts": TEXTS})["rows"]) == 3
    assert "IO processor plugin guest (config.json)" in caplog.text
    wrong = changed(tiny("bert"), tmp_path / "wrong", io_processor_plugin="nobody")
    with LLM(str(wrong), io_processor_plugin="guest") as llm:
        assert len(ask(llm, {"prompts": TEXTS})["rows"]) == 3
    assert "IO processor plugin guest (user)" in caplog.text


def test_no_plugin_is_installed(tiny: Tiny) -> None:
    with pytest.raises(ConfigError, match=r"No IOProcessor plugins installed but one is required \(told\)"):
        LLM(str(tiny("bert")), io_processor_plugin="told")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x", r"requires the 'x' IO Processor plugin but it is not installed. Available plugins: \['broken', 'decl"),
        ("declining", "requires the 'declining' IO Processor plugin but it is not installed. 'declining' is, but decl"),
        ("broken", "'broken' cannot be loaded: RuntimeError: its library is not there"),
        ("mute", "which lacks merge_pooling_params, pre_process, pre_process_async, post_process, post_process_async"),
        ("told", "'told' cannot serve .*: RuntimeError: the model is too short"),
    ],
)
def test_a_plugin_that_cannot_serve_stops_the_start(tiny: Tiny, told: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LLM(str(tiny("bert")), io_processor_plugin=name, max_model_len=8)


def test_a_name_of_two_packages_is_refused_and_ours_goes_before_the_reference_s(
    tiny: Tiny, told: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = install(tmp_path / "ours", "cenote.io_processors", "ours")
    points = next(ours.glob("*/entry_points.txt"))
    points.write_text(points.read_text().replace(":told", ":mute"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(ours))
    with pytest.raises(ConfigError, match="Mute"):
        LLM(str(tiny("bert")), io_processor_plugin="told")
    points.write_text(points.read_text().replace("cenote.io_processors", "vllm.io_processor_plugins"), encoding="utf-8")
    with pytest.raises(ConfigError, match="Two plugins bring the IO processor 'told'"):
        LLM(str(tiny("bert")), io_processor_plugin="told")
