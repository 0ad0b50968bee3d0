"""Language models that rerank: rows of their head, their vendors' prompts, LogitScore of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from transformers import AutoTokenizer

from cenote import LLM, Pair
from cenote.errors import BadInput, TooLong
from support.classifiers import cross_encoder, predictions
from support.fixtures import Tiny
from support.parity import BATCH_LIMIT, REFERENCE_LIMIT
from support.references import Float32, worst_error
from support.rerankers import logits, modular, reranker
from support.texts import short_texts

QUERY = "What is the truth value?"
DOCUMENTS = ["An object is true unless it says otherwise.", "", "Ünïcode <b>&amp;</b>\n\nand  spaces ", "yes no yes"]
PAIRS = [Pair(QUERY, document) for document in DOCUMENTS]
TASK = "Given a web search query, retrieve relevant passages that answer the query"
TEMPLATE = """{%- set told = messages | selectattr("role", "eq", "system") | map(attribute="content") | first
  | default("Find it.") -%}
<|im_start|>{{ told }} Q: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
D: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}<|im_end|>
Relevant?

"""
Make = Callable[..., Path]


def qwen3(query: str, document: str, told: str = TASK) -> str:
    judge = (
        "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
        'Note that the answer can only be "yes" or "no".'
    )
    return (
        f"<|im_start|>system\n{judge}<|im_end|>\n<|im_start|>user\n<Instruct>: {told}\n<Query>: {query}\n"
        f"<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def mxbai(query: str, document: str, told: str = "") -> str:
    task = (
        "You are a search relevance expert who evaluates how well documents match search queries. For each "
        "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
        "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:"
    )
    told = f"instruction: {told}\n" if told else ""
    return (
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        f"<|im_start|>user\n{told}query: {query}\ndocument: {document}\n{task}<|im_end|>\n<|im_start|>assistant\n"
    )


def bge(query: str, document: str, told: str = "") -> str:
    told = told or (
        "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing "
        "a prediction of either 'Yes' or 'No'."
    )
    return f"<|endoftext|>A: {query}\nB: {document}\n{told}"


# What each vendor's code does: the folder, the family, the prompt, [false, true] and what `hf_overrides` say of it.
VENDORS: dict[str, tuple[str, Callable[..., str], list[str], dict[str, Any]]] = {
    "Qwen3-Reranker-0.6B": ("qwen3", qwen3, ["no", "yes"], {"is_original_qwen3_reranker": True}),
    "mxbai-rerank-base-v2": ("qwen2", mxbai, ["0", "1"], {"method": "from_2_way_softmax"}),
    "bge-reranker-v2-gemma": ("gemma", bge, ["Yes"], {"method": "no_post_processing"}),
}


def expected(folder: Path, prompts: Sequence[str], tokens: Sequence[str]) -> Float32:
    """P(true) of the softmax over the two tokens; of one token alone the sigmoid."""
    found = logits(folder, prompts, tokens).astype(np.float64)
    odds = found[:, -1] - (found[:, 0] if len(tokens) == 2 else 0)
    return np.asarray(1 / (1 + np.exp(-odds)), np.float32)


def scores(llm: LLM, query: Any, documents: Any, **more: Any) -> list[float]:
    return [out.outputs.score for out in llm.score(query, documents, use_tqdm=False, **more)]


@pytest.fixture(scope="module")
def make(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Make:
    def make(model_type: str, name: str = "m", *, tied: bool = True, longest: int = 700, **more: Any) -> Path:
        source = tiny(model_type, head="causal_lm", max_positions=longest, tie_word_embeddings=tied)
        return reranker(source, tmp_path_factory.mktemp("reranker") / name, **more)

    return make


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", VENDORS)
def test_a_vendors_model_scores_as_its_card_says(make: Make, name: str, tied: bool) -> None:
    model_type, prompt, tokens, _ = VENDORS[name]
    folder = make(model_type, name, tied=tied, bos="<|endoftext|>")
    assert ("lm_head.weight" in load_file(folder / "model.safetensors")) != tied
    with LLM(str(folder)) as llm:
        found = llm.score(QUERY, DOCUMENTS, use_tqdm=False)
        instructed = scores(llm, QUERY, DOCUMENTS[0], instruction="Be kind.")
        classes = llm.classify(PAIRS, use_tqdm=False)
        assert llm.get_supported_tasks() == ("classify", "token_classify")
        assert llm.recipe.sources["convert"] == "the checkpoint's name"
    prompts = [prompt(QUERY, document) for document in DOCUMENTS]
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert [out.prompt_token_ids for out in found] == tokenizer(prompts, add_special_tokens=False)["input_ids"]
    assert worst_error([out.outputs.score for out in found], expected(folder, prompts, tokens)) <= REFERENCE_LIMIT
    told = expected(folder, [prompt(QUERY, DOCUMENTS[0], "Be kind.")], tokens)
    assert worst_error(instructed, told) <= REFERENCE_LIMIT
    assert abs(instructed[0] - found[0].outputs.score) > 1e-4
    ours = [out.outputs.probs[0] for out in classes], [out.outputs.score for out in found]
    assert worst_error(*ours) <= BATCH_LIMIT


@pytest.mark.parametrize("name", VENDORS)
def test_overrides_of_the_reference_say_the_same(make: Make, name: str) -> None:
    model_type, prompt, tokens, how = VENDORS[name]
    folder = make(model_type, "renamed", bos="<|endoftext|>")
    kind = {"qwen3": "Qwen3", "qwen2": "Qwen2", "gemma": "Gemma"}[model_type]
    says = {"architectures": [f"{kind}ForSequenceClassification"], "classifier_from_token": tokens, **how}
    prompts = [prompt(QUERY, document) for document in DOCUMENTS]
    with LLM(str(folder), hf_overrides=says) as llm:
        assert llm.recipe.classifier is not None
        assert llm.recipe.classifier.labels == (tokens[-1],)
        template = "{{ messages[0].content }}{{ messages[1].content }}"
        split = [text.split(QUERY, 1) for text in prompts]
        ours = [scores(llm, before + QUERY, after, chat_template=template)[0] for before, after in split]
        outs = llm.score(QUERY, DOCUMENTS[0], use_tqdm=False, chat_template=template)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    # A template of the user's gets the tokenizer's special tokens, as the reference adds them.
    assert outs[0].prompt_token_ids == tokenizer(QUERY + DOCUMENTS[0])["input_ids"]
    ended = [text + "<|endoftext|>" for text in prompts]
    assert worst_error(ours, expected(folder, ended, tokens)) <= REFERENCE_LIMIT


def test_several_words_are_several_classes(make: Make) -> None:
    folder = make("llama")
    says = {"classifier_from_token": ["no", "yes", "0"], "method": "no_post_processing"}
    with LLM(str(folder), hf_overrides=says) as llm:
        (out,) = llm.classify(QUERY, use_activation=False, use_tqdm=False)
        assert llm.recipe.classifier is not None
        assert llm.recipe.classifier.labels == ("no", "yes", "0")
        assert llm.recipe.classifier.activation == "softmax"
    theirs = logits(folder, [QUERY], ["no", "yes", "0"], special=True)[0]
    assert worst_error(out.outputs.probs, theirs) <= REFERENCE_LIMIT


def test_a_template_for_pairs_makes_a_reranker_as_sentence_transformers_has_it(make: Make) -> None:
    folder = make("qwen3", template=TEMPLATE)
    theirs = predictions(folder, PAIRS)
    with LLM(str(folder)) as llm:
        assert worst_error(scores(llm, QUERY, DOCUMENTS), theirs) <= REFERENCE_LIMIT
        ranked = [result.index for result in llm.rerank(QUERY, DOCUMENTS, use_tqdm=False)]
        assert ranked == np.argsort(-theirs, kind="stable").tolist()
        told = scores(llm, QUERY, DOCUMENTS, instruction="Be kind.")
    prompted = cross_encoder(folder, prompts={"kind": "Be kind."}, default_prompt_name="kind")
    asked = [(pair.text, pair.text_pair) for pair in PAIRS]
    assert worst_error(told, prompted.predict(asked, batch_size=1, show_progress_bar=False)) <= REFERENCE_LIMIT


def test_a_template_for_conversations_alone_leaves_an_embedder(make: Make) -> None:
    folder = make(
        "qwen3", template="{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    with LLM(str(folder)) as llm:
        assert llm.get_supported_tasks() == ("embed", "token_embed")
    with LLM(str(make("qwen3", template=TEMPLATE)), convert="embed") as llm:
        assert llm.get_supported_tasks() == ("embed", "token_embed")


@pytest.mark.parametrize("false", ["no", None])
@pytest.mark.parametrize("messages", [True, False])
def test_folders_with_a_logit_score(make: Make, messages: bool, false: str | None) -> None:
    folder = make("qwen2", template=TEMPLATE if messages else None)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = tokenizer.convert_tokens_to_ids(["yes", false or "no"])
    prompts = {"judge": "Judge it."} if messages else None
    modular(folder, true=ids[0], false=ids[1] if false else None, messages=messages, prompts=prompts)
    with LLM(str(folder)) as llm:
        assert worst_error(scores(llm, QUERY, DOCUMENTS), predictions(folder, PAIRS)) <= REFERENCE_LIMIT
        assert llm.recipe.sources["labels"] == "1_LogitScore/config.json"


def test_a_classifier_made_of_a_reranker_keeps_the_vendors_prompt(tiny: Tiny, make: Make, tmp_path: Path) -> None:
    source = tiny("qwen3", head="sequence_classification", num_labels=1, max_positions=700)
    folder = reranker(source, tmp_path / "Qwen3-Reranker-0.6B-seq-cls")
    with LLM(str(folder)) as llm:
        found = llm.score(QUERY, DOCUMENTS, use_tqdm=False)
        written = scores(
            llm,
            qwen3(QUERY, "\0").split("<Document>")[0],
            "<Document>" + qwen3("", DOCUMENTS[0]).split("<Document>")[1],
        )
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    prompts = [qwen3(QUERY, document) for document in DOCUMENTS]
    assert [out.prompt_token_ids for out in found] == tokenizer(prompts, add_special_tokens=False)["input_ids"]
    # Who writes the prompt into the texts, as the model's card has it, gets it once.
    assert worst_error(written, [found[0].outputs.score]) <= BATCH_LIMIT


@pytest.mark.parametrize(
    "card", ["---\nbase_model:\n- Qwen/Qwen3-Reranker-4B\n---\n# Mine\n", "# Qwen3-Reranker-0.6B\n\nText.\n"]
)
def test_a_model_card_says_what_a_renamed_folder_is(make: Make, card: str) -> None:
    folder = make("qwen3", "mine")
    with LLM(str(folder)) as llm:
        assert llm.get_supported_tasks() == ("embed", "token_embed")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Another\nsee Qwen3-Reranker-0.6B\n")
    with LLM(str(folder)) as llm:
        assert llm.get_supported_tasks() == ("embed", "token_embed")
    (folder / "README.md").write_text(card)
    with LLM(str(folder)) as llm:
        assert llm.get_supported_tasks() == ("classify", "token_classify")
        assert llm.recipe.sources["tokens"] == "README.md"


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_document_is_cut_and_never_the_prompt_after_it(make: Make, side: str) -> None:
    folder = make("qwen3", template=TEMPLATE, longest=90)
    long = " ".join(short_texts(20))
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    before = tokenizer(f"<|im_start|>Find it. Q: {QUERY}\nD:", add_special_tokens=False)["input_ids"]
    body = tokenizer(f" {long}", add_special_tokens=False)["input_ids"]
    after = tokenizer("<|im_end|>\nRelevant?\n", add_special_tokens=False)["input_ids"]
    room = 90 - len(before) - len(after)
    kept = body[:room] if side == "right" else body[-room:]
    cut = {"truncate_prompt_tokens": -1, "truncation_side": side}
    with LLM(str(folder)) as llm:
        (out,) = llm.score(QUERY, long, use_tqdm=False, tokenization_kwargs=cut)
        assert out.prompt_token_ids == [*before, *kept, *after]
        with pytest.raises(TooLong, match=r"Input 0 has .* tokens"):
            llm.score(QUERY, long, use_tqdm=False)
        with pytest.raises(TooLong, match="Input 0 cannot be cut to 9 tokens"):
            llm.score(QUERY, long, use_tqdm=False, tokenization_kwargs={"truncate_prompt_tokens": 9})
    if side == "right":
        assert worst_error([out.outputs.score], predictions(folder, [Pair(QUERY, long)])) <= REFERENCE_LIMIT


def test_an_instruction_without_a_place_is_refused(make: Make, tiny: Tiny) -> None:
    with LLM(str(tiny("bert", head="sequence_classification", num_labels=1))) as llm:
        with pytest.raises(BadInput, match="has no template that would show it"):
            llm.score("a", "b", use_tqdm=False, instruction="Be kind.")
        with pytest.raises(BadInput, match="the template of this model has no place for it"):
            llm.score("a", "b", use_tqdm=False, instruction="x", chat_template="{{ messages[0].content }}")
    with LLM() as llm, pytest.raises(BadInput, match=r"instruction was given, but .* scores as a bi-encoder"):
        llm.score("a", "b", use_tqdm=False, instruction="Be kind.")


def test_prompts_that_begin_alike_share_what_they_begin_with(make: Make) -> None:
    folder = make("qwen3", "Qwen3-Reranker-0.6B", bos="<|endoftext|>")
    documents = [*DOCUMENTS, *short_texts(8)]
    found, shared = [], []
    for share in (True, False):
        with LLM(str(folder), share_prefixes=share) as llm:
            found.append(scores(llm, QUERY, documents))
            shared.append(llm.engine.snapshot().shared_tokens)
    assert worst_error(*found) <= BATCH_LIMIT / 2
    assert shared[0] > 100
    assert shared[1] == 0
    prompts = [qwen3(QUERY, document) for document in documents]
    assert worst_error(found[0], expected(folder, prompts, ["no", "yes"])) <= REFERENCE_LIMIT
