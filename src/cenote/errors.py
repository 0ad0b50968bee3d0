"""Everything Cenote raises on purpose, as one tree.

A message has three parts: what happened (with the values), what is allowed, and what to do. Each class carries a
`kind`; a door (the offline API, a server dialect, the shell) maps kinds to its own status or exit code, so this file
knows nothing of HTTP.

    CenoteError
    |- BadInput (ValueError)             the caller's input or parameter
    |  |- NoInputs
    |  |- TooLong
    |  |- UnsupportedTask
    |- ModelNotFound                     a name no model answers to
    |- CheckpointError (ValueError)      a folder that cannot be served as it is
    |  |- UnknownArchitecture
    |  |- UnknownModule
    |  |- WeightMismatch
    |- ConfigError (ValueError)          a setting
    |- MissingExtra (ImportError)        an optional package that is not installed
    |- Overloaded                        no room now, later there may be
    |- Unavailable                       shutting down, or dead
    |- Cancelled
    |- DeadlineExceeded (TimeoutError)
    |- ForwardFailed                     the model raised on this input
       |- NotFinite                      the model answered NaN or infinity
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class CenoteError(Exception):
    """Base of all errors; `str()` gives the three parts in one line.

    Args:
        what: What happened, with the values.
        allowed: What would have been allowed.
        fix: What to do about it.
        param: The argument, field or flag at fault, by the name the caller used.
        index: Which of the caller's inputs is at fault, counted from 0.
    """

    kind: ClassVar[str] = "internal"

    def __init__(
        self, what: str, *, allowed: str = "", fix: str = "", param: str | None = None, index: int | None = None
    ) -> None:
        super().__init__(" ".join(part for part in (what, allowed, fix) if part))
        self.what = what
        self.allowed = allowed
        self.fix = fix
        self.param = param
        self.index = index


class BadInput(CenoteError, ValueError):
    """An input or a parameter of a request is not allowed."""

    kind = "bad_input"


class NoInputs(BadInput):
    """There is nothing to answer."""

    kind = "no_inputs"


class TooLong(BadInput):
    """One or more inputs have more tokens than the limit; `offenders` lists their positions."""

    kind = "too_long"

    def __init__(self, what: str, *, offenders: Sequence[int] = (), allowed: str = "", fix: str = "") -> None:
        first = offenders[0] if offenders else None
        super().__init__(what, allowed=allowed, fix=fix, param="input_tokens", index=first)
        self.offenders = tuple(offenders)


class UnsupportedTask(BadInput):
    """The model cannot be read as the task that was asked for."""

    kind = "unsupported_task"


class ModelNotFound(CenoteError):
    """No model answers to this name here."""

    kind = "model_not_found"


class CheckpointError(CenoteError, ValueError):
    """A checkpoint folder is incomplete, or says something that cannot be true."""

    kind = "checkpoint"


class UnknownArchitecture(CheckpointError):
    """No model file of ours, and none of a plugin, serves this architecture."""


class UnknownModule(CheckpointError):
    """`modules.json` names a module that is not known; serving without it would give wrong numbers."""


class WeightMismatch(CheckpointError):
    """Weights without a use, or parameters without weights; the message lists both."""


class ConfigError(CenoteError, ValueError):
    """A setting has a value that is not allowed, or two settings exclude each other."""

    kind = "config"


class MissingExtra(CenoteError, ImportError):
    """A feature needs an optional package; the message names the extra to install."""

    kind = "config"


class Overloaded(CenoteError):
    """The queue is full; `retry_after_s` estimates when there will be room, in seconds."""

    kind = "overloaded"

    def __init__(self, what: str, *, retry_after_s: float, allowed: str = "", fix: str = "") -> None:
        super().__init__(what, allowed=allowed, fix=fix)
        self.retry_after_s = retry_after_s


class Unavailable(CenoteError):
    """The engine is shutting down, or its device thread died."""

    kind = "unavailable"


class Cancelled(CenoteError):
    """The caller went away or cancelled before the answer was ready."""

    kind = "cancelled"


class DeadlineExceeded(CenoteError, TimeoutError):
    """The deadline of the call passed before the answer was ready."""

    kind = "deadline"


class ForwardFailed(CenoteError):
    """The model raised on this input alone, after its batch was halved down to it."""

    kind = "forward_failed"


class NotFinite(ForwardFailed):
    """The model answered NaN or infinity for this input."""

    kind = "not_finite"
