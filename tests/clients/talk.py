"""Talks to a server through clients as they come; runs in the environment of `record.py`.

    echo '["print(1)"]' | python talk.py http://127.0.0.1:8000

Runs the examples that it reads, a JSON list, and takes its steps. Before each of them the server is asked for
`/step/NAME`, so that what was sent can be told apart. Prints one JSON object: what each step got, vectors as
`{"vectors": [[...], ...]}` and rankings as `{"ranking": [[index, score], ...]}`.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

TEXTS = ["Rainwater dissolves limestone.", "The train was late,\nand then it was cancelled."]
QUERY = "What dissolves limestone?"
MODEL = "text-embedding-3-small"
KEY = "any"
ADDRESS = "http://127.0.0.1:8000"

STEPS: dict[str, Callable[[str], dict[str, Any]]] = {}


def step(function: Callable[[str], dict[str, Any]]) -> Callable[[str], dict[str, Any]]:
    """One use of one client, which gets the address of the server."""
    STEPS[function.__name__] = function
    return function


def vectors(rows: Any) -> dict[str, Any]:
    return {"vectors": [[float(value) for value in row] for row in rows]}


def ranking(pairs: Any) -> dict[str, Any]:
    return {"ranking": [[int(index), float(score)] for index, score in pairs]}


@step
def langchain_cohere_documents(url: str) -> dict[str, Any]:
    from langchain_cohere import CohereEmbeddings

    return vectors(CohereEmbeddings(cohere_api_key=KEY, base_url=url, model=MODEL).embed_documents(TEXTS))


@step
def langchain_cohere_query(url: str) -> dict[str, Any]:
    from langchain_cohere import CohereEmbeddings

    return vectors([CohereEmbeddings(cohere_api_key=KEY, base_url=url, model=MODEL).embed_query(QUERY)])


@step
def langchain_cohere_rerank(url: str) -> dict[str, Any]:
    from langchain_cohere import CohereRerank

    found = CohereRerank(cohere_api_key=KEY, base_url=url, model=MODEL).rerank(TEXTS, QUERY)
    return ranking((one["index"], one["relevance_score"]) for one in found)


def _hugging_face(url: str) -> Any:
    from huggingface_hub import InferenceClient
    from langchain_huggingface import HuggingFaceEndpointEmbeddings

    embeddings = HuggingFaceEndpointEmbeddings(model=MODEL, huggingfacehub_api_token=KEY)
    embeddings.client = InferenceClient(model=url, token=KEY)
    return embeddings


@step
def langchain_huggingface_documents(url: str) -> dict[str, Any]:
    return vectors(_hugging_face(url).embed_documents(TEXTS))


@step
def langchain_huggingface_query(url: str) -> dict[str, Any]:
    return vectors([_hugging_face(url).embed_query(QUERY)])


def _voyage(url: str) -> Any:
    import voyageai

    return voyageai.Client(api_key=KEY, base_url=f"{url}/v1")


@step
def voyage_embed(url: str) -> dict[str, Any]:
    return vectors(_voyage(url).embed(TEXTS, model=MODEL, input_type="document").embeddings)


@step
def voyage_embed_bits(url: str) -> dict[str, Any]:
    return vectors(_voyage(url).embed(TEXTS, model=MODEL, output_dtype="ubinary").embeddings)


@step
def voyage_contextualized(url: str) -> dict[str, Any]:
    found = _voyage(url).contextualized_embed([TEXTS], model=MODEL, input_type="document").results
    return vectors(found[0].embeddings)


@step
def voyage_rerank(url: str) -> dict[str, Any]:
    found = _voyage(url).rerank(QUERY, TEXTS, model=MODEL, top_k=2).results
    return ranking((one.index, one.relevance_score) for one in found)


@step
def infinity_embed(url: str) -> dict[str, Any]:
    from infinity_client import Client
    from infinity_client.api.default import embeddings
    from infinity_client.models import OpenAIEmbeddingInputText

    found = embeddings.sync(client=Client(base_url=url), body=OpenAIEmbeddingInputText(input_=TEXTS))
    return vectors(one.embedding for one in found.data)


@step
def infinity_rerank(url: str) -> dict[str, Any]:
    from infinity_client import Client
    from infinity_client.api.default import rerank
    from infinity_client.models import RerankInput

    found = rerank.sync(client=Client(base_url=url), body=RerankInput(query=QUERY, documents=TEXTS))
    return ranking((one.index, one.relevance_score) for one in found.results)


def _mixedbread(url: str) -> Any:
    from mixedbread import Mixedbread

    return Mixedbread(api_key=KEY, base_url=f"{url}/mixedbread")


@step
def mixedbread_embed(url: str) -> dict[str, Any]:
    return vectors(one.embedding for one in _mixedbread(url).embed(model=MODEL, input=TEXTS, normalized=True).data)


@step
def mixedbread_rerank(url: str) -> dict[str, Any]:
    found = _mixedbread(url).rerank(model=MODEL, query=QUERY, input=TEXTS, top_k=2).data
    return ranking((one.index, one.score) for one in found)


def _litellm_embed(model: str, base: str) -> dict[str, Any]:
    import litellm

    found = litellm.embedding(model=f"{model}/{MODEL}", input=TEXTS, api_base=base, api_key=KEY)
    return vectors(one["embedding"] for one in found.data)


def _litellm_rerank(model: str, base: str) -> dict[str, Any]:
    import litellm

    how = {"query": QUERY, "documents": TEXTS, "top_n": 2, "api_base": base, "api_key": KEY}
    found = litellm.rerank(model=f"{model}/{MODEL}", **how)
    return ranking((one["index"], one["relevance_score"]) for one in found.results)


@step
def litellm_openai_embed(url: str) -> dict[str, Any]:
    return _litellm_embed("openai", f"{url}/v1")


@step
def litellm_vllm_embed(url: str) -> dict[str, Any]:
    return _litellm_embed("hosted_vllm", f"{url}/v1")


@step
def litellm_vllm_rerank(url: str) -> dict[str, Any]:
    return _litellm_rerank("hosted_vllm", url)


@step
def litellm_infinity_embed(url: str) -> dict[str, Any]:
    return _litellm_embed("infinity", url)


@step
def litellm_jina_embed(url: str) -> dict[str, Any]:
    return _litellm_embed("jina_ai", f"{url}/jina/v1")


@step
def litellm_jina_rerank(url: str) -> dict[str, Any]:
    return _litellm_rerank("jina_ai", f"{url}/jina")


@step
def litellm_voyage_embed(url: str) -> dict[str, Any]:
    return _litellm_embed("voyage", f"{url}/voyage/v1/embeddings")


@step
def litellm_voyage_rerank(url: str) -> dict[str, Any]:
    return _litellm_rerank("voyage", f"{url}/voyage/v1")


@step
def litellm_cohere_embed(url: str) -> dict[str, Any]:
    return _litellm_embed("cohere", f"{url}/v2/embed")


@step
def litellm_cohere_rerank(url: str) -> dict[str, Any]:
    return _litellm_rerank("cohere", url)


@step
def litellm_ollama_embed(url: str) -> dict[str, Any]:
    return _litellm_embed("ollama", url)


@step
def litellm_huggingface_rerank(url: str) -> dict[str, Any]:
    return _litellm_rerank("huggingface", f"{url}/tei")


def main() -> None:
    """Take all steps."""
    os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
    url, examples = sys.argv[1], json.load(sys.stdin)
    urllib.request.urlopen(f"{url}/step/examples").close()
    for example in examples:
        assert ADDRESS in example
        exec(example.replace(ADDRESS, url), {})
    got = {}
    for name, work in STEPS.items():
        urllib.request.urlopen(f"{url}/step/{name}").close()
        got[name] = work(url)
    json.dump(got, sys.stdout)


if __name__ == "__main__":
    main()
