"""`{"text": ..., "chunk": 50}` becomes passages of 50 words, each with its place in the text and its vector."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cenote import IOPlugin, PoolingParams, PoolingRequestOutput


@dataclass(frozen=True)
class Document:
    """A text, and how many words each of its passages has."""

    text: str
    chunk: int


class Passages(IOPlugin):
    """Cuts a text into passages and embeds each."""

    def __init__(self, config: Any, renderer: Any) -> None:
        super().__init__(config, renderer)
        self._spans: dict[str, list[tuple[int, int]]] = {}

    def parse_data(self, data: Any) -> Document:
        """Refuse what is no document; the caller is told why."""
        if not isinstance(data, dict) or set(data) != {"text", "chunk"}:
            raise ValueError("the data is an object with `text` and `chunk`")
        text, chunk = data["text"], data["chunk"]
        if not isinstance(text, str) or not text.strip():
            raise ValueError("`text` is a text that is not empty")
        if type(chunk) is not int or chunk < 1:
            raise ValueError(f"`chunk` is a number of words, at least 1, not {chunk!r}")
        return Document(text, chunk)

    def pre_process(self, prompt: Document, request_id: str | None = None, **kwargs: Any) -> list[str]:
        """One prompt per passage; where they lie is kept for the answer."""
        words = [found.span() for found in re.finditer(r"\S+", prompt.text)]
        pieces = [words[at : at + prompt.chunk] for at in range(0, len(words), prompt.chunk)]
        spans = [(piece[0][0], piece[-1][1]) for piece in pieces]
        self._spans[str(request_id)] = spans
        return [prompt.text[start:end] for start, end in spans]

    def merge_pooling_params(self, params: PoolingParams | None = None) -> PoolingParams:
        """Passages are documents, so a model with a prompt for those puts it before each."""
        asked = params or PoolingParams()
        return PoolingParams(
            asked.use_activation, asked.dimensions, task="embed", extra_kwargs={"input_type": "document"}
        )

    def post_process(
        self, model_output: Sequence[PoolingRequestOutput], request_id: str | None = None, **kwargs: Any
    ) -> list[dict[str, Any]]:
        """Start and end in the text, and the vector, of each passage."""
        spans = self._spans[str(request_id)]
        return [
            {"start": start, "end": end, "embedding": output.outputs.data.tolist()}
            for (start, end), output in zip(spans, model_output, strict=True)
        ]

    def end(self, request_id: str) -> None:
        """Forget a request, also one that failed."""
        self._spans.pop(request_id, None)
