"""Vectors of texts, and how close they are to each other.

python examples/embed_offline.py [--model FOLDER]
"""

from __future__ import annotations

import argparse

from cenote import LLM

PROMPTS = [
    "The river vanishes into the limestone.",
    "Water disappears underground.",
    "The orchestra tunes its strings.",
]


def main() -> None:
    """Embed the prompts, print the start of each vector and the cosine of each pair."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="", help="folder or hub id; without it, the embedded all-MiniLM-L6-v2")
    model = options.parse_args().model

    with LLM(model=model, runner="pooling") as llm:
        outputs = llm.embed(PROMPTS)
        # The same as one float32 array [N, E], without any Python floats on the way.
        vectors_NE = llm.embed(PROMPTS, output="numpy", normalize=True)

    for prompt, output in zip(PROMPTS, outputs, strict=True):
        embedding = output.outputs.embedding
        print(f"{prompt!r}: {len(embedding)} numbers, from {embedding[0]:+.4f} to {embedding[-1]:+.4f}")
    print((vectors_NE @ vectors_NE.T).round(3))


if __name__ == "__main__":
    main()
