"""What the offline API refuses, and what it lives through: bad input, forks, closing, cancelled tasks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from cenote import LLM, AsyncLLM, PoolingParams
from cenote.errors import BadInput, CenoteError, ConfigError, UnsupportedTask
from cenote.started import Started
from support.rows import BATCH_LIMIT, assert_equal
from support.texts import paragraphs, short_texts

CUT = {"truncate_prompt_tokens": -1}


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "at least one prompt"),
        (3, "of type int"),
        (b"bytes", "of type bytes"),
        (iter(["a"]), r"of type list_iterator\. .* Give one, or a list of them"),
        ([None], "Prompt 0 is of type NoneType"),
        (["a", [0.5]], "Prompt 1 is a list that is not one of token ids"),
        (["a", []], "Prompt 1 is a list that is not one of token ids"),
        ([[-1]], "Token id -1 is out of vocabulary"),
        ([[30522]], "Token id 30522 is out of vocabulary"),
        ([[2**40]], "out of vocabulary"),
        ({"prompt_embeds": 1}, "prompt_embeds, which Cenote does not take"),
        ({"text": "a"}, "Prompt 0 is a dict"),
        (["\ud800"], "surrogate"),
    ],
)
def test_bad_prompts_are_named(llm: LLM, prompts: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        llm.embed(prompts, use_tqdm=False)


def test_bad_options_are_named(llm: LLM) -> None:
    with pytest.raises(BadInput, match="pooling_task is required"):
        llm.encode("a", use_tqdm=False)
    with pytest.raises(UnsupportedTask, match="Unsupported task: 'plugin'"):
        llm.encode("a", pooling_task="plugin", use_tqdm=False)
    with pytest.raises(BadInput, match=r"lengths of prompts \(2\) and params \(1\) must be the same"):
        llm.embed(["a", "b"], pooling_params=[PoolingParams()], use_tqdm=False)
    with pytest.raises(BadInput, match=r"cannot overwrite param\.task='classify' with pooling_task='embed'"):
        llm.embed("a", pooling_params=PoolingParams(task="classify"), use_tqdm=False)
    with pytest.raises(BadInput, match=r"does not support \['step_tag_id'\] parameters"):
        llm.embed("a", pooling_params=PoolingParams(step_tag_id=3), use_tqdm=False)
    with pytest.raises(BadInput, match="no option 'normalise'"):
        llm.embed("a", use_tqdm=False, normalise=True)
    with pytest.raises(BadInput, match="tokenization_kwargs has 'max_len'"):
        llm.embed("a", use_tqdm=False, tokenization_kwargs={"max_len": 3})
    with pytest.raises(BadInput, match="tokenization_kwargs has add_special_tokens='no'"):
        llm.embed("a", use_tqdm=False, tokenization_kwargs={"add_special_tokens": "no"})
    with pytest.raises(BadInput, match="output='torch'"):
        llm.embed("a", use_tqdm=False, output="torch")  # type: ignore[call-overload]
    with pytest.raises(BadInput, match="no adapters"):
        llm.embed("a", use_tqdm=False, lora_request=object())


def test_settings_of_the_reference_are_noted_refused_or_unknown() -> None:
    with pytest.raises(ConfigError, match="tensor_parallel_size=2, which Cenote does not have"):
        LLM(tensor_parallel_size=2)
    with pytest.raises(ConfigError, match="enable_lora=True, which Cenote does not have"):
        LLM(enable_lora=True)
    with pytest.raises(ConfigError, match="Unknown setting max_model_length"):
        LLM(max_model_length=3)
    with pytest.raises(ConfigError, match="does not support `--runner generate`"):
        LLM(runner="generate")
    with pytest.raises(UnsupportedTask, match="'summarise'"):
        LLM(task="summarise")
    with pytest.raises(ConfigError, match=r"max_model_len \(513\) is greater than the derived max_model_len \(512\)"):
        LLM(max_model_len=513)
    with pytest.warns(DeprecationWarning, match="call LLM.embed"), LLM(task="embedding", seed=1, max_num_seqs=3) as llm:
        assert llm.get_supported_tasks() == ("embed", "token_embed")


def test_arrays_of_texts_are_lists_of_texts(llm: LLM) -> None:
    expected = llm.embed(["a", "b"], output="numpy", use_tqdm=False)
    for dtype in (str, object):
        found = llm.embed(np.array(["a", "b"], dtype), output="numpy", use_tqdm=False)
        assert_equal(found, expected, BATCH_LIMIT)
    one = llm.embed(np.array("a"), output="numpy", use_tqdm=False)
    assert_equal(one, expected[:1], BATCH_LIMIT)


FORKED = """
import os
from cenote import LLM
from cenote.errors import Unavailable
llm = LLM()
child = os.fork()
for use in (lambda: llm.embed("a", use_tqdm=False), LLM):
    try:
        use()
    except Unavailable as error:
        assert child == 0 and "fork of" in str(error), error
    else:
        assert child != 0
if child == 0:
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_is_refused_and_its_parent_goes_on() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FORKED]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


def test_a_closed_llm_says_so() -> None:
    llm = LLM()
    llm.close()
    llm.close()
    with pytest.raises(CenoteError, match="clos"):
        llm.embed("a", use_tqdm=False)


def test_awaited_results_equal_blocking_ones(llm: LLM) -> None:
    texts = short_texts(12)

    async def run() -> tuple[Any, Any, Any]:
        async with AsyncLLM() as awaited:
            first, second = await asyncio.gather(
                awaited.embed(texts, output="numpy"), awaited.encode(texts, pooling_task="embed")
            )
            task = asyncio.create_task(awaited.embed(paragraphs(200), tokenization_kwargs=CUT))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            after = await awaited.embed("still alive", output="numpy")
            return first, second, after

    first, second, after = asyncio.run(run())
    expected = llm.embed(texts, output="numpy", use_tqdm=False)
    assert_equal(first, expected, BATCH_LIMIT)
    assert_equal([out.outputs.data.numpy() for out in second], expected, BATCH_LIMIT)
    assert_equal(after, llm.embed("still alive", output="numpy", use_tqdm=False), BATCH_LIMIT)


def test_what_a_cancelled_task_hands_in_later_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go, done = threading.Event(), threading.Event(), threading.Event()
    handed_in: list[Started] = []
    start = LLM.start

    def late(self: LLM, *args: Any, **more: Any) -> Started:
        entered.set()
        assert go.wait(60)
        handed_in.append(start(self, *args, **more))
        done.set()
        return handed_in[-1]

    async def run() -> bool:
        async with AsyncLLM() as awaited:
            task = asyncio.create_task(awaited.embed(paragraphs(300), tokenization_kwargs=CUT))
            assert await asyncio.to_thread(entered.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go.set()
            assert await asyncio.to_thread(done.wait, 60)
            (part,) = handed_in[0].parts
            await asyncio.to_thread(part.call.wait, 60)
            return part.call.future.cancelled()

    monkeypatch.setattr(LLM, "start", late)
    assert asyncio.run(run())


@pytest.mark.parametrize(
    "options",
    [
        {"normalize": "no"},
        {"prompt": 5},
        {"prompt_name": ["q"]},
        {"input_type": 5},
        {"pooling": []},
        {"pooling_params": PoolingParams(dimensions="x")},  # type: ignore[arg-type]
        {"add_special_tokens": 1},
        {"on_long": "chunk", "chunk_overlap": 1.5},
    ],
)
def test_an_option_of_another_type_is_named(llm: LLM, options: dict[str, Any]) -> None:
    name = "dimensions" if "pooling_params" in options else [*options][-1]
    with pytest.raises(BadInput, match=f"^{name}=") as caught:
        llm.embed("a", use_tqdm=False, **options)
    assert caught.value.param == name


def test_numbers_of_numpy_are_numbers(llm: LLM) -> None:
    found = llm.embed("a", output="numpy", use_tqdm=False, normalize=np.bool_(False))
    assert_equal(found, llm.embed("a", output="numpy", use_tqdm=False, normalize=False))
