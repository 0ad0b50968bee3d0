"""The main job on real input: ten thousand texts from Python, from the shell and over HTTP, beside their reference."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from . import load, machine, peers, report, servers
from .errors import LoadFailed

NUM_TEXTS = 10_000
PER_REQUEST = 2_048
_LONGEST_WINDOW = 5

COLUMNS = ("road", "seconds", "texts/s", "vs sentence-transformers", "largest difference")


@dataclass(frozen=True, slots=True)
class Road:
    """One way to the same vectors.

    Args:
        name: What was called.
        seconds: From the call to the last vector; with the start of the process for the shell.
        rows: float32 `[N, D]`.
    """

    name: str
    seconds: float
    rows: NDArray[np.float32]


def texts(num_texts: int = NUM_TEXTS) -> list[str]:
    """Distinct runs of one to five sentences of `pydoc_data.topics`, in the order of the topics.

    Raises:
        ValueError: There are not as many.
    """
    found = list(dict.fromkeys(_windows()))
    if len(found) < num_texts:
        raise ValueError(f"There are {len(found)} distinct texts, {num_texts} were asked for.")
    step = len(found) / num_texts
    return [found[int(position * step)] for position in range(num_texts)]


def run(num_texts: int, threads: int, output: Path, console: Console) -> list[Road]:
    """Embed the texts by every road, compare with sentence-transformers, print, and write `job.json`.

    Raises:
        LoadFailed: A road fails, or its vectors are not those of the reference.
    """
    machine.pin(threads)
    inputs = texts(num_texts)
    roads: list[Road] = []
    with tempfile.TemporaryDirectory() as folder, console.status("") as status:
        todo: Sequence[tuple[str, Callable[[], Road]]] = (
            ("sentence-transformers", lambda: _reference(inputs, threads)),
            ("LLM.embed", lambda: _python(inputs)),
            ("cenote embed", lambda: _shell(inputs, Path(folder))),
            ("/v1/embeddings", lambda: _http(inputs, Path(folder))),
        )
        for name, take in todo:
            status.update(f"{len(inputs):,} texts: {name}")
            roads.append(take())
    rows = [_cells(road, roads[0]) for road in roads]
    report.print_table(console, f"{len(inputs):,} real texts, {threads} CPUs", COLUMNS, rows)
    output.mkdir(parents=True, exist_ok=True)
    facts = {"roads": [dict(zip(COLUMNS, cells, strict=True)) for cells in rows], "machine": machine.facts()}
    (output / "job.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    (output / "job.md").write_text(report.markdown(COLUMNS, rows) + "\n", encoding="utf-8")
    for road in roads:
        if difference(road, roads[0]) > 1e-5:
            raise LoadFailed(f"The vectors of {road.name} are not those of sentence-transformers.")
    return roads


def difference(road: Road, reference: Road) -> float:
    """Largest difference of a value, as a part of the largest value of its row, over all rows."""
    scale = np.abs(reference.rows).max(axis=1)
    return float((np.abs(road.rows - reference.rows).max(axis=1) / scale).max())


def _windows() -> Iterator[str]:
    for body in topics.values():
        sentences = [part.strip() for part in " ".join(body.split()).split(". ") if len(part.strip()) > 20]
        for start in range(len(sentences)):
            for stop in range(start + 1, min(start + _LONGEST_WINDOW, len(sentences)) + 1):
                yield ". ".join(sentences[start:stop])


def _cells(road: Road, reference: Road) -> tuple[str, ...]:
    rate = len(road.rows) / road.seconds
    times = reference.seconds / road.seconds
    return (road.name, f"{road.seconds:.1f}", f"{rate:.0f}", f"{times:.2f}x", f"{difference(road, reference):.1e}")


def _timed(name: str, work: Callable[[], NDArray[np.float32]]) -> Road:
    began = time.perf_counter()
    rows = work()
    return Road(name, time.perf_counter() - began, rows)


def _reference(inputs: Sequence[str], threads: int) -> Road:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(str(peers.default_model()), device="cpu")
    model.encode(list(inputs[:64]))
    return _timed(
        "sentence-transformers, torch", lambda: np.asarray(model.encode(list(inputs), batch_size=32), np.float32)
    )


def _python(inputs: Sequence[str]) -> Road:
    from cenote import LLM

    cut = {"truncate_prompt_tokens": -1}
    with LLM(str(peers.default_model())) as llm:
        llm.embed(list(inputs[:64]), output="numpy", use_tqdm=False, tokenization_kwargs=cut)
        return _timed(
            "LLM.embed",
            lambda: llm.embed(list(inputs), output="numpy", use_tqdm=False, tokenization_kwargs=cut),
        )


def _shell(inputs: Sequence[str], folder: Path) -> Road:
    source, target = folder / "texts.jsonl", folder / "vectors.npy"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in inputs), encoding="utf-8")
    command = (*servers.CLI, "embed", "--input", str(source), "--output", str(target), "--quiet")

    def work() -> NDArray[np.float32]:
        load.checked(command)
        rows: NDArray[np.float32] = np.load(target)
        return rows

    return _timed("cenote embed, start included", work)


def _http(inputs: Sequence[str], folder: Path) -> Road:
    from openai import OpenAI

    with (
        servers.served(folder / "serve.log") as server,
        OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none") as client,
    ):

        def work() -> NDArray[np.float32]:
            pieces = [inputs[start : start + PER_REQUEST] for start in range(0, len(inputs), PER_REQUEST)]
            cut = {"truncate_prompt_tokens": -1}
            answers = [client.embeddings.create(model="", input=list(piece), extra_body=cut) for piece in pieces]
            return np.array([item.embedding for answer in answers for item in answer.data], np.float32)

        client.embeddings.create(model="", input=list(inputs[:64]), extra_body={"truncate_prompt_tokens": -1})
        return _timed("/v1/embeddings, openai client", work)
