"""A Router of a Sentence-Transformers folder, or an Asym, its old name: other modules for queries than for documents.

A folder with one is read as one list of modules per route, as if that route alone were there. No torch.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..checkpoint import Checkpoint
from ..errors import CheckpointError
from .readers import check_keys

_KINDS: Final = ("Router", "Asym")
# Its rows are made without a model, so `sparse` reads a Router that has one.
_WITHOUT_MODEL: Final = "SparseStaticEmbedding"
_PACKAGE: Final = "sentence_transformers."
_FILES: Final = ("router_config.json", "config.json")
_PARAMETERS: Final = ("default_route", "allow_empty_key", "route_mappings")
_TEXT: Final = "text"

Listed = list[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Routing:
    """Which route a text takes, by the task that its caller names: `query`, `document`, or what the files call it.

    Args:
        names: Of the routes.
        default: The route where no task is named; None where one must be.
        mapped: Task -> its route, where they have different names.
        always: The route of all other tasks, and of none; None where there is no such route.
    """

    names: tuple[str, ...]
    default: str | None
    mapped: Mapping[str, str]
    always: str | None = None

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks that have a route of their own."""
        return tuple(dict.fromkeys((*self.mapped, *(() if self.always else self.names))))

    def route(self, task: str | None) -> str | None:
        """The route of a task; None where it has none."""
        if task is not None and task in self.mapped:
            return self.mapped[task]
        if self.always is not None:
            return self.always
        if task in self.names:
            return task
        if _TEXT in self.names:
            return _TEXT
        return self.default if task is None else None


@dataclass(frozen=True, slots=True)
class Router:
    """What the files of a Router say.

    Args:
        rules: Which route a text takes.
        inside: Name of a route -> its modules, as `modules.json` lists modules.
    """

    rules: Routing
    inside: Mapping[str, Listed]

    def kinds(self, route: str) -> tuple[str, ...]:
        """Names of the classes of a route's modules."""
        return tuple(str(module["type"]).rsplit(".", 1)[-1] for module in self.inside[route])


def is_router(dotted: str) -> bool:
    """Whether a class, by its dotted name, is a Router."""
    return dotted.startswith(_PACKAGE) and dotted.rsplit(".", 1)[-1] in _KINDS


def router(path: str, checkpoint: Checkpoint) -> Router:
    """Read the Router in the folder `path`.

    Raises:
        CheckpointError: Its config is not what sentence-transformers saves.
    """
    file, config = _config(path, checkpoint)
    try:
        rules = _routing(tuple(config["structure"]), config["parameters"])
        inside = {
            name: [_module(path, one, config["types"][one]) for one in modules]
            for name, modules in config["structure"].items()
        }
    except (KeyError, TypeError, AttributeError, ValueError, SyntaxError) as error:
        raise CheckpointError(
            f"{file} of {checkpoint.name} is no config of a Router: {type(error).__name__}: {error}.",
            allowed=f"types, structure and parameters ({', '.join(_PARAMETERS)}).",
        ) from error
    _check(rules, file, checkpoint)
    return Router(rules, inside)


def read(checkpoint: Checkpoint) -> tuple[Routing, dict[str, Listed]] | None:
    """The rules of a Router, and for each route the `modules.json` of it alone; None where no route chooses a model.

    Raises:
        CheckpointError: There are several, or its config is not what sentence-transformers saves.
    """
    listed = checkpoint.json("modules.json")
    if not isinstance(listed, list) or not all(isinstance(module, dict) for module in listed):
        return None
    at = [place for place, module in enumerate(listed) if is_router(str(module.get("type", "")))]
    if not at:
        return None
    path = str(listed[at[0]].get("path") or "").removeprefix(".")
    found = router(path, checkpoint)
    dotted = [str(module["type"]) for modules in found.inside.values() for module in modules]
    if any(one.endswith(f".{_WITHOUT_MODEL}") for one in dotted):
        return None
    before, after = listed[: at[0]], listed[at[0] + 1 :]
    if len(at) > 1 or any(map(is_router, dotted)):
        raise CheckpointError(
            f"modules.json of {checkpoint.name} has a Router beside or in another one.", allowed="One Router."
        )
    return found.rules, {name: [*before, *modules, *after] for name, modules in found.inside.items()}


def _config(path: str, checkpoint: Checkpoint) -> tuple[str, Mapping[str, Any]]:
    files = [f"{path}/{name}" if path else name for name in _FILES]
    for file in files:
        config = checkpoint.json(file)
        if isinstance(config, dict):
            check_keys(config, ("types", "structure", "parameters"), f"{file} of {checkpoint.name}")
            check_keys(config.get("parameters") or {}, _PARAMETERS, f"{file} of {checkpoint.name} in parameters")
            return file, {"parameters": {}, **config}
    raise CheckpointError(
        f"{checkpoint.name} has no {files[0]}, which says what its Router chooses from.", fix="Fetch it."
    )


def _module(path: str, folder: str, dotted: str) -> Mapping[str, Any]:
    return {"type": dotted, "path": f"{path}/{folder}" if path else folder}


def _routing(names: Sequence[str], parameters: Mapping[str, Any]) -> Routing:
    default = parameters.get("default_route")
    if default is None and parameters.get("allow_empty_key", True):
        default = names[0] if names else None
    stored: Mapping[str, str] = parameters.get("route_mappings") or {}
    rules = {_rule(key): route for key, route in stored.items()}
    # Rules for texts win over those for whatever is embedded.
    mapped = {task: route for of in (None, _TEXT) for (task, kind), route in rules.items() if task and kind == of}
    return Routing(tuple(names), default, mapped, rules.get((None, _TEXT), rules.get((None, None))))


def _rule(key: str) -> tuple[str | None, str | None]:
    task, kind = ast.literal_eval(key)
    if not all(part is None or isinstance(part, str) for part in (task, kind)) or kind not in (None, _TEXT):
        raise CheckpointError(
            f"A rule of route_mappings is for {key}.",
            allowed="A task or None, and 'text' or None: texts are served alone.",
        )
    return task, kind


def _check(routing: Routing, file: str, checkpoint: Checkpoint) -> None:
    used = (routing.default, routing.always, *routing.mapped.values())
    unknown = sorted({route for route in used if route is not None} - set(routing.names))
    if unknown or not routing.names:
        raise CheckpointError(
            f"{file} of {checkpoint.name} names the routes {unknown}.",
            allowed=f"Its routes are {', '.join(routing.names) or 'none'}.",
        )
