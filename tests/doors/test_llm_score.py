"""Scores and rankings through the offline API: cross-encoders, bi-encoders, late interaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from cenote import LLM, AsyncLLM, Pair, PoolingParams
from cenote.errors import BadInput, CheckpointError, UnsupportedTask
from cenote.uses.similarity import SIMILARITIES
from support.classifiers import Reference, changed, cross_encoder, louder, predictions
from support.fixtures import Tiny, TinySentence
from support.parity import REFERENCE_LIMIT
from support.references import EXACT, Float32, worst_error
from support.texts import paragraphs, short_texts

CUT = {"truncate_prompt_tokens": -1}
QUERY = "What is the truth value of an object?"
DOCUMENTS = [text for text in short_texts(60) if len(text) < 90][:30]
CrossEncoderFolder = Callable[..., Path]


def scores(llm: LLM, a: Any, b: Any, **more: Any) -> list[float]:
    return [out.outputs.score for out in llm.score(a, b, use_tqdm=False, **{"tokenization_kwargs": CUT, **more})]


@pytest.fixture
def crossed(tiny: Tiny) -> CrossEncoderFolder:
    def make(model_type: str = "bert", **more: Any) -> Path:
        return tiny(model_type, head="sequence_classification", num_labels=1, **more)

    return make


# Cross-encoders.


@pytest.mark.parametrize("model_type", ["bert", "xlm-roberta", "distilbert", "mpnet", "electra", "qwen3", "gemma"])
def test_a_cross_encoder_scores_and_ranks_as_the_reference(crossed: CrossEncoderFolder, model_type: str) -> None:
    folder = crossed(model_type)
    documents = [*DOCUMENTS, DOCUMENTS[3], *paragraphs(2)]
    expected = predictions(folder, [Pair(QUERY, document) for document in documents])
    ranked = cross_encoder(folder).rank(QUERY, documents, batch_size=1, show_progress_bar=False)
    with LLM(str(folder)) as llm:
        assert worst_error(scores(llm, QUERY, documents), expected) <= REFERENCE_LIMIT
        results = llm.rerank(QUERY, documents, use_tqdm=False, tokenization_kwargs=CUT)
    assert [result.index for result in results] == [entry["corpus_id"] for entry in ranked]
    assert worst_error([r.score for r in results], [entry["score"] for entry in ranked]) <= REFERENCE_LIMIT
    assert [result.document for result in results] == [documents[result.index] for result in results]


def test_a_score_is_the_class_of_its_pair_to_the_bit(crossed: CrossEncoderFolder) -> None:
    pairs = [Pair(QUERY, document) for document in DOCUMENTS]
    with LLM(str(crossed())) as llm:
        classes = [out.outputs.probs[0] for out in llm.classify(pairs, use_tqdm=False)]
        assert scores(llm, QUERY, DOCUMENTS) == classes
        assert scores(llm, [QUERY] * len(DOCUMENTS), DOCUMENTS) == classes
        raw = [out.outputs.probs[0] for out in llm.classify(pairs, use_tqdm=False, use_activation=False)]
        assert scores(llm, QUERY, DOCUMENTS, use_activation=False) == raw
        assert scores(llm, QUERY, DOCUMENTS, pooling_params=PoolingParams(use_activation=False)) == raw
        doubled = scores(llm, QUERY, [*DOCUMENTS, *DOCUMENTS])
        assert doubled[:30] == doubled[30:]


def test_without_segments_a_score_is_the_class_of_the_joined_text(crossed: CrossEncoderFolder) -> None:
    folder = crossed("roberta")
    reference = Reference(folder)
    with LLM(str(folder)) as llm:
        (out,) = llm.score(QUERY, DOCUMENTS[0], use_tqdm=False)
        (joined,) = llm.classify([out.prompt_token_ids], use_tqdm=False)
    assert out.prompt_token_ids == reference.ids(Pair(QUERY, DOCUMENTS[0]))
    assert joined.outputs.probs == [out.outputs.score]


def test_logits_rank_what_the_sigmoid_rounds_together(crossed: CrossEncoderFolder, tmp_path: Path) -> None:
    folder = louder(crossed(), tmp_path / "loud", 400)
    documents = [*DOCUMENTS, DOCUMENTS[4], DOCUMENTS[4]]
    logits = np.array([Reference(folder).logits(Pair(QUERY, d))[0] for d in documents])
    with LLM(str(folder)) as llm:
        results = llm.rerank(QUERY, documents, use_tqdm=False, tokenization_kwargs=CUT)
    shown = [result.score for result in results]
    assert shown.count(1.0) > 5
    assert len({logits[result.index] for result in results if result.score == 1.0}) > 5
    assert [result.index for result in results] == np.argsort(-logits, kind="stable").tolist()
    order = [result.index for result in results]
    assert order[order.index(4) :][:3] == [4, 30, 31]


def test_a_negative_sigma_turns_the_ranking(crossed: CrossEncoderFolder) -> None:
    with LLM(str(crossed()), pooler_config={"logit_sigma": -1.0}) as llm:
        shown = [result.score for result in llm.rerank(QUERY, DOCUMENTS, use_tqdm=False, tokenization_kwargs=CUT)]
    assert shown == sorted(shown, reverse=True)


def test_an_activation_that_does_not_grow_ranks_what_it_shows(crossed: CrossEncoderFolder, tmp_path: Path) -> None:
    name = "torch.nn.modules.activation.GELU"
    folder = changed(louder(crossed(), tmp_path / "loud", 3), tmp_path / "m", sbert_ce_default_activation_function=name)
    with LLM(str(folder)) as llm:
        results = llm.rerank(QUERY, DOCUMENTS, use_tqdm=False, tokenization_kwargs=CUT)
    shown = [result.score for result in results]
    assert shown == sorted(shown, reverse=True)
    ranked = cross_encoder(folder).rank(QUERY, DOCUMENTS, batch_size=1, show_progress_bar=False)
    assert [result.index for result in results] == [entry["corpus_id"] for entry in ranked]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_keeps_the_ranking(crossed: CrossEncoderFolder, dtype: str) -> None:
    folder = crossed("bert")
    with LLM(str(folder)) as llm:
        exact = np.array(scores(llm, QUERY, DOCUMENTS, use_activation=False))
    with LLM(str(folder), dtype=dtype) as llm:
        half = np.array(scores(llm, QUERY, DOCUMENTS, use_activation=False))
        order = [result.index for result in llm.rerank(QUERY, DOCUMENTS, use_tqdm=False, tokenization_kwargs=CUT)]
    assert order == np.argsort(-half, kind="stable").tolist()
    clear = exact[:, None] - exact > 0.1 * np.ptp(exact)
    assert clear.sum() > 300
    assert (half[:, None] > half)[clear].all()


def test_options_of_a_ranking(crossed: CrossEncoderFolder) -> None:
    with LLM(str(crossed())) as llm:

        def rank(documents: Any = DOCUMENTS, **more: Any) -> list[int]:
            return [r.index for r in llm.rerank(QUERY, documents, use_tqdm=False, tokenization_kwargs=CUT, **more)]

        whole = llm.rerank(QUERY, DOCUMENTS, use_tqdm=False)
        assert rank(top_n=4) == [result.index for result in whole[:4]]
        assert rank(top_n=0) == rank(top_n=99) == [result.index for result in whole]
        middle = whole[10].score
        assert rank(min_score=middle) == [result.index for result in whole[:11]]
        assert rank(min_score=middle, top_n=2) == [result.index for result in whole[:2]]
        assert rank(min_score=2.0) == []
        assert rank(tuple(DOCUMENTS[:3])) == [r.index for r in llm.rerank(QUERY, DOCUMENTS[:3], use_tqdm=False)]
        (one,) = llm.rerank(QUERY, "a single document", use_tqdm=False)
        assert (one.index, one.document) == (0, "a single document")
        for top_n in (-1, 1.5, True, "2"):
            with pytest.raises(BadInput, match="top_n="):
                rank(top_n=top_n)
        for query in ([QUERY], [QUERY] * len(DOCUMENTS), None):
            with pytest.raises(BadInput, match="The query is of type"):
                llm.rerank(query, DOCUMENTS, use_tqdm=False)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="dimensions was given"):
            scores(llm, QUERY, DOCUMENTS, pooling_params=PoolingParams(dimensions=4))


@pytest.mark.parametrize("model_type", ["bert", "roberta", "xlm-roberta"])
def test_texts_are_cut_by_their_tokens(crossed: CrossEncoderFolder, model_type: str) -> None:
    folder = crossed(model_type)
    tokenizer = Reference(folder).tokenizer
    texts = [*paragraphs(3), "naïve café ÜNÏ 東京 🙂 " * 5, "", "a"]

    def offsets_of(text: str) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)[
            "offset_mapping"
        ]
        return found

    def cut(text: str, most: int) -> str:
        while len(offsets := offsets_of(text)) > most:
            text = text[: min(offsets[most - 1][1], offsets[most][0])]
        return text

    # One token more than the seven of below.
    texts.append(cut(texts[1], 8))
    assert len(offsets_of(texts[-1])) == 8
    with LLM(str(folder)) as llm:
        for of_query, of_document in ((0, 7), (5, 0), (5, 7), (1, 1), (40, 13)):
            options = {"max_tokens_per_query": of_query, "max_tokens_per_doc": of_document}
            query = cut(texts[0], of_query) if of_query else texts[0]
            documents = [cut(text, of_document) if of_document else text for text in texts]
            whole = scores(llm, texts[0], texts, **options)
            assert whole == scores(llm, query, documents)
            assert whole == scores(llm, texts[0], texts, pooling_params=PoolingParams(extra_kwargs=options))
            assert of_document == 0 or whole != scores(llm, texts[0], texts)
        out = llm.score(texts[0], texts[1], use_tqdm=False, max_tokens_per_query=4, max_tokens_per_doc=6)[0]
        assert len(out.prompt_token_ids) == 10 + tokenizer.num_special_tokens_to_add(True)
        for name in ("max_tokens_per_query", "max_tokens_per_doc"):
            for bad in (-1, "3", 2.0):
                with pytest.raises(BadInput, match=f"{name} must be a non-negative integer"):
                    scores(llm, "a", "b", **{name: bad})
            with pytest.raises(BadInput, match=rf"{name} \(70\) must be less than max_model_len \(70\)"):
                scores(llm, "a", "b", **{name: 70})
        with pytest.raises(BadInput, match="Input 1 has the lone surrogate"):
            scores(llm, "a", ["b", "\ud800"], max_tokens_per_doc=3)


def test_templates_join_a_pair(crossed: CrossEncoderFolder) -> None:
    template = (
        "{% for m in messages if m.role == 'query' %}Q: {{ m.content }}{% endfor %}\n"
        "{%- if instruction %} ({{ instruction }}){% endif %} D: {{ messages[1]['content'] }}"
    )
    with LLM(str(crossed())) as llm:

        def alone(texts: list[str]) -> list[float]:
            return [out.outputs.probs[0] for out in llm.classify(texts, use_tqdm=False, tokenization_kwargs=CUT)]

        joined = [f"Q: {QUERY} D: {document}" for document in DOCUMENTS]
        assert scores(llm, QUERY, DOCUMENTS, chat_template=template) == alone(joined)
        told = PoolingParams(extra_kwargs={"chat_template_kwargs": {"instruction": "be <kind>"}, "cache_salt": "x"})
        instructed = [f"Q: {QUERY} (be <kind>) D: {document}" for document in DOCUMENTS]
        assert scores(llm, QUERY, DOCUMENTS, chat_template=template, pooling_params=told) == alone(instructed)
        as_json = scores(llm, "<é>", "b", chat_template="{{ messages | tojson }}")
        assert as_json == alone(['[{"role": "query", "content": "<é>"}, {"role": "document", "content": "b"}]'])
        for name in ("chat_template", "tools", "tokenize"):
            bad = PoolingParams(extra_kwargs={"chat_template_kwargs": {name: 1}})
            with pytest.raises(BadInput, match=rf"chat_template_kwargs contains reserved keys \['{name}'\]"):
                scores(llm, QUERY, "b", chat_template=template, pooling_params=bad)
        for broken, message in (
            ("{% if %}", "cannot be read"),
            ("{{ raise_exception('no') }}", "fails on its messages: TemplateError: no"),
            ("{{ ''.__class__.__mro__ }}", "fails on its messages: SecurityError"),
            ("{{ messages.append(1) }}", "fails on its messages: SecurityError"),
        ):
            with pytest.raises(BadInput, match=message):
                scores(llm, QUERY, "b", chat_template=broken)
        with pytest.raises(BadInput, match="Scoring has no option 'temperature'"):
            scores(llm, QUERY, "b", temperature=1)


# Shapes and refusals.


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (["a", "b"], ["c"], "Input lengths must be either 1:1, 1:N or N:N, not 2:1"),
        (["a", "b"], [], "Input lengths must be either 1:1, 1:N or N:N"),
        ([], [], "At least one text element must be given"),
        ([], ["a"], "At least one text element must be given"),
        ("a", [], "At least one text_pair element must be given"),
        ({"content": []}, [], "MultiModalParam is not supported"),
        (["a", "b"], [{"content": []}], "MultiModalParam is not supported"),
        (["a", 3], ["b"], "Element 1 of data_1 is of type int"),
        ("a", 3, "data_2 is of type int"),
        (Pair("a", "b"), "c", "data_1 is of type Pair"),
    ],
)
def test_bad_pairs_are_named_in_the_order_of_the_reference(
    crossed: CrossEncoderFolder, a: Any, b: Any, message: str
) -> None:
    with LLM(str(crossed())) as llm, pytest.raises(BadInput, match=message):
        llm.score(a, b, use_tqdm=False)


def test_who_cannot_score_says_so(tiny: Tiny, crossed: CrossEncoderFolder) -> None:
    with (
        LLM(str(tiny("bert", head="sequence_classification", num_labels=3))) as llm,
        pytest.raises(UnsupportedTask, match=r"has 3 labels. Scoring API is only enabled for num_labels == 1\."),
    ):
        llm.score("a", "b", use_tqdm=False)
    with (
        LLM(str(tiny("bert", head="token_classification"))) as llm,
        pytest.raises(UnsupportedTask, match="This model does not support the Scoring API"),
    ):
        llm.score("a", "b", use_tqdm=False)
    with LLM(str(crossed())) as llm:
        with pytest.raises(UnsupportedTask, match="is no bi-encoder"):
            llm.score("a", "b", use_tqdm=False, score_type="bi-encoder")
        with pytest.raises(BadInput, match="score_type='both'"):
            llm.score("a", "b", use_tqdm=False, score_type="both")
        with pytest.raises(BadInput, match="one object for all pairs"):
            llm.score("a", "b", use_tqdm=False, pooling_params=[PoolingParams()])


# Bi-encoders and late interaction.


def reference(folder: Path) -> SentenceTransformer:
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True, model_kwargs=dict(EXACT))
    return model.float().eval()


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("similarity", [None, *SIMILARITIES])
def test_a_bi_encoder_scores_by_its_own_similarity(
    tiny_sentence: TinySentence, similarity: str | None, normalize: bool
) -> None:
    folder = tiny_sentence(similarity=similarity, normalize=normalize, pooling="mean")
    model = reference(folder)
    a, b = (model.encode(texts, batch_size=1, show_progress_bar=False) for texts in ([QUERY], DOCUMENTS))
    one_many = model.similarity_pairwise(np.repeat(a, len(b), axis=0), b).numpy()
    pairwise = model.similarity_pairwise(b[:10], b[10:20]).numpy()
    with LLM(str(folder)) as llm:
        assert llm.recipe.similarity == (similarity or "cosine")
        assert worst_error(scores(llm, QUERY, DOCUMENTS), one_many) <= 2 * REFERENCE_LIMIT
        assert worst_error(scores(llm, DOCUMENTS[:10], DOCUMENTS[10:20]), pairwise) <= 2 * REFERENCE_LIMIT
        best = [result.index for result in llm.rerank(QUERY, DOCUMENTS, use_tqdm=False)]
        assert best == np.argsort(-np.array(scores(llm, QUERY, DOCUMENTS)), kind="stable").tolist()


def test_a_similarity_that_is_not_known_stops_the_start(tiny_sentence: TinySentence, tmp_path: Path) -> None:
    file = "config_sentence_transformers.json"
    folder = changed(tiny_sentence(), tmp_path / "m", file, similarity_fn_name="angle")
    with pytest.raises(CheckpointError, match="similarity_fn_name='angle'"):
        LLM(str(folder))


def test_texts_of_a_bi_encoder_run_once(tiny_sentence: TinySentence) -> None:
    documents = [*DOCUMENTS[:5], DOCUMENTS[0]]
    with LLM(str(tiny_sentence(normalize=True))) as llm:
        tokens = {text: len(llm.embed(text, use_tqdm=False)[0].prompt_token_ids) for text in {QUERY, *documents}}
        before = llm.engine.snapshot().tokens
        outs = llm.score(QUERY, documents, use_tqdm=False)
        assert llm.engine.snapshot().tokens - before == sum(tokens.values())
        query, document = (llm.embed(text, use_tqdm=False)[0].prompt_token_ids for text in (QUERY, documents[1]))
        assert outs[1].prompt_token_ids == [*query, llm.engine.tokenizer.pad_id, *document]
        first, second = outs[0].request_id.split("_"), outs[1].request_id.split("_")
        assert first[0] == second[0]
        assert int(second[1]) == int(first[1]) + 1
        assert repr(outs[1]) == (
            f"ScoringRequestOutput(request_id='{outs[1].request_id}', "
            f"outputs=ScoringOutput(score={outs[1].outputs.score}), "
            f"prompt_token_ids={outs[1].prompt_token_ids}, num_cached_tokens=0, finished=True)"
        )
        with pytest.raises(BadInput, match=r"chat_template was given, but .* scores as a bi-encoder"):
            scores(llm, "a", "b", chat_template="x")


def max_sim_64(query: Float32, document: Float32) -> float:
    return sum(max(float(q @ d) for d in document.astype(np.float64)) for q in query.astype(np.float64))


@pytest.mark.parametrize("normalize", [True, False])
def test_late_interaction_is_the_sum_of_the_best_matches(tiny_sentence: TinySentence, normalize: bool) -> None:
    folder = tiny_sentence(normalize=normalize, pooling="mean")
    documents = DOCUMENTS[:6]
    model = reference(folder)
    rows = model.encode([QUERY, *documents], batch_size=1, output_value="token_embeddings", show_progress_bar=False)
    tokens = [row.numpy() for row in rows]
    if normalize:
        tokens = [row / np.linalg.norm(row, axis=1, keepdims=True) for row in tokens]
    expected = [max_sim_64(tokens[0], document) for document in tokens[1:]]
    with LLM(str(folder)) as llm:
        found = scores(llm, QUERY, documents, score_type="late-interaction")
        assert worst_error(found, expected) <= REFERENCE_LIMIT
        bare = scores(llm, QUERY, documents, score_type="late-interaction",
                      tokenization_kwargs={"add_special_tokens": False})  # fmt: skip
        assert worst_error(bare, expected) > REFERENCE_LIMIT
        ranked = llm.rerank(QUERY, documents, use_tqdm=False, score_type="late-interaction")
        assert [result.index for result in ranked] == np.argsort(-np.array(found), kind="stable").tolist()


def test_dimensions_and_activation_of_a_bi_encoder(tiny_sentence: TinySentence, tmp_path: Path) -> None:
    source = tiny_sentence(normalize=True, similarity="dot", pooling="mean")
    folder = changed(source, tmp_path / "m", is_matryoshka=True)
    options: dict[str, Any] = {"batch_size": 1, "show_progress_bar": False, "output_value": "token_embeddings"}
    rows = reference(folder).encode([QUERY, *DOCUMENTS], **options)
    pooled = np.stack([row.mean(0).numpy() for row in rows])
    with LLM(str(folder)) as llm:
        few = scores(llm, QUERY, DOCUMENTS, pooling_params=PoolingParams(dimensions=9, use_activation=False))
        assert worst_error(few, pooled[1:, :9] @ pooled[0, :9]) <= 2 * REFERENCE_LIMIT
        cut = pooled[:, :9] / np.linalg.norm(pooled[:, :9], axis=1, keepdims=True)
        assert worst_error(scores(llm, QUERY, DOCUMENTS, dimensions=9), cut[1:] @ cut[0]) <= 2 * REFERENCE_LIMIT
        with pytest.raises(BadInput, match=r"in range \[1, 60\], got 61"):
            scores(llm, "a", "b", dimensions=61)


# Awaited.


def test_awaited_scores_equal_blocking_ones(crossed: CrossEncoderFolder) -> None:
    folder = str(crossed())
    pairs = [Pair(QUERY, document) for document in DOCUMENTS]

    async def run() -> tuple[Any, ...]:
        async with AsyncLLM(folder) as llm:
            return await asyncio.gather(
                llm.score(QUERY, DOCUMENTS),
                llm.rerank(QUERY, DOCUMENTS, top_n=3),
                llm.classify(pairs),
                llm.reward(pairs),
                llm.encode(pairs, pooling_task="token_classify"),
            )

    scored, ranked, classified, rewarded, tokens = asyncio.run(run())
    with LLM(folder) as llm:
        assert [out.outputs.score for out in scored] == pytest.approx(scores(llm, QUERY, DOCUMENTS), abs=2e-6)
        assert [r.index for r in ranked] == [r.index for r in llm.rerank(QUERY, DOCUMENTS, top_n=3, use_tqdm=False)]
        assert [out.outputs.probs[0] for out in classified] == [out.outputs.score for out in scored]
        logits = scores(llm, QUERY, DOCUMENTS, use_activation=False)
        assert [float(out.outputs.data) for out in rewarded] == pytest.approx(logits, abs=1e-5)
        assert [len(out.outputs.data) for out in tokens] == [len(out.prompt_token_ids) for out in scored]

    async def refused() -> None:
        async with AsyncLLM(folder) as llm:
            with pytest.raises(UnsupportedTask, match="Embedding API is not supported"):
                await llm.embed("a")
            with pytest.raises(BadInput, match="pooling_task is required"):
                await llm.encode("a")
            with pytest.raises(BadInput, match="top_n=-1"):
                await llm.rerank("a", ["b"], top_n=-1)

    asyncio.run(refused())
