"""What an answer says about its request beside the result: fields without effect, old names."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import bodies
from .schemas import CallFields


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

    def headers(self) -> dict[str, str]:
        """`x-ignored-fields` and `warning`, where there is something to say."""
        headers = {}
        if self.ignored:
            headers["x-ignored-fields"] = bodies.named(self.ignored)
        if self.warnings:
            headers["warning"] = ", ".join(f'299 - "{text}"' for text in self.warnings)
        return headers
