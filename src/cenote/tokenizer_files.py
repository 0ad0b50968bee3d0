"""The tokenizer files of a checkpoint, turned into something that makes ids.

`tokenizer.json` is taken as it stands, without the truncation and padding that were in force when it was saved. What
`tokenizer_config.json` adds is then applied as `AutoTokenizer` applies it: added tokens, the switches of a BERT
normaliser, a leading space for byte-level models. `add_eos_token` is honoured too, which `transformers` 5 no longer
does beside a `tokenizer.json`; a model trained to read its embedding at the end of the text needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors

from . import tokenizer_words
from .checkpoint import Checkpoint
from .errors import CheckpointError, MissingExtra
from .tokenizer_backends import Backend, FastBackend, SlowBackend

_SPECIAL_KEYS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

# Whose normaliser takes its switches from `tokenizer_config.json`, with these values where it is silent.
_BERT_SWITCHES = {"do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None}
_BERT_CLASSES = frozenset({"Bert", "DistilBert", "Electra", "MPNet", "MobileBert", "Funnel", "LayoutLM", "Lxmert"})
_BYTE_LEVEL_CLASSES = frozenset({"Roberta", "Longformer", "GPT2", "Bart", "LED"})
# The class of a checkpoint that names none, by `model_type`.
_CLASS_OF_MODEL_TYPE = {
    **dict.fromkeys(("bert", "electra", "distilbert", "nomic_bert", "convbert", "ernie", "megatron-bert"), "Bert"),
    **dict.fromkeys(("roberta", "roberta-prelayernorm", "longformer", "bart"), "Roberta"),
    **dict.fromkeys(("xlm-roberta", "gte", "xmod"), "XLMRoberta"),
    **dict.fromkeys(("qwen2", "qwen3"), "Qwen2"),
    **dict.fromkeys(("gemma", "gemma2", "gemma3", "gemma3_text"), "Gemma"),
    **dict.fromkeys(("t5", "mt5"), "T5"),
    "camembert": "Camembert",
    "mpnet": "MPNet",
    "gpt2": "GPT2",
    "gpt_neox": "GPTNeoX",
}
# fmt: off
# Classes whose models have no segment ids, though a post-processor may number the parts of a pair.
_WITHOUT_SEGMENTS = frozenset(
    (
        "Roberta", "XLMRoberta", "Camembert", "MPNet", "DistilBert", "Longformer", "Bart", "LED", "MBart", "MBart50",
        "Barthez", "GPT2", "GPTNeoX", "Llama", "CodeLlama", "Gemma", "Qwen2", "Qwen3_5", "Cohere", "T5", "NLLB",
        "M2M100", "Herbert", "BigBird", "Reformer", "Luke", "Bartpho", "Pegasus",
    )
)
# fmt: on


Empty: TypeAlias = Literal["refuse", "keep", "pad"]


@dataclass(frozen=True)
class TokenizerFiles:
    """What a folder says about its tokenizer.

    Args:
        backend: Makes ids.
        model_max_length: Longest input in tokens by `tokenizer_config.json`, None where it says nothing.
        may_have_segments: False where the model takes no segment ids, whatever the post-processor says.
        special_tokens: Those that the files name, by their name there, such as `pad_token`.
        chat_template: Makes one text of a conversation, None where the files hold none.
        empty: What becomes of a text without tokens: refused, kept without any, or given one that counts for nothing.
        pads_left: Whether others pad before a text; nothing is padded here, but queries may be expanded there.
    """

    backend: Backend
    model_max_length: int | None
    may_have_segments: bool
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    chat_template: str | None = None
    empty: Empty = "refuse"
    pads_left: bool = False


def read_files(checkpoint: Checkpoint, *, do_lower_case: bool = False, markers: Sequence[str] = ()) -> TokenizerFiles:
    """Read the tokenizer of a checkpoint; for the arguments see `Tokenizer.load`.

    Raises:
        CheckpointError: There are no tokenizer files, or they cannot be read.
        MissingExtra: Only `transformers` can read them, and it is not installed.
    """
    plain = tokenizer_words.backend(checkpoint)
    if plain is not None:
        empty: Empty = "pad" if checkpoint.config["model_type"] == "word_embeddings" else "keep"
        return TokenizerFiles(plain, None, may_have_segments=False, empty=empty)
    raw = checkpoint.json("tokenizer_config.json")
    config: dict[str, Any] = raw if isinstance(raw, dict) else {}
    name = _class_name(config, checkpoint.config)
    named = _with_special_tokens_map(config, checkpoint)
    backend: Backend
    if checkpoint.path("tokenizer.json") is not None:
        tokenizer = _from_json(checkpoint)
        _apply_config(tokenizer, named, name)
        backend = FastBackend(tokenizer, do_lower_case, markers)
    else:
        backend = _from_transformers(checkpoint, do_lower_case, markers)
    segments = may_have_segments(checkpoint)
    return TokenizerFiles(
        backend,
        _max_length(config),
        segments,
        _special_tokens(named),
        _chat_template(config, checkpoint),
        pads_left=config.get("padding_side") == "left",
    )


def may_have_segments(checkpoint: Checkpoint) -> bool:
    """Whether the tokenizer of a transformer's folder makes segment ids, by what it names as the model's inputs."""
    raw = checkpoint.json("tokenizer_config.json")
    config: dict[str, Any] = raw if isinstance(raw, dict) else {}
    names = config.get("model_input_names")
    if isinstance(names, list):
        return "token_type_ids" in names
    return _class_name(config, checkpoint.config) not in _WITHOUT_SEGMENTS


def chat_template(checkpoint: Checkpoint) -> str | None:
    """The template that a folder holds for conversations, None where it holds none."""
    raw = checkpoint.json("tokenizer_config.json")
    return _chat_template(raw if isinstance(raw, dict) else {}, checkpoint)


def _from_json(checkpoint: Checkpoint) -> Tokenizer:
    path = checkpoint.path("tokenizer.json")
    assert path is not None
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception for every kind of damage
        raise CheckpointError(
            f"tokenizer.json of {checkpoint.name} cannot be read: {error}.", fix="Fetch it again, or save it anew."
        ) from error


def _from_transformers(checkpoint: Checkpoint, do_lower_case: bool, markers: Sequence[str]) -> Backend:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingExtra(
            f"{checkpoint.name} has no tokenizer.json, and only transformers reads its other tokenizer files.",
            fix="`pip install 'cenote[transformers]'`, or add a tokenizer.json.",
        ) from error
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(str(checkpoint.folder), local_files_only=True)
    except (OSError, ValueError, ImportError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"No tokenizer of {checkpoint.name} can be read: {error}",
            allowed="Cenote reads tokenizer.json, and whatever transformers reads.",
            fix="Save the tokenizer beside the model; one that needs code of its own, as a tokenizer.json.",
        ) from error
    if not _has_vocabulary(tokenizer):
        raise CheckpointError(
            f"{checkpoint.name} has no tokenizer files.",
            allowed="Cenote reads tokenizer.json, and whatever transformers reads.",
            fix="Save the tokenizer beside the model.",
        )
    if tokenizer.is_fast:
        return FastBackend(Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()), do_lower_case, markers)
    if markers:
        raise CheckpointError(
            f"{checkpoint.name} marks its texts with {list(markers)}, and its tokenizer is written in Python.",
            allowed="Markers need a tokenizer.json.",
            fix="Save one beside the model.",
        )
    return SlowBackend(tokenizer, do_lower_case)


def _has_vocabulary(tokenizer: Any) -> bool:
    # transformers makes a tokenizer of special tokens alone where a folder has no vocabulary.
    return len(tokenizer.get_vocab()) > len(set(tokenizer.all_special_tokens))


def _class_name(config: dict[str, Any], model_config: dict[str, Any]) -> str:
    named = config.get("tokenizer_class") or model_config.get("tokenizer_class")
    if isinstance(named, str):
        return named.removesuffix("Fast").removesuffix("Tokenizer")
    return _CLASS_OF_MODEL_TYPE.get(str(model_config.get("model_type")), "")


def _max_length(config: dict[str, Any]) -> int | None:
    value = config.get("model_max_length")
    # Files without a limit hold 1e30 here.
    return int(value) if isinstance(value, (int, float)) and 0 < value < 1e9 else None


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    named = {key: config.get(key) for key in _SPECIAL_KEYS}
    contents = {key: token.get("content") if isinstance(token, dict) else token for key, token in named.items()}
    return {key: token for key, token in contents.items() if isinstance(token, str)}


def _chat_template(config: Mapping[str, Any], checkpoint: Checkpoint) -> str | None:
    path = checkpoint.path("chat_template.jinja")
    if path is not None:
        return path.read_text(encoding="utf-8")
    stated = config.get("chat_template")
    if isinstance(stated, list):
        # Several under names; conversations without tools take this one.
        stated = next((one.get("template") for one in stated if one.get("name") == "default"), None)
    return stated if isinstance(stated, str) else None


def _with_special_tokens_map(config: dict[str, Any], checkpoint: Checkpoint) -> dict[str, Any]:
    if "added_tokens_decoder" in config:
        return config
    raw = checkpoint.json("special_tokens_map.json")
    return {**config, **raw} if isinstance(raw, dict) else config


def _apply_config(tokenizer: Tokenizer, config: dict[str, Any], name: str) -> None:
    _add_tokens(tokenizer, config)
    tokenizer.encode_special_tokens = bool(config.get("split_special_tokens", False))
    if name in _BERT_CLASSES and isinstance(tokenizer.normalizer, normalizers.BertNormalizer):
        switches = {key: config.get(key, default) for key, default in _BERT_SWITCHES.items()}
        tokenizer.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=bool(switches["tokenize_chinese_chars"]),
            strip_accents=switches["strip_accents"],
            lowercase=bool(switches["do_lower_case"]),
        )
    if name in _BYTE_LEVEL_CLASSES and isinstance(tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel):
        space = bool(config.get("add_prefix_space", False))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    if config.get("add_eos_token") is True:
        _append_eos(tokenizer, config)


def _add_tokens(tokenizer: Tokenizer, config: dict[str, Any]) -> None:
    known = {repr(token) for token in tokenizer.get_added_tokens_decoder().values()}
    listed = config.get("added_tokens_decoder") or {}
    new = [_added_token(listed[key]) for key in sorted(listed, key=int)]
    new = [token for token in new if repr(token) not in known]
    contents = {token.content for token in (*tokenizer.get_added_tokens_decoder().values(), *new)}
    specials = [config[key] for key in _SPECIAL_KEYS if config.get(key)]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        extra = config.get(key) or []
        specials += list(extra.values()) if isinstance(extra, dict) else extra
    for special in specials:
        token = _added_token(special)
        if token.content not in contents:
            contents.add(token.content)
            new.append(token)
    tokenizer.add_tokens(new)


def _added_token(raw: str | dict[str, Any]) -> AddedToken:
    if isinstance(raw, str):
        return AddedToken(raw, special=True)
    options = {key: raw[key] for key in ("lstrip", "rstrip", "single_word", "normalized") if key in raw}
    return AddedToken(raw["content"], special=bool(raw.get("special", True)), **options)


def _append_eos(tokenizer: Tokenizer, config: dict[str, Any]) -> None:
    eos = config.get("eos_token", "</s>")
    content = eos["content"] if isinstance(eos, dict) else str(eos)
    eos_id = tokenizer.token_to_id(content)
    if eos_id is None:
        raise CheckpointError(
            f"tokenizer_config.json asks for the end-of-sequence token {content!r}, which the vocabulary lacks.",
            fix="Name a token of the vocabulary as eos_token, or drop add_eos_token.",
        )
    framed = tokenizer.encode("a").ids
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    before = framed[: len(framed) - len(bare)]
    if framed[len(before) :] != bare:
        return  # tokenizer.json already ends texts with this token, or with another that marks the end
    names = {i: str(tokenizer.id_to_token(i)) for i in (*before, eos_id)}
    tokenizer.post_processor = processors.TemplateProcessing(
        single=_frame(before, eos_id, "A", 0, names),
        pair=_frame(before, eos_id, "A", 0, names) + _frame(before, eos_id, "B", 1, names),
        special_tokens=[(token, i) for i, token in names.items()],
    )


def _frame(before: list[int], eos_id: int, text: str, segment: int, names: dict[int, str]) -> list[str]:
    return [*(f"{names[i]}:{segment}" for i in before), f"${text}:{segment}", f"{names[eos_id]}:{segment}"]
