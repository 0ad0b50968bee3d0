"""What all routes of one application share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..config import OnLong, ServerSettings
from ..errors import BadInput
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

    def allow(self, count: int, param: str) -> None:
        """Raise `BadInput` where a request has more inputs than the settings allow; `param` is where they stand."""
        most = self.settings.max_inputs
        if most and count > most:
            raise BadInput(
                f"The request has {count} inputs.",
                allowed=f"At most {most}.",
                fix="Send them in several requests, or start the server with a higher --max-inputs.",
                param=param,
            )

    def allow_listed(self, given: object, param: str) -> None:
        """`allow` for a value as it came: a list is its elements, but one of token ids is one input."""
        if isinstance(given, list) and given and not isinstance(given[0], int):
            self.allow(len(given), param)

    def engines(self) -> list[Engine]:
        """All models, the default one first."""
        return self.registry.engines()
