"""What an answer says about its request beside the result: fields without effect, old names."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import bodies
from .schemas import ArrayFields, CallFields


@dataclass(slots=True)
class Notes:
    """Remarks on one request.

    Args:
        ignored: Fields that had no effect.
        warnings: Old names that were used, and their new ones.
    """

    ignored: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, body: CallFields) -> Notes:
        """Those that every call may need."""
        return cls(ignored=["padding"] if body.padding == "max_length" else [])

    def activation(self, body: ArrayFields) -> bool | None:
        """`use_activation` by its new or its old name."""
        if body.normalize is None:
            return body.use_activation
        self.warnings.append("normalize is the old name of use_activation")
        return body.normalize if body.use_activation is None else body.use_activation

    def headers(self) -> dict[str, str]:
        """`x-ignored-fields` and `warning`, where there is something to say."""
        headers = {}
        if self.ignored:
            headers["x-ignored-fields"] = bodies.named(self.ignored)
        if self.warnings:
            headers["warning"] = ", ".join(f'299 - "{text}"' for text in self.warnings)
        return headers
