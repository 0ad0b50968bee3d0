"""Labels of texts, and of pairs for a model that reads pairs (natural language inference).

python examples/classify_offline.py --model FOLDER
"""

from __future__ import annotations

import argparse

from cenote import LLM, Pair

PROMPTS = ["What a lovely afternoon.", "The train was late again."]
PREMISE, HYPOTHESIS = "The cat sleeps on the sofa.", "An animal is resting."


def main() -> None:
    """Print the probability of each label, the likeliest label, and the raw values of a pair."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", required=True, help="folder or hub id of a sequence classifier")
    model = options.parse_args().model

    with LLM(model=model, runner="pooling") as llm:
        outputs = llm.classify(PROMPTS)
        (pair,) = llm.classify(Pair(PREMISE, HYPOTHESIS), use_activation=False)

    for prompt, output in zip(PROMPTS, outputs, strict=True):
        probs = [round(value, 4) for value in output.outputs.probs]
        print(f"{prompt!r}: {output.outputs.label}, of {output.outputs.num_classes} labels: {probs}")
    print(f"{PREMISE!r} and {HYPOTHESIS!r}: logits {[round(value, 4) for value in pair.outputs.probs]}")


if __name__ == "__main__":
    main()
