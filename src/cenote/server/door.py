"""What all routes of one application share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..config import OnLong, ServerSettings
from .token_ids import TokenIds
from .traffic import Traffic

if TYPE_CHECKING:
    from ..engine import Engine
    from ..registry import Registry


@dataclass(slots=True)
class Door:
    """One application's models, settings and counters.

    Args:
        registry: Where models are asked for by name.
        settings: How the server listens.
        on_long: What happens to long inputs where a request does not say; None leaves it to each dialect.
        created: When the server started, in seconds since 1970.
        openapi: The OpenAPI document, as JSON.
        token_ids: What token ids of the OpenAI dialect are.
    """

    registry: Registry
    settings: ServerSettings
    on_long: OnLong | None = None
    created: int = field(default_factory=lambda: int(time.time()))
    openapi: bytes = b""
    token_ids: TokenIds = field(default_factory=lambda: TokenIds("native"))
    traffic: Traffic = field(default_factory=Traffic)

    def model(self, name: str | None) -> Engine:
        """The model that answers to `name`; with `any_model_name` the only one answers to every name.

        Raises:
            ModelNotFound: There is none.
        """
        anyhow = self.settings.any_model_name and len(self.engines()) == 1
        return self.registry.get(None if anyhow else name)

    def engines(self) -> list[Engine]:
        """All models, the default one first."""
        return self.registry.engines()
