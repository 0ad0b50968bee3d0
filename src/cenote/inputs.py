"""What a caller may hand in as prompts, parsed once into `Input`s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .errors import BadInput, NoInputs
from .types import Input, Pair, Tokens

_ALLOWED = (
    "A prompt is a string, a list of token ids, a Pair, or a dict with `prompt`, `prompt_token_ids`, "
    "or `text` and `text_pair`."
)
# Of the reference's dict prompts; they change the result, so they are refused by name and not passed over.
_NOT_HERE = ("prompt_embeds", "multi_modal_data", "multi_modal_uuids", "mm_processor_kwargs")
_NO_EFFECT = ("cache_salt",)


def parse(prompts: Any) -> list[Input]:
    """Parse one prompt, or a list of prompts, into a list of inputs.

    A list of integers is one prompt of token ids; any other list is a list of prompts.

    Raises:
        BadInput: There is no prompt, or one has a form that is not known.
    """
    if isinstance(prompts, list) and prompts and all(isinstance(prompt, str) for prompt in prompts):
        return list(prompts)
    if isinstance(prompts, np.ndarray) and prompts.ndim == 0:
        prompts = prompts.item()
    if isinstance(prompts, (str, Pair, Mapping)) or _is_ids(prompts):
        return [parse_one(prompts, 0)]
    if not isinstance(prompts, (Sequence, np.ndarray)) or isinstance(prompts, (bytes, bytearray)):
        what, fix = f"The prompts are of type {type(prompts).__name__}.", "Give one, or a list of them."
        raise BadInput(what, allowed=_ALLOWED, fix=fix, param="prompts")
    if len(prompts) == 0:
        raise NoInputs("You must pass at least one prompt.", param="prompts")
    return [parse_one(prompt, index) for index, prompt in enumerate(prompts)]


def parse_one(prompt: Any, index: int = 0) -> Input:
    """Parse one prompt; `index` is its position, for the message."""
    if isinstance(prompt, (str, Pair)):
        return prompt
    if isinstance(prompt, Mapping):
        return _parse_dict(prompt, index)
    if isinstance(prompt, (Sequence, np.ndarray)) and not isinstance(prompt, (bytes, bytearray)):
        return Tokens(_ids(prompt, index))
    raise BadInput(
        f"Prompt {index} is of type {type(prompt).__name__}.", allowed=_ALLOWED, param="prompts", index=index
    )


def _parse_dict(prompt: Mapping[str, Any], index: int) -> Input:
    keys = set(prompt) - set(_NO_EFFECT)
    if "data" in keys:
        what = f"Prompt {index} has `data`. The 'data' field is only supported for the 'plugin' pooling task."
        raise BadInput(what, allowed=_ALLOWED, param="data", index=index)
    refused = sorted(keys.intersection(_NOT_HERE))
    if refused:
        raise BadInput(
            f"Prompt {index} has {', '.join(refused)}, which Cenote does not take.",
            allowed=_ALLOWED,
            param=refused[0],
            index=index,
        )
    if keys == {"prompt"}:
        return parse_one(prompt["prompt"], index)
    if keys == {"prompt_token_ids"} or keys == {"prompt", "prompt_token_ids"}:
        return Tokens(_ids(prompt["prompt_token_ids"], index))
    if keys == {"text", "text_pair"}:
        text, text_pair = prompt["text"], prompt["text_pair"]
        if isinstance(text, str) and isinstance(text_pair, str):
            return Pair(text, text_pair)
    raise BadInput(f"Prompt {index} is a dict with {sorted(prompt)}.", allowed=_ALLOWED, param="prompts", index=index)


def _is_ids(prompts: Any) -> bool:
    if isinstance(prompts, np.ndarray):
        return prompts.ndim == 1 and prompts.dtype.kind in "iu"
    return (
        isinstance(prompts, Sequence)
        and not isinstance(prompts, (str, bytes, bytearray))
        and len(prompts) > 0
        and isinstance(prompts[0], (int, np.integer))
    )


def _ids(ids: Any, index: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    try:
        wide = np.asarray(ids)
    except (ValueError, OverflowError):
        wide = np.empty(0, object)
    if wide.ndim != 1 or wide.dtype.kind not in "iu" or wide.size == 0:
        raise BadInput(
            f"Prompt {index} is a list that is not one of token ids.",
            allowed="Token ids are a flat, non-empty list of integers.",
            param="prompt_token_ids",
            index=index,
        )
    if wide.min() < 0 or wide.max() > np.iinfo(np.int32).max:
        bad = wide[(wide < 0) | (wide > np.iinfo(np.int32).max)][0]
        raise BadInput(f"Token id {bad} is out of vocabulary.", param="prompt_token_ids", index=index)
    return wide.astype(np.int32)
