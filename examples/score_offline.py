"""How well texts fit a query: scores in the order of the texts, then the same as a ranking.

    python examples/score_offline.py [--model FOLDER]

A cross-encoder reads query and text together; any other model is compared by the vectors of both.
"""

from __future__ import annotations

import argparse

from cenote import LLM

QUERY = "Where does the river go?"
DOCUMENTS = [
    "The orchestra tunes its strings.",
    "It sinks into the limestone and flows on underground.",
    "The river is cold.",
]


def main() -> None:
    """Score one query against all documents, then rank them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="", help="folder or hub id; without it, the embedded all-MiniLM-L6-v2")
    model = options.parse_args().model

    with LLM(model=model, runner="pooling") as llm:
        outputs = llm.score(QUERY, DOCUMENTS)
        best = llm.rerank(QUERY, DOCUMENTS, top_n=2)

    for document, output in zip(DOCUMENTS, outputs, strict=True):
        print(f"{output.outputs.score:+.4f}  {document}")
    print("The best two:")
    for rank, result in enumerate(best, 1):
        print(f"{rank}. document {result.index}, {result.score:+.4f}: {result.document}")


if __name__ == "__main__":
    main()
