"""Tasks and uses of plugins offline: the installed example, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cenote import LLM, AsyncLLM, PoolingParams, plugins
from cenote.errors import BadInput, CenoteError, ConfigError, ForwardFailed, UnsupportedTask
from cenote.hookspecs import hookimpl
from cenote.tasks import embed
from cenote.types import Encoded, ReadKey
from cenote.uses import Group, Planned
from support.rows import BATCH_LIMIT, assert_equal
from support.texts import short_texts

if TYPE_CHECKING:
    from support.fixtures import Tiny, TinySentence

TEXTS = [*short_texts(4), "", "a"]
QUIET: dict[str, Any] = {"use_tqdm": False}


@pytest.fixture(scope="module")
def folder(tiny_sentence: TinySentence) -> Path:
    return tiny_sentence(
        pooling="mean",
        normalize=True,
        include_prompt=False,
        prompts={"query": "q: ", "document": "read this: "},
        matryoshka_dimensions=[8],
    )


@pytest.fixture(scope="module")
def passages(folder: Path, example_plugin: Path) -> Iterator[LLM]:
    """A model beside which the example is installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(example_plugin))
        import cenote_passages  # type: ignore[import-not-found,unused-ignore]

        plugins.register(cenote_passages)
        try:
            with LLM(str(folder)) as llm:
                yield llm
        finally:
            plugins.unregister(cenote_passages)


def passages_of(llm: LLM, text: str, size: int, skip: int = 0, **more: Any) -> np.ndarray[Any, Any]:
    """Written out: means of the vectors of so many tokens, at unit length."""
    (out,) = llm.encode(text, pooling_task="token_embed", normalize=False, **QUIET, **more)
    rows = out.outputs.data.numpy()[skip:]
    means = np.stack([rows[at : at + size].mean(0) for at in range(0, len(rows), size)])
    unit: np.ndarray[Any, Any] = means / np.linalg.norm(means, axis=1, keepdims=True)
    return unit


@pytest.mark.parametrize("size", [1, 5, 64])
def test_a_task_of_an_installed_plugin_is_served(passages: LLM, size: int) -> None:
    assert passages.get_supported_tasks() == ("embed", "token_embed", "passage_embed")
    outs = passages.encode(TEXTS, pooling_task="passage_embed", tokens=size, **QUIET)
    assert_equal([out.outputs.data.numpy() for out in outs], [passages_of(passages, text, size) for text in TEXTS])


def test_its_options_are_each_request_s_own_and_share_a_batch(passages: LLM) -> None:
    each = [PoolingParams(), PoolingParams(dimensions=8), PoolingParams(use_activation=None)]
    outs = passages.encode(TEXTS[:3], each, pooling_task="passage_embed", tokens=4, input_type="document", **QUIET)
    skip = passages.engine.tokenizer.prompt_length("read this: ")
    for out, text, one in zip(outs, TEXTS, each, strict=False):
        whole = passages_of(passages, text, 4, skip, input_type="document")[:, : one.dimensions]
        expected = whole / np.linalg.norm(whole, axis=1, keepdims=True)
        assert_equal([out.outputs.data.numpy()], [expected], 4e-6)
    for options, message in (
        ({"tokens": 0}, "tokens=0. At least 1"),
        ({"tokens": "4"}, "tokens='4'. Its type is int"),
        ({"size": 4}, "passage_embed has no option 'size'"),
        ({"pooling": "max"}, "passages are means"),
        ({"pooling_params": PoolingParams(use_activation=True)}, "does not support"),
    ):
        with pytest.raises(BadInput, match=re.escape(message)):
            passages.encode("a", pooling_task="passage_embed", **options, **QUIET)


async def test_a_use_of_an_installed_plugin_answers(passages: LLM, folder: Path) -> None:
    long = " ".join(TEXTS[:4])[:80]
    given = {"query": TEXTS[0], "documents": [long, TEXTS[1], TEXTS[0]]}
    found = passages.use("best_passage", given, tokens=6, **QUIET)
    query = passages.embed(TEXTS[0], output="numpy", input_type="query", **QUIET)[0]
    skip = passages.engine.tokenizer.prompt_length("read this: ")
    best = {}
    for index, text in enumerate(given["documents"]):
        scores = passages_of(passages, text, 6, skip, input_type="document") @ query
        (out,) = passages.embed(text, input_type="document", **QUIET)
        # The last token is a special one, and alone it is no passage.
        num_own = len(out.prompt_token_ids) - skip - 1
        best[index] = scores[: -(-num_own // 6)].max()
    assert [one["document"] for one in found] == sorted(best, key=lambda index: -best[index])
    assert_equal([[one["score"] for one in found]], [[best[one["document"]] for one in found]], 4e-6)
    for one in found:
        # The last tokens of a document may be special ones alone, which are no text of it.
        assert one["text"] == given["documents"][one["document"]][one["start"] : one["end"]]
    assert all(one["text"] for one in passages.use("best_passage", given, tokens=64, **QUIET))
    assert passages.use("best_passage", given, tokens=6, top_n=1, **QUIET) == found[:1]
    async with AsyncLLM(str(folder)) as awaited:
        again = await awaited.use("best_passage", given, tokens=6)
    assert [(one["document"], one["start"], one["end"]) for one in again] == [
        (one["document"], one["start"], one["end"]) for one in found
    ]
    with pytest.raises(BadInput, match="no object with `query` and `documents`"):
        passages.use("best_passage", "a")
    with pytest.raises(BadInput, match="best_passage has no option 'size'"):
        passages.use("best_passage", given, size=1)
    with pytest.raises(BadInput, match=r"^Document 1 has \d+ tokens"):
        passages.use("best_passage", {"query": "a", "documents": ["b", "c " * 99]})


def test_a_mode_of_a_plugin_may_be_the_model_s_own(passages: LLM, folder: Path) -> None:
    expected = passages.embed(TEXTS, output="numpy", pooling="inner_mean", **QUIET)
    for asked in ({"seq_pooling_type": "inner_mean"}, {"pooling_type": "INNER_MEAN"}):
        with LLM(str(folder), pooler_config=asked) as llm:
            assert llm.recipe.decided()["pooling"] == ("inner_mean", "user: of plugin cenote_passages")
            assert_equal(llm.embed(TEXTS, output="numpy", **QUIET), expected, BATCH_LIMIT)
    with pytest.raises(ConfigError, match=r"seq_pooling_type='OUTER'. Allowed are CLS, .*, INNER_MEAN"):
        LLM(str(folder), pooler_config={"seq_pooling_type": "outer"})
    with pytest.raises(ConfigError, match=r"tok_pooling_type='INNER_MEAN'. Allowed are ALL, STEP"):
        LLM(str(folder), pooler_config={"tok_pooling_type": "inner_mean"})


def test_a_classifier_may_pool_in_a_plugin_s_way(passages: LLM, tiny: Tiny) -> None:
    classifier = tiny("bert", head="sequence_classification", num_labels=3)
    with (
        LLM(str(classifier), pooler_config={"seq_pooling_type": "inner_mean"}) as inner,
        LLM(str(classifier), pooler_config={"seq_pooling_type": "mean"}) as mean,
    ):
        found, others = ([out.outputs.probs for out in llm.classify(TEXTS[:2], **QUIET)] for llm in (inner, mean))
        assert "cenote_passages" in inner.recipe.sources["pooling"]
    assert np.abs(np.array(found) - others).max() > 1e-4


class Brings:
    """A plugin that a program registers."""

    def __init__(self, tasks: Mapping[str, Any] | None = None, uses: Mapping[str, Any] | None = None) -> None:
        self.tasks, self.uses = tasks or {}, uses or {}

    @hookimpl
    def cenote_tasks(self) -> Mapping[str, Any]:
        return self.tasks

    @hookimpl
    def cenote_uses(self) -> Mapping[str, Any]:
        return self.uses


@pytest.fixture
def bring() -> Iterator[Callable[..., None]]:
    """Registers plugins for one test."""
    brought: list[Brings] = []

    def register(**what: Mapping[str, Any]) -> None:
        brought.append(Brings(**what))
        plugins.register(brought[-1])

    yield register
    for one in brought:
        plugins.unregister(one)


@dataclass(frozen=True)
class Plain:
    """Options of a task that has none, not even special tokens."""

    def check(self, recipe: Any) -> None:
        """Nothing can be wrong."""


def norms(**changed: Any) -> SimpleNamespace:
    """A task with what it must have and no more: the length of each pooled vector."""
    whole = {
        "NAME": "norm",
        "Params": Plain,
        "serves": embed.serves,
        "encode": lambda recipe, tokenizer, inputs, params, length: embed.encode(
            recipe, tokenizer, inputs, embed.Params(), length
        ),
        "read": lambda heads, hidden_QD, spans, key: embed.read(heads, hidden_QD, spans, ReadKey("embed")).norm(
            dim=1, keepdim=True
        ),
        "shape": lambda recipe, rows, params: rows,
    }
    return SimpleNamespace(**{name: part for name, part in {**whole, **changed}.items() if part is not None})


def tokens_of(*ids: int) -> Encoded:
    """A record of these ids."""
    return Encoded(np.array(ids, np.int64))


def gives(record: Any) -> Callable[..., list[Any]]:
    """An `encode` that gives this for each input."""
    return lambda recipe, tokenizer, inputs, params, length: [record for _ in inputs]


def test_ids_of_another_integer_type_are_read_as_ours(folder: Path, bring: Callable[..., None]) -> None:
    bring(tasks={"norm": norms(encode=gives(tokens_of(2, 9, 11, 3)))})
    with LLM(str(folder)) as llm:
        (out,) = llm.encode("a", pooling_task="norm", **QUIET)
        row = llm.embed([[2, 9, 11, 3]], normalize=False, output="numpy", **QUIET)
        assert_equal([out.outputs.data.numpy()], [[np.linalg.norm(row)]], BATCH_LIMIT)
        assert out.outputs.data.shape == (1,)


def test_a_program_may_bring_a_task(folder: Path, bring: Callable[..., None]) -> None:
    bring(tasks={"norm": norms()})
    with LLM(str(folder), pooler_config={"task": "norm"}) as llm:
        assert llm.recipe.default_task == "norm"
        found = [out.outputs.data.numpy() for out in llm.encode(TEXTS, pooling_task="norm", **QUIET)]
        raw = llm.embed(TEXTS, normalize=False, output="numpy", **QUIET)
        assert_equal(found, np.linalg.norm(raw, axis=1, keepdims=True), BATCH_LIMIT)
        for more, message in (
            ({"tokenization_kwargs": {"add_special_tokens": False}}, "norm has no option 'add_special_tokens'"),
            ({"pooling_params": PoolingParams(dimensions=8)}, "does not support"),
        ):
            with pytest.raises(BadInput, match=message):
                llm.encode(TEXTS, pooling_task="norm", **more, **QUIET)


def test_one_that_left_is_unknown(folder: Path) -> None:
    with LLM(str(folder)) as llm:
        with pytest.raises(UnsupportedTask, match="Unsupported task: 'norm'"):
            llm.encode("a", pooling_task="norm")
        with pytest.raises(BadInput, match="No plugin brings the use 'score'"):
            llm.use("score", "a")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (norms(read=None, shape=None), r"The task 'norm' of a plugin is .* lacks read, shape"),
        (norms(NAME="other"), "calls itself NAME='other'"),
        ("cenote_passages_of_nobody", "The task 'norm' of a plugin cannot be loaded: ModuleNotFoundError"),
        (
            norms(serves=lambda recipe: 1 / 0),
            "`serves` of the task 'norm', which a plugin brings, failed: ZeroDivision",
        ),
    ],
)
def test_a_task_that_cannot_be_stops_the_start(
    folder: Path, bring: Callable[..., None], task: Any, message: str
) -> None:
    bring(tasks={"norm": task})
    with pytest.raises(CenoteError, match=message):
        LLM(str(folder))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        (
            {"encode": lambda *given: []},
            CenoteError,
            "`encode` of the task 'norm', .*: it gives 0 records for 2 inputs",
        ),
        ({"encode": gives("a")}, CenoteError, "`encode` .*: record 0 is 'a', and no `Encoded`"),
        ({"encode": gives(Encoded([2, 3]))}, CenoteError, r"`encode` .*: record 0 has ids=\[2, 3\], which is no array"),  # type: ignore[arg-type]
        ({"encode": gives(tokens_of())}, CenoteError, r"`encode` .*: record 0 has ids=array\(\[\]"),
        ({"encode": gives(tokens_of(2, 10**6))}, CenoteError, r"`encode` .*: record 0 has ids from 2 to 1000000; the"),
        ({"encode": gives(tokens_of(-1, 3))}, CenoteError, r"`encode` .*: record 0 has ids from -1 to 3; the model's"),
        ({"encode": gives(tokens_of(*[2] * 999))}, CenoteError, r"`encode` .*: record 0 has 999 tokens, and the model"),
        ({"shape": lambda *given: 1 / 0}, CenoteError, "`shape` of the task 'norm'"),
        ({"shape": lambda recipe, rows, params: rows[:1]}, CenoteError, r"made an array \[1, 1\] of 2 inputs"),
        ({"shape": lambda recipe, rows, params: 1.5}, CenoteError, r"`shape` of .* made an array \[\] of 2 inputs"),
        ({"Params": lambda: 1 / 0}, CenoteError, "`Params` of the task 'norm', which a plugin brings, failed"),
        ({"read_key": lambda *given: ReadKey("", route="x")}, CenoteError, "`read_key` .* there is no route 'x'"),
        ({"rows_needed": lambda *given: "some"}, ForwardFailed, "`rows_needed` of .*: it gives 'some', not first"),
        ({"read": lambda heads, hidden_QD, spans, key: hidden_QD[:0]}, ForwardFailed, None),
        ({"read_key": lambda recipe, params: 1 / 0}, CenoteError, "`read_key` of the task 'norm'"),
    ],
)
def test_an_error_of_a_task_names_it(
    folder: Path, bring: Callable[..., None], changed: dict[str, Any], error: type[Exception], message: str | None
) -> None:
    bring(tasks={"norm": norms(**changed)})
    with LLM(str(folder)) as llm:
        with pytest.raises(error, match=message) as raised:
            llm.encode(["a", "b"], pooling_task="norm", **QUIET)
        if message is None:
            assert "gives rows of 0 texts, and there are" in str(raised.value.__cause__)
        assert len(llm.embed("a", output="numpy", **QUIET)) == 1


def test_names_are_brought_once(folder: Path, bring: Callable[..., None]) -> None:
    bring(tasks={"embed": norms(NAME="embed")})
    with pytest.raises(ConfigError, match="Two plugins bring the task 'embed'"):
        LLM(str(folder))


def test_what_a_use_does_wrong_names_it(folder: Path, bring: Callable[..., None]) -> None:
    def plan(recipe: Any, tokenizer: Any, given: Any, options: Any) -> Planned:
        return Planned([Group("embed", [given], embed.Params())])

    use = {"NAME": "size", "Options": Plain, "serves": lambda recipe: True, "plan": plan}
    bring(
        uses={
            "size": SimpleNamespace(**use, finish=lambda *given: len(given[3].rows[0])),
            "bare": SimpleNamespace(NAME="bare"),
            "never": SimpleNamespace(**{**use, "NAME": "never", "serves": lambda recipe: False}, finish=len),
            "worse": SimpleNamespace(**{**use, "NAME": "worse"}, finish=lambda *given: 1 / 0),
        }
    )
    with LLM(str(folder)) as llm:
        assert llm.use("size", "a", **QUIET) == llm.recipe.embedding_size
        for name, message in (
            ("bare", "lacks Options, serves, plan, finish"),
            ("never", "cannot be used as 'never'"),
            ("worse", "`finish` of the use 'worse', which a plugin brings, failed: ZeroDivisionError"),
            ("none", "There are bare, .*never, size, worse; Cenote's own"),
        ):
            with pytest.raises(CenoteError, match=message):
                llm.use(name, "a", **QUIET)
        with pytest.raises(BadInput, match="add_special_tokens=False was given"):
            llm.use("size", "a", tokenization_kwargs={"add_special_tokens": False})
