"""One method for every task: `LLM.encode` gives tensors, `pooling_task` says of what.

python examples/encode_offline.py [--model FOLDER]
"""

from __future__ import annotations

import argparse

from cenote import LLM

PROMPTS = ["A cenote is a natural pit.", "Its water is fresh."]


def main() -> None:
    """Read the model as each of its tasks, and print what comes out for each prompt."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="", help="folder or hub id; without it, the embedded all-MiniLM-L6-v2")
    model = options.parse_args().model

    with LLM(model=model, runner="pooling") as llm:
        for task in llm.get_supported_tasks():
            print(task)
            for prompt, output in zip(PROMPTS, llm.encode(PROMPTS, pooling_task=task), strict=True):
                data = output.outputs.data  # [E] for one row per text, [T, E] for one row per token
                print(f"  {prompt!r}: {list(data.shape)} for {len(output.prompt_token_ids)} tokens")


if __name__ == "__main__":
    main()
