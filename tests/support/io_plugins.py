"""IO processors for tests, and how they are installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cenote import PoolingRequestOutput


class Told:
    """Written as for the reference, of which it imports nothing: `{"prompts": ..., "answer": ...}` to rows and tokens.

    `answer` is what it answers in their place; `task` and `use_activation` are what it asks for.
    """

    def __init__(self, vllm_config: Any, renderer: Any) -> None:
        if vllm_config.model_config.max_model_len < 9:
            raise RuntimeError("the model is too short")
        self.hidden_size = vllm_config.model_config.get_hidden_size()
        self.model_type = vllm_config.model_config.hf_config.model_type
        self.tokenizer = renderer.get_tokenizer()
        self.task: str | None = None
        self.use_activation: bool | None = None
        self.open: dict[str | None, Any] = {}

    def parse_data(self, data: Any) -> Any:
        if "prompts" not in data:
            raise ValueError("there are no prompts")
        return data

    def merge_pooling_params(self, params: Any = None) -> Any:
        given = self.use_activation if params is None else params.use_activation
        return SimpleNamespace(task=self.task, use_activation=given, skip_reading_prefix_cache=True)

    def pre_process(self, prompt: Any, request_id: str | None = None, **kwargs: Any) -> Any:
        self.open[request_id] = prompt
        return prompt["prompts"]

    async def pre_process_async(self, prompt: Any, request_id: str | None = None, **kwargs: Any) -> Any:
        return self.pre_process(prompt, request_id, **kwargs)

    def post_process(
        self, model_output: Sequence[PoolingRequestOutput], request_id: str | None = None, **kwargs: Any
    ) -> Any:
        prompt = self.open[request_id]
        if "answer" in prompt:
            return {"what": object()} if prompt["answer"] == "no json" else prompt["answer"]
        return {
            "rows": [output.outputs.data.to_dense() for output in model_output],
            "tokens": [self.tokenizer.convert_ids_to_tokens(output.prompt_token_ids) for output in model_output],
        }

    async def post_process_async(
        self,
        model_output: AsyncIterator[tuple[int, PoolingRequestOutput]],
        request_id: str | None = None,
        **kwargs: Any,
    ) -> Any:
        both = sorted([one async for one in model_output], key=lambda one: one[0])
        return self.post_process([output for _, output in both], request_id, **kwargs)

    def end(self, request_id: str) -> None:
        self.open.pop(request_id, None)


class Mute:
    """Lacks what an IO processor has."""

    def parse_data(self, data: Any) -> Any:
        return data


def told() -> str:
    return f"{__name__}.Told"


def mute() -> str:
    return f"{__name__}:Mute"


def declining() -> None:
    """A plugin that finds that it cannot be used here."""


def broken() -> str:
    raise RuntimeError("its library is not there")


def install(folder: Path, group: str = "vllm.io_processor_plugins", package: str = "told") -> Path:
    """Make `folder` one with an installed package that names all of the above in `group`."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    points = "".join(f"{name} = {__name__}:{name}\n" for name in ("told", "mute", "declining", "broken"))
    (info / "entry_points.txt").write_text(f"[{group}]\n{points}", encoding="utf-8")
    return folder


def pip_install(project: Path, target: Path) -> Path:
    """Build and install a project into a folder of its own, without fetching anything."""
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target
