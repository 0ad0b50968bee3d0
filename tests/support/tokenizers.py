"""Tiny tokenizers of every kind, trained on the spot and saved with `transformers`."""

from __future__ import annotations

import json
import pydoc_data.topics
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS_CHARACTERS = 60_000


@lru_cache(maxsize=1)
def paragraphs() -> tuple[str, ...]:
    """Real English paragraphs of several hundred characters, from Python's own documentation."""
    text = "\n\n".join(pydoc_data.topics.topics.values())
    return tuple(part for part in text.split("\n\n") if len(part) > 200)


def _corpus() -> list[str]:
    text = "\n\n".join(paragraphs())[:CORPUS_CHARACTERS]
    return [*text.split("\n"), "naïve café Ünïcödé ßtraße 東京 に行く привет мир 🙂 \uff21\uff42"]


def _train(tokenizer: Tokenizer, trainer: Any) -> dict[str, Any]:
    tokenizer.train_from_iterator(_corpus(), trainer)
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    return model


@lru_cache(maxsize=2)
def _wordpiece(lower_case: bool, specials: tuple[str, ...]) -> dict[str, int]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=700, special_tokens=list(specials), show_progress=False)
    vocab: dict[str, int] = _train(tokenizer, trainer)["vocab"]
    return vocab


@lru_cache(maxsize=2)
def _byte_level_bpe(specials: tuple[str, ...]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model = _train(tokenizer, trainer)
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def bert(folder: Path, *, lower_case: bool = True) -> Path:
    """WordPiece with [CLS] and [SEP], segment ids in pairs."""
    from transformers import BertTokenizer

    vocab = _wordpiece(lower_case, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
    BertTokenizer(vocab=dict(vocab), do_lower_case=lower_case, model_max_length=512).save_pretrained(folder)
    return folder


def bert_cased(folder: Path) -> Path:
    return bert(folder, lower_case=False)


def bert_vocab_file(folder: Path) -> Path:
    """What the oldest checkpoints have: `vocab.txt` and no `tokenizer.json`."""
    bert(folder)
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(sorted(vocab, key=vocab.__getitem__)) + "\n")
    return folder


def mpnet(folder: Path) -> Path:
    """WordPiece with RoBERTa's special tokens."""
    from transformers import MPNetTokenizer

    vocab = _wordpiece(True, ("<s>", "<pad>", "</s>", "[UNK]", "<mask>"))
    MPNetTokenizer(vocab=dict(vocab), model_max_length=512).save_pretrained(folder)
    return folder


def roberta(folder: Path) -> Path:
    """Byte-level BPE with <s> and </s>; pairs have two separators and no segment ids."""
    from transformers import RobertaTokenizer

    vocab, merges = _byte_level_bpe(("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
    RobertaTokenizer(vocab=dict(vocab), merges=cast(Any, list(merges)), model_max_length=512).save_pretrained(folder)
    return folder


def xlm_roberta(folder: Path) -> Path:
    """Unigram over words marked with a leading ▁, as sentencepiece makes it."""
    from transformers import XLMRobertaTokenizer

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    trainer = trainers.UnigramTrainer(
        vocab_size=500,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        n_sub_iterations=1,
        show_progress=False,
    )
    vocab = [(token, score) for token, score in _train(tokenizer, trainer)["vocab"]]
    XLMRobertaTokenizer(vocab=[*vocab, ("<mask>", 0.0)], model_max_length=512).save_pretrained(folder)
    return folder


def qwen(folder: Path) -> Path:
    """Byte-level BPE without a first token; the post-processor ends each text with <|endoftext|>."""
    from transformers import Qwen2Tokenizer

    vocab, merges = _byte_level_bpe(("<|endoftext|>",))
    Qwen2Tokenizer(vocab=dict(vocab), merges=cast(Any, list(merges)), model_max_length=131_072).save_pretrained(folder)
    end = ("<|endoftext|>", vocab["<|endoftext|>"])
    change_json(
        folder / "tokenizer.json",
        lambda raw: raw.update(
            post_processor=_state(
                processors.Sequence(
                    [
                        processors.ByteLevel(trim_offsets=False),
                        processors.TemplateProcessing("$A <|endoftext|>", "$A $B:1 <|endoftext|>:1", [end]),
                    ]
                )
            )
        ),
    )
    return folder


def causal(folder: Path) -> Path:
    """Byte-level BPE that adds nothing at all."""
    from transformers import Qwen2Tokenizer

    vocab, merges = _byte_level_bpe(("<|endoftext|>",))
    Qwen2Tokenizer(vocab=dict(vocab), merges=cast(Any, list(merges))).save_pretrained(folder)
    return folder


def llama(folder: Path) -> Path:
    """BPE over ▁ with bytes as a last resort; adds <s> at the front."""
    from transformers import LlamaTokenizer

    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
    tokenizer.decoder = decoders.ByteFallback()
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=specials, show_progress=False)
    model = _train(tokenizer, trainer)
    merges = [tuple(merge) for merge in model["merges"]]
    LlamaTokenizer(vocab=model["vocab"], merges=cast(Any, merges), add_bos_token=True).save_pretrained(folder)
    return folder


def byt5(folder: Path) -> Path:
    """A tokenizer written in Python, for which `tokenizers` has no counterpart."""
    from transformers import ByT5Tokenizer

    ByT5Tokenizer(extra_ids=5).save_pretrained(folder)
    return folder


KINDS: dict[str, Callable[[Path], Path]] = {
    kind.__name__: kind
    for kind in (bert, bert_cased, bert_vocab_file, mpnet, roberta, xlm_roberta, qwen, causal, llama, byt5)
}


def change_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Rewrite a JSON file after `change` has edited what it holds."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    change(raw)
    path.write_text(json.dumps(raw), encoding="utf-8")


def _state(part: Any) -> Any:
    return json.loads(part.__getstate__())
