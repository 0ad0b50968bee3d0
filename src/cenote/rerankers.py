"""Language models that rerank by the probability of a word: how each is recognised, its words and its prompt.

The prompts are those of the vendors' model cards, written as templates over a `query` and a `document` message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .checkpoint import Checkpoint

_CARD_LINES: Final = 60


@dataclass(frozen=True)
class Reranker:
    """One vendor's.

    Args:
        name: What its checkpoints, and those made of them, are called; matched anywhere in a name, in any case.
        model_type: Of its checkpoints.
        false_token: Word whose logit is subtracted, "" for none.
        true_token: Word whose logit is the score, "" where the checkpoint has a classifier.
        template: The prompt. Jinja over two messages, the query and the document, and `instruction`.
    """

    name: str
    model_type: str
    false_token: str
    true_token: str
    template: str


# Jinja drops one line break at the end of a template.
_QWEN3 = Reranker(
    name="Qwen3-Reranker",
    model_type="qwen3",
    false_token="no",
    true_token="yes",
    template=(
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: '
        "{{ instruction or 'Given a web search query, retrieve relevant passages that answer the query' }}\n"
        "<Query>: {{ messages[0].content }}\n<Document>: {{ messages[1].content }}<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n\n"
    ),
)
_MXBAI = Reranker(
    name="mxbai-rerank-(base|large)-v2",
    model_type="qwen2",
    false_token="0",
    true_token="1",
    template=(
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n{{ 'instruction: ' + instruction + '\n' if instruction else '' }}"
        "query: {{ messages[0].content }}\ndocument: {{ messages[1].content }}\n"
        "You are a search relevance expert who evaluates how well documents match search queries. For each "
        "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
        "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:<|im_end|>\n<|im_start|>assistant\n\n"
    ),
)
_BGE_GEMMA = Reranker(
    name="bge-reranker-v2-gemma",
    model_type="gemma",
    false_token="",
    true_token="Yes",
    template=(
        "{{ bos_token }}A: {{ messages[0].content }}\nB: {{ messages[1].content }}\n"
        '{{ instruction or "Given a query A and a passage B, determine whether the passage contains an answer to the '
        "query by providing a prediction of either 'Yes' or 'No'.\" }}"
    ),
)
# Its tokenizer starts texts with the one token that the template writes.
_NEMOTRON = Reranker(
    name="nv-rerankqa|nemotron-rerank",
    model_type="llama_bidirec",
    false_token="",
    true_token="",
    template="{{ bos_token }}question:{{ messages[0].content }} \n \n passage:{{ messages[1].content }}",
)
KNOWN: Final = (_QWEN3, _MXBAI, _BGE_GEMMA, _NEMOTRON)


def recognise(checkpoint: Checkpoint, config: Mapping[str, Any]) -> tuple[Reranker, str] | None:
    """The vendor's reranker that a checkpoint is, or was made of, and what says so.

    Looked at are, in this order, what the user or `config.json` says, the name of the checkpoint or of its folder, and
    the title and `base_model` of its model card; nothing else in the files of the older ones tells them from the
    language model they were trained from.
    """
    if config.get("is_original_qwen3_reranker"):
        return _QWEN3, "config.json: is_original_qwen3_reranker"
    # The hub's cache keeps a model in `models--VENDOR--NAME/snapshots/COMMIT`.
    folder = checkpoint.folder.resolve()
    names = (checkpoint.name.rstrip("/").rsplit("/", 1)[-1], folder.name, folder.parent.parent.name)
    card = _card(checkpoint)
    for known in (known for known in KNOWN if known.model_type == config.get("model_type")):
        if any(re.search(known.name, name, re.IGNORECASE) for name in names):
            return known, "the checkpoint's name"
        if re.search(known.name, card, re.IGNORECASE):
            return known, "README.md"
    return None


def _card(checkpoint: Checkpoint) -> str:
    """Title and `base_model` of the model card; its text may name other models."""
    path = checkpoint.path("README.md")
    if path is None:
        return ""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[:_CARD_LINES]
    title = next((line for line in lines if line.startswith("# ")), "")
    base = re.search(r"^base_model:(.*(?:\n\s*- .*)*)", "\n".join(lines), re.MULTILINE)
    return title + "\n" + (base[1] if base else "")
