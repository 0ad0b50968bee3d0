"""One small edit that makes the product wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One edit.

    Args:
        name: What is broken.
        file: Below `src/cenote`.
        old: Text that stands in the file exactly once.
        new: What it becomes.
        guards: Tests that must fail, as pytest takes them.
    """

    name: str
    file: str
    old: str
    new: str
    guards: tuple[str, ...] = ()

    def applied(self, text: str) -> str:
        """`text` with the edit.

        Raises:
            ValueError: The old text is not there exactly once.
        """
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} stands {text.count(self.old)} times in {self.file}, not once.")
        return text.replace(self.old, self.new)
