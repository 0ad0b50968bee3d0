"""Small tokenizers of the three kinds, trained on the corpus once per process, as the families ship them."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AlbertTokenizer,
    BertTokenizer,
    CamembertTokenizer,
    DebertaV2Tokenizer,
    DistilBertTokenizer,
    MPNetTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    RobertaTokenizer,
    T5Tokenizer,
    XLMRobertaTokenizer,
)
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from .decoders import OWN_SHAPE
from .t5 import T5
from .texts import corpus

VOCAB_SIZE = 887
TRAINING_CHARS = 120_000


def tiny_tokenizer(model_type: str, *, max_tokens: int, lowercase: bool = True) -> PreTrainedTokenizerBase:
    """The tokenizer of a family with a vocabulary of at most about 900 tokens.

    Args:
        model_type: As in `config.json`.
        max_tokens: What the tokenizer says is its `model_max_length`, special tokens included.
        lowercase: Whether a WordPiece tokenizer lower-cases. The other two kinds keep case as their families do.

    Raises:
        ValueError: The family is not one of the makers'.
    """
    if model_type in ("bert", "electra", "nomic_bert", "jina_bert"):
        wordpiece = _wordpiece(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), lowercase)
        return BertTokenizer(vocab=wordpiece, do_lower_case=lowercase, model_max_length=max_tokens)
    if model_type == "distilbert":
        wordpiece = _wordpiece(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), lowercase)
        return DistilBertTokenizer(vocab=wordpiece, do_lower_case=lowercase, model_max_length=max_tokens)
    if model_type == "mpnet":
        wordpiece = _wordpiece(("<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"), lowercase)
        return MPNetTokenizer(vocab=wordpiece, do_lower_case=lowercase, model_max_length=max_tokens)
    if model_type == "roberta":
        vocab, merges = _byte_bpe(("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
        return RobertaTokenizer(vocab=vocab, merges=merges, model_max_length=max_tokens)
    if model_type in ("xlm-roberta", "gte", "new", "jina_embeddings_v3"):
        pieces = [*_scored("<s>", "<pad>", "</s>", "<unk>"), *_unigram(), ("<mask>", 0.0)]
        return XLMRobertaTokenizer(vocab=pieces, model_max_length=max_tokens)
    if model_type == "camembert":
        first = _scored("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>")
        return CamembertTokenizer(vocab=[*first, *_unigram(), ("<mask>", 0.0)], model_max_length=max_tokens)
    if model_type == "albert":
        pieces = [*_scored("<pad>", "<unk>", "[CLS]", "[SEP]"), *_unigram(), ("[MASK]", 0.0)]
        return AlbertTokenizer(vocab=pieces, model_max_length=max_tokens)
    if model_type == "deberta-v2":
        pieces = [*_scored("[PAD]", "[CLS]", "[SEP]", "[UNK]"), *_unigram(), ("[MASK]", 0.0)]
        return DebertaV2Tokenizer(vocab=pieces, model_max_length=max_tokens)
    if model_type == "modernbert":
        return _framed(max_tokens)
    if model_type in T5:
        return T5Tokenizer(vocab=[*_scored("<pad>", "</s>", "<unk>"), *_unigram()], model_max_length=max_tokens)
    if model_type in OWN_SHAPE:
        return _ended(max_tokens)
    raise ValueError(f"No tokenizer is made for {model_type!r}; allowed are the families of the makers.")


def _ended(max_tokens: int) -> PreTrainedTokenizerBase:
    """Byte-level BPE that ends each text, and each pair, with a token of its own."""
    vocab, merges = _byte_bpe(("<|endoftext|>", "<|pad|>"))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    # As Qwen cuts text: the reference makes this part of a Qwen2 tokenizer anew, whatever its file says.
    tokenizer.normalizer = normalizers.NFC()
    pieces = pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pieces, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    end = ("<|endoftext|>", vocab["<|endoftext|>"])
    tokenizer.post_processor = processors.TemplateProcessing("$A <|endoftext|>", "$A $B:0 <|endoftext|>", [end])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|endoftext|>",
        pad_token="<|pad|>",
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=max_tokens,
    )


def _framed(max_tokens: int) -> PreTrainedTokenizerBase:
    """Byte-level BPE that frames texts as BERT does, and gives no segments."""
    vocab, merges = _byte_bpe(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    frame = [(name, vocab[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:0 [SEP]", frame)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=max_tokens,
    )


def _scored(*tokens: str) -> list[tuple[str, float]]:
    return [(token, 0.0) for token in tokens]


def _lines() -> list[str]:
    # From the middle, so that the vocabulary does not fit the start of the corpus better than the rest.
    text = corpus()
    start = len(text) // 3
    return text[start : start + TRAINING_CHARS].splitlines()


@functools.cache
def _wordpiece(special: Sequence[str], lowercase: bool) -> dict[str, int]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCAB_SIZE, special_tokens=list(special), show_progress=False)
    tokenizer.train_from_iterator(_lines(), trainer)
    return tokenizer.get_vocab()


@functools.cache
def _byte_bpe(special: Sequence[str]) -> tuple[dict[str, int], Any]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_lines(), trainer)
    saved = json.loads(tokenizer.to_str())["model"]
    return saved["vocab"], [(left, right) for left, right in saved["merges"]]


@functools.cache
def _unigram() -> tuple[tuple[str, float], ...]:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
    )
    trainer = trainers.UnigramTrainer(vocab_size=VOCAB_SIZE, show_progress=False)
    tokenizer.train_from_iterator(_lines(), trainer)
    return tuple((piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"])
