"""One recipe of several: each route of a checkpoint has its own, and all are served as one model. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from .config import ModelSettings
from .errors import CheckpointError, ConfigError
from .modules.routing import Routing

if TYPE_CHECKING:
    from .recipe import Recipe

_SOURCE = "modules.json: Router"


def joined(found: Mapping[str, Recipe], routing: Routing, settings: ModelSettings) -> Recipe:
    """The recipe of a checkpoint with routes: that of its default route, and all of them in it.

    Args:
        found: Name of a route -> the recipe of it alone.

    Raises:
        CheckpointError: The routes make rows that cannot be compared, or none that all make.
        ConfigError: A setting is for one tokenizer, and each route has its own.
    """
    first = routing.default or routing.names[0]
    routes = {first: found[first], **found}
    main = routes[first]
    if settings.tokenizer is not None:
        raise ConfigError(
            f"tokenizer={settings.tokenizer!r}, but each route of {main.name} has its own.",
            fix="Leave it out.",
            param="tokenizer",
        )
    made = {name: f"{one.default_task} rows of {_size(one)}" for name, one in routes.items()}
    if len({*made.values()}) > 1 or main.convert != "embed" or any(one.late_interaction for one in routes.values()):
        raise CheckpointError(
            f"The routes of {main.name} make {made}.",
            allowed="All routes of a Router make one vector per text, of the same size.",
            fix="Name another checkpoint.",
        )
    # A route without a limit says nothing about what the model takes.
    longest = max(routes.values(), key=lambda one: -1 if one.model.nature.bag else one.max_len)
    sources = {**main.sources, "routes": _SOURCE, "default_route": _SOURCE, "max_len": longest.sources["max_len"]}
    return replace(main, max_len=longest.max_len, routing=routing, routes=routes, sources=sources)


def _size(recipe: Recipe) -> int:
    return recipe.embedding_size if recipe.sparse is None else recipe.sparse.size
