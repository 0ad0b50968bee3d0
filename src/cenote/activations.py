"""Logits to probabilities, on the CPU: calibration, then the activation that the recipe names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from .errors import CheckpointError
from .types import FloatArray

if TYPE_CHECKING:
    from .classifying import Classifying


INCREASING: Final = ("identity", "sigmoid", "softmax")
"""Activations that keep the order of the logits (of one label), up to rounding."""


def activate(logits: FloatArray, classifier: Classifying, use_activation: bool | None) -> FloatArray:
    """Subtract the mean and divide by sigma where there are any, then apply the activation.

    Args:
        logits: `[..., L]`.
        use_activation: False leaves out the activation; the calibration is applied all the same. None leaves it to
            `classifier`.
    """
    values = logits
    if classifier.logit_mean is not None:
        values = values - np.float32(classifier.logit_mean)
    if classifier.logit_sigma is not None:
        values = values / np.float32(classifier.logit_sigma)
    use = classifier.use_activation if use_activation is None else use_activation
    return apply(values, classifier.activation) if use else values


def check(activation: str, num_labels: int) -> None:
    """Try an activation, so that one which cannot be applied stops the start and not each request.

    Raises:
        CheckpointError: It is not a class of `torch.nn` that turns logits into as many values.
    """
    logits = np.zeros((2, num_labels), np.float32)
    try:
        shape = apply(logits, activation).shape
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"The activation {activation!r} fails on logits: {error!r}.") from error
    if shape != logits.shape:
        raise CheckpointError(f"The activation {activation!r} turns {num_labels} logits into values of shape {shape}.")


def apply(values: FloatArray, activation: str) -> FloatArray:
    """Apply `identity`, `sigmoid`, `softmax` (over the last axis), or a class of `torch.nn` by its dotted name."""
    if activation == "identity":
        return values
    if activation == "sigmoid":
        # exp of a negative number cannot overflow.
        small = np.exp(-np.abs(values))
        return np.where(values >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32)
    if activation == "softmax":
        powers = np.exp(values - values.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float32)
    import torch

    from .layers.heads import activation_of

    with torch.inference_mode():
        out: FloatArray = activation_of(activation)(torch.from_numpy(np.ascontiguousarray(values))).numpy()
    return out
