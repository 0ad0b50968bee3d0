"""Raw values of a reward model: larger is better, and no activation squeezes them.

python examples/reward_offline.py --model FOLDER
"""

from __future__ import annotations

import argparse

from cenote import LLM

QUESTION = "How deep is the pit?"
ANSWERS = ["About forty metres, as divers measured.", "Yes."]


def main() -> None:
    """Print the values of each answer: one row per text, or one per token, as the model has them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", required=True, help="folder or hub id of a classifier of texts or of tokens")
    model = options.parse_args().model

    with LLM(model=model, runner="pooling") as llm:
        outputs = llm.reward([f"{QUESTION} {answer}" for answer in ANSWERS])

    for answer, output in zip(ANSWERS, outputs, strict=True):
        print(f"{answer!r}: {output.outputs.data.tolist()}")


if __name__ == "__main__":
    main()
