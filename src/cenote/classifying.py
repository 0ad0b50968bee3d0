"""What the logits of a classifier mean: its labels, its activation, its calibration. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from . import plugins
from .config import ModelSettings, PoolerConfig
from .conversion import Kind
from .errors import CheckpointError, ConfigError
from .hf import Raw
from .label_tokens import LabelTokens
from .steps import HeadRows, Reward, Stage, StageNorm, Stages

Head = Literal["sequence", "token"]

_RAW: Final = ("JambaForSequenceClassification",)
"""Classifiers of whole texts that are reward models, whose values are given as they are where nobody says."""


@dataclass(frozen=True)
class Classifying:
    """How a classifier is read.

    Args:
        head: Whether it classifies whole texts or tokens.
        pooling: Mode of pooling that makes the row of a text; None where it classifies tokens.
        labels: Their names, in the order of the logits.
        activation: What logits go through: `identity`, `sigmoid`, `softmax`, or a class of `torch.nn` by its dotted
            name.
        use_activation: Whether it is applied where a request does not say.
        logit_mean: Subtracted from the logits first.
        logit_sigma: The logits are divided by it then.
        tokens: Rows of the language-model head that it is made of; None where it has a layer of its own.
        step_tag_id: Of a classifier of tokens: the token whose positions alone have rows; None for all.
        own_logits: Whether the model gives the logits itself, those of a text in its first row.
    """

    head: Head
    pooling: str | None
    labels: tuple[str, ...]
    activation: str
    use_activation: bool
    logit_mean: float | None
    logit_sigma: float | None
    tokens: HeadRows | None = None
    step_tag_id: int | None = None
    own_logits: bool = False


@dataclass(frozen=True)
class Made:
    """What the classifier of a checkpoint can be made of.

    Args:
        heads: Kinds of classifiers that the architecture has, and their stages.
        tokens: Words whose logits are the classes, None where the classifier has a layer of its own.
        reward: The head of a reward model, None for any other checkpoint.
        own_logits: Whether the model has the classifier inside, so that no stages are known.
    """

    heads: Mapping[str, Stages]
    tokens: LabelTokens | None
    reward: Reward | None
    own_logits: bool = False

    def head(self, architecture: str) -> Head:
        """Whether tokens are classified, or whole texts."""
        per_token = self.reward is not None if self.tokens is None else self.tokens.per_token
        return "token" if per_token or architecture.endswith("ForTokenClassification") else "sequence"


def classifying(
    made_of: Made,
    raw: Mapping[str, Any],
    modules: Mapping[str, Any],
    kind: Kind,
    settings: ModelSettings,
    sources: dict[str, str],
) -> Classifying | None:
    """Decide how a checkpoint is read as a classifier, or None where it is an embedder.

    Args:
        raw: `config.json`.
        modules: `config_sentence_transformers.json`.
        kind: What the checkpoint is made into.
        sources: Filled with the source of each value.

    Raises:
        CheckpointError: Labels or activation say what cannot be.
        ConfigError: A setting does.
    """
    name = str((raw.get("architectures") or [""])[0])
    if kind != "classify":
        sources["classifier"] = "none: " + ("convert=embed" if sources["convert"] == "user" else "it embeds")
        return None
    heads, tokens, reward = made_of.heads, made_of.tokens, made_of.reward
    head = made_of.head(name)
    if tokens is None and reward is None and head not in heads:
        raise CheckpointError(
            f"{name or 'The checkpoint'} is to classify, but no classifier of {head}s is known for its family.",
            allowed=f"It has {', '.join(heads) or 'none'}.",
            fix="Pass `--convert embed` to embed with it.",
        )
    sources["classifier"] = f"config.json: {name}" if tokens is None else tokens.source
    sources["own_logits"] = "transformers" if made_of.own_logits else "the architecture"
    sources["tokens"] = "none: a layer of its own" if tokens is None else tokens.source
    asked = settings.pooler_config
    pools = "the model gives the logits itself" if made_of.own_logits else "the architecture"
    own = asked.seq_pooling_type
    sources["pooling"] = pools if own is None else plugins.asked_by_user("cenote_poolings", own.lower())
    labels = _labels(made_of, raw, sources)
    mean, sigma = (_calibration(key, asked, raw, sources) for key in ("logit_mean", "logit_sigma"))
    if sigma == 0:
        raise ConfigError("logit_sigma cannot be 0 (division by zero).", param="logit_sigma")
    is_raw = name in _RAW or (reward is not None and reward.raw)
    sources["use_activation"] = (
        "user" if asked.use_activation is not None else "the architecture" if is_raw else "default"
    )
    return Classifying(
        head=head,
        pooling=_pooling(_first(made_of, head), asked) if head == "sequence" else None,
        labels=labels,
        activation=_activation(raw, modules, len(labels), sources),
        use_activation=not is_raw if asked.use_activation is None else asked.use_activation,
        logit_mean=mean,
        logit_sigma=sigma,
        tokens=None if tokens is None else tokens.rows,
        step_tag_id=_step_tag_id(head, reward, asked, sources),
        own_logits=made_of.own_logits,
    )


def _step_tag_id(head: Head, reward: Reward | None, asked: PoolerConfig, sources: dict[str, str]) -> int | None:
    given = any(value is not None for value in (asked.tok_pooling_type, asked.step_tag_id))
    sources["step_tag_id"] = "user" if given else "the architecture"
    if head != "token" or asked.tok_pooling_type == "ALL":
        return None
    if asked.step_tag_id is not None or reward is None:
        return asked.step_tag_id
    return reward.step_tag_id


def _first(made_of: Made, head: Head) -> Stage | StageNorm:
    if made_of.own_logits:
        return Stage("")
    return Stage("", row="last") if made_of.tokens else made_of.heads[head][0]


def _pooling(first: Stage | StageNorm, asked: PoolerConfig) -> str:
    if asked.seq_pooling_type is not None:
        return asked.seq_pooling_type.lower()
    assert isinstance(first, Stage)
    return {"first": "cls", "last": "last", "mean": "mean"}[first.row]


def _labels(made_of: Made, raw: Mapping[str, Any], sources: dict[str, str]) -> tuple[str, ...]:
    if made_of.tokens is not None:
        sources["labels"] = made_of.tokens.source
        return made_of.tokens.labels
    if made_of.reward is not None:
        sources["labels"] = "the architecture"
        return tuple(f"LABEL_{number}" for number in range(made_of.reward.num_labels))
    sources["labels"] = "config.json: id2label"
    named = raw.get("id2label")
    if isinstance(named, dict) and named:
        by_number = {str(number): str(label) for number, label in named.items()}
        if set(by_number) != {str(number) for number in range(len(named))}:
            raise CheckpointError(
                f"config.json says id2label={named!r}.", allowed="Labels are numbered from 0, each once."
            )
        return tuple(by_number[str(number)] for number in range(len(by_number)))
    sources["labels"] = "config.json: num_labels"
    # Two labels is what a config.json without either means.
    return tuple(f"LABEL_{number}" for number in range(Raw(raw).size("num_labels", 2)))


def _activation(raw: Mapping[str, Any], modules: Mapping[str, Any], num_labels: int, sources: dict[str, str]) -> str:
    nested = raw.get("sentence_transformers")
    stated = (
        ("config_sentence_transformers.json: activation_fn", modules.get("activation_fn")),
        ("config.json: activation_fn", nested.get("activation_fn") if isinstance(nested, dict) else None),
        ("config.json: sbert_ce_default_activation_function", raw.get("sbert_ce_default_activation_function")),
    )
    for source, name in stated:
        if name:
            sources["activation"] = source
            return _named_activation(str(name), source)
    problem = raw.get("problem_type")
    if problem is not None:
        sources["activation"] = "config.json: problem_type"
        known = {"regression": "identity", "multi_label_classification": "sigmoid"}
        if problem in known:
            return known[problem]
        if problem != "single_label_classification":
            allowed = f"Known are {', '.join(known)} and single_label_classification."
            raise CheckpointError(f"config.json says problem_type={problem!r}.", allowed=allowed)
    else:
        sources["activation"] = "default: the number of labels"
    return "sigmoid" if num_labels == 1 else "softmax"


def _named_activation(dotted: str, source: str) -> str:
    if not dotted.startswith("torch.nn."):
        allowed = "It is restricted to torch.nn, so that no checkpoint can run code."
        raise CheckpointError(f"{source} is {dotted!r}.", allowed=allowed)
    name = dotted.rsplit(".", 1)[-1].lower()
    return name if name in ("identity", "sigmoid", "softmax") else dotted


def _calibration(key: str, asked: PoolerConfig, raw: Mapping[str, Any], sources: dict[str, str]) -> float | None:
    given: float | None = getattr(asked, key)
    if given is not None:
        sources[key] = "user"
        return given
    sources[key] = "default" if raw.get(key) is None else f"config.json: {key}"
    return None if raw.get(key) is None else Raw(raw).number(key)
