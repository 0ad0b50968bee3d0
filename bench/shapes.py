"""Well-known shapes and what language models save: comparisons on random checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from . import peers
from .checkpoints import SHAPES
from .compare import Contest
from .texts import CountTokens, Workload, build, embedded, exact, ranked, token_counter

SHAPES_RACED = ("bert-base", "modernbert-base", "qwen3-4-layers")
SHAPES_LARGE = ("deberta-v3-base", "qwen3-0.6b")
SHAPES_OTHER = ("qwen3-4-layers-score", "long", "tiny")
"""Those that `python -m bench shapes` takes, the large ones only where they are named; and those of other parts."""

TOKENS = 256
PREFIX_TOKENS = 60
INSTRUCTION_TOKENS = 30


def contests(
    names: Sequence[str], subjects: Sequence[str], num_long: int, num_short: int, console: Console
) -> list[Contest]:
    """One contest per shape: texts of 256 tokens, and sentences of about 16.

    Raises:
        PeerUnavailable: A checkpoint could not be made.
    """
    count = token_counter(peers.default_model())  # all have this tokenizer
    long_texts = exact(TOKENS, num_long, count)
    short_texts = build("short", num_short, count).texts
    return [
        Contest(
            name,
            peers.build_shape(name, console.print),
            [
                embedded(f"{SHAPES[name].title}, long", long_texts, count),
                embedded(f"{SHAPES[name].title}, short", short_texts, count),
            ],
            subjects,
        )
        for name in names
    ]


def prefix_contests(num_queries: int, num_documents: int, console: Console) -> list[Contest]:
    """Queries that begin with one instruction of 30 tokens, and documents behind a query of 60, special ones included.

    Raises:
        PeerUnavailable: A checkpoint could not be made.
    """
    count = token_counter(peers.default_model())
    subjects = ("cenote", "cenote-unshared")
    return [
        Contest(name, peers.build_shape(name, console.print), [workload], subjects)
        for name, workload in (
            ("qwen3-4-layers", _instructed(num_queries, count)),
            ("qwen3-4-layers-score", _behind_a_prefix(num_documents, count)),
        )
    ]


def _instructed(num_queries: int, count: CountTokens) -> Workload:
    (instruction,) = exact(
        INSTRUCTION_TOKENS + 1, 1, count
    )  # an end marker goes with it here, and after the query there
    queries = build("short", num_queries, count).texts
    return embedded("one instruction", [f"{instruction} {query}" for query in queries], count)


def _behind_a_prefix(num_documents: int, count: CountTokens) -> Workload:
    (query,) = exact(PREFIX_TOKENS, 1, count)
    documents = build("rerank", num_documents, count).texts
    return ranked("one query", query, documents, count)
