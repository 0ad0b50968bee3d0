"""The retrieving half of a RAG program: embed a corpus, search it, rerank what was found.

    python examples/rag.py "how are exceptions chained?" [--model FOLDER] [--reranker CROSS_ENCODER]

The corpus is Python's own language reference, as `pydoc` carries it.
"""

from __future__ import annotations

import argparse
import pydoc_data.topics

import numpy as np

from cenote import LLM

PASSAGE_CHARS = 500
SHOWN_CHARS = 90


def passages() -> list[str]:
    """The reference in runs of paragraphs of about `PASSAGE_CHARS` characters, each once."""
    found: list[str] = []
    for _, topic in sorted(pydoc_data.topics.topics.items()):
        run = ""
        for paragraph in topic.split("\n\n"):
            run = f"{run} {' '.join(paragraph.split())}".strip()
            if len(run) >= PASSAGE_CHARS:
                found.append(run)
                run = ""
        if run:
            found.append(run)
    return list(dict.fromkeys(found))  # some topics share their text


def main() -> None:
    """Print the passages that answer the question best."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("question", nargs="?", default="how are exceptions chained?")
    options.add_argument("--model", default="", help="embedding model; without it, the embedded all-MiniLM-L6-v2")
    options.add_argument("--reranker", help="cross-encoder; without it, the embedding model ranks once more")
    options.add_argument("--num-passages", type=int, help="only the first so many; all where it is not given")
    options.add_argument("--num-hits", type=int, default=20, help="how many passages the search hands on")
    given = options.parse_args()
    corpus = passages()[: given.num_passages]

    with LLM(model=given.model, runner="pooling", on_long="cut") as llm:
        print(f"Embedding {len(corpus)} passages.")
        corpus_NE = llm.embed(corpus, output="numpy", normalize=True)
        (question_E,) = llm.embed(given.question, output="numpy", normalize=True)
        hits = [corpus[at] for at in np.argsort(-(corpus_NE @ question_E))[: given.num_hits]]
        if given.reranker is None:
            best = llm.rerank(given.question, hits, top_n=3)
    if given.reranker is not None:
        with LLM(model=given.reranker, runner="pooling", on_long="cut") as reranker:
            best = reranker.rerank(given.question, hits, top_n=3)

    print(given.question)
    for rank, result in enumerate(best, 1):
        print(f"{rank}. {result.score:.4f} (hit {result.index + 1}) {result.document[:SHOWN_CHARS]} ...")


if __name__ == "__main__":
    main()
