"""A server on a free port, asked with httpx and with the openai client, then stopped.

    python examples/serve_and_ask.py [--model FOLDER]

Needs `pip install 'cenote[server,cli,demo]' httpx openai`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import openai

TEXTS = ["Rainwater dissolves limestone.", "The roof of the cave falls in."]


@contextmanager
def served(model: str) -> Iterator[str]:
    """Run `cenote serve` as long as the block lasts; yields its address."""
    command = ["cenote", "serve", *([model] if model else []), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            ready = re.search(r"http://\S+", server.stdout.readline())  # one line, once it takes requests
            if ready is None:
                raise SystemExit("The server did not start; its log says why.")
            yield ready.group()
        finally:
            server.terminate()


def main() -> None:
    """Ask for the same vectors in two ways."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="", help="folder or hub id; without it, the embedded all-MiniLM-L6-v2")
    model = options.parse_args().model

    with served(model) as url:
        answer = httpx.post(f"{url}/v1/embeddings", json={"input": TEXTS}, timeout=60).raise_for_status().json()
        print(f"httpx: {len(answer['data'])} vectors by {answer['model']}, {answer['usage']['total_tokens']} tokens")

        with openai.OpenAI(base_url=f"{url}/v1", api_key="none is set") as client:
            (name,) = [served.id for served in client.models.list()]
            vectors = client.embeddings.create(model=name, input=TEXTS)
        print(f"openai: {len(vectors.data)} vectors of {len(vectors.data[0].embedding)} numbers")


if __name__ == "__main__":
    main()
