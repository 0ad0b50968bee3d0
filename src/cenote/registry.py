"""The models of a process by name, and the threads they share."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from . import io_plugins, profiles
from .allocator import keep_few_products, keep_freed_memory
from .checkpoint import Checkpoint, open_checkpoint
from .config import MachineSettings, ModelSettings
from .cores import num_cores
from .engine import Engine
from .errors import ConfigError, ModelNotFound, Unavailable
from .fingerprint import Fingerprint
from .forward import RunsBatches
from .shared import Shared
from .tasks import token_embed
from .worker import Workers

if TYPE_CHECKING:
    from .precisions import Calibration
    from .recipe import Recipe
    from .tokenizer import Tokenizer

log = logging.getLogger(__name__)

State: TypeAlias = Literal["ready", "draining", "dead", "closed"]
RunnerFactory: TypeAlias = "Callable[[Recipe, MachineSettings], RunsBatches]"

MAX_TOKENIZER_THREADS = 8

_loaders: Final[set[int]] = set()  # processes that loaded a model: this one, and those it was forked from


class Registry:
    """Opens models and answers to their names; owns the pools and the workers.

    Usable from any thread and as a context manager. One that is forgotten stops its threads when it is collected or
    when the interpreter ends.

    Args:
        machine: What all models share.
        runner_factory: Makes the runner of a recipe; None means `runner.Runner`.
    """

    def __init__(self, machine: MachineSettings | None = None, *, runner_factory: RunnerFactory | None = None) -> None:
        self.machine = MachineSettings() if machine is None else machine
        self._runner_factory = runner_factory or _default_runner
        num_threads = self.machine.tokenizer_threads or min(num_cores(), MAX_TOKENIZER_THREADS)
        self._shared = Shared(num_threads)
        self._workers = Workers(self._shared, self.machine.max_forward_s)
        self._engines: dict[str, Engine] = {}
        self._io_plugins: dict[str, io_plugins.IOPlugin] = {}
        self._draining = False
        self._stop = weakref.finalize(self, _stop, self._workers, self._shared)

    @property
    def state(self) -> State:
        """`ready` takes calls; `draining` finishes those it has; `dead` lost a worker; `closed` is over."""
        if not self._stop.alive:
            return "closed"
        if self._workers.death is not None:
            return "dead"
        return "draining" if self._draining else "ready"

    @property
    def num_tokenizer_threads(self) -> int:
        """Threads that tokenise."""
        return self._shared.num_tokenize_threads

    def engines(self) -> list[Engine]:
        """The served models, in the order they were opened."""
        return list(self._workers.engines)

    def open(self, settings: ModelSettings, names: Sequence[str] = (), aliases: Sequence[str] = ()) -> Engine:
        """Load a model and serve it.

        Args:
            settings: Which checkpoint, and how.
            names: What it answers to; its checkpoint's name where none is given.
            aliases: What it answers to besides.

        Raises:
            CenoteError: The checkpoint cannot be served, or a name is taken, or the registry takes nothing more, or
                this is a fork of a process that loaded a model.
        """
        from . import recipe as recipes

        if self.state != "ready":
            raise Unavailable(f"No model can be opened, the registry is {self.state}.", fix="Make a new one.")
        _check_not_forked()
        checkpoint = open_checkpoint(settings.model, settings.revision, with_code=settings.trust_remote_code)
        names = tuple(dict.fromkeys((*(names or (checkpoint.name,)), *aliases)))
        self._check_free(names)
        # Messages name a model as clients know it, not by the folder it lies in.
        calibration = _calibration(settings.calibration)
        recipe = recipes.resolve(checkpoint, settings).named(names[0])
        words = open_checkpoint(settings.tokenizer) if settings.tokenizer else recipe.transformer
        tuned, machine = profiles.applied(recipe, words, settings, self.machine)
        if tuned.dtype != settings.dtype:
            recipe = recipes.resolve(checkpoint, tuned).named(names[0])
        io_plugin = io_plugins.find(recipe, settings)
        loading = self._tokenizers(recipe, words)
        why_not = keep_few_products()
        log.debug("oneDNN keeps %s.", f"all products: {why_not}" if why_not else "few products")
        try:
            runner = self._runner_factory(recipe, machine)
        except BaseException:
            for future in loading.values():
                future.cancel()
            raise
        if self.machine.keep_freed_memory:
            why_not = keep_freed_memory()
            log.debug("Freed memory is %s.", f"not kept: {why_not}" if why_not else "kept")
        tokenizers = {route: future.result() for route, future in loading.items()}
        if recipe.late_interaction is not None:
            token_embed.check_tokenizer(recipe.late_interaction, tokenizers[""])
        plugged = (
            None
            if io_plugin is None
            else io_plugins.made(*io_plugin, recipe, next(iter(tokenizers.values())), settings)
        )
        about = (calibration, Fingerprint(recipe, words, machine))
        engine = self._serve(Engine(names, recipe, tokenizers, runner, machine, self._shared, *about))
        if plugged is not None:
            self._io_plugins[engine.name] = plugged
        return engine

    def _tokenizers(self, recipe: Recipe, words: Checkpoint) -> dict[str, Future[Tokenizer]]:
        """A tokenizer for each route, being read."""
        from .tokenizer import Tokenizer

        # Reading a large vocabulary takes about as long as mapping the weights.
        return {
            route: self._shared.tokenize_pool.submit(
                Tokenizer.load,
                one.transformer if route else words,
                do_lower_case=one.do_lower_case,
                num_rows=one.num_words,
                markers=one.late_interaction.markers if one.late_interaction else (),
            )
            for route, one in recipe.by_route.items()
        }

    def get(self, name: str | None = None) -> Engine:
        """The model that answers to `name`; None or "" means the only one.

        Raises:
            ModelNotFound: There is none, or there are several and no name was given.
        """
        if name:
            engine = self._engines.get(name)
            if engine is not None:
                return engine
            what = f"The model `{name}` does not exist."
        elif len(self.engines()) == 1:
            return self.engines()[0]
        else:
            what = f"No model was named and {len(self.engines())} are served."
        served = ", ".join(f"`{known}`" for known in self._engines) or "none"
        raise ModelNotFound(what, allowed=f"Served here: {served}.", param="model")

    def io_plugin(self, engine: Engine) -> io_plugins.IOPlugin | None:
        """What answers requests with `data` to a model; None where nothing does."""
        return self._io_plugins.get(engine.name)

    def drain(self, timeout_s: float) -> bool:
        """Take no new calls and wait for those that are here.

        Returns:
            Whether all ended within `timeout_s` seconds.
        """
        ends_s = time.monotonic() + timeout_s
        self._draining = True
        self._refuse("is shutting down")
        with self._shared.room:
            return self._shared.room.wait_for(lambda: self._shared.num_open == 0, max(0.0, ends_s - time.monotonic()))

    def close(self) -> None:
        """End what still waits with `Unavailable`, and stop the threads. Repeatable."""
        self._stop()

    def __enter__(self) -> Registry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse(self, why: str) -> None:
        for engine in self.engines():
            engine.refuse(why)

    def _check_free(self, names: Sequence[str]) -> None:
        taken = [name for name in names if name in self._engines]
        if taken:
            raise ConfigError(
                f"A model named `{taken[0]}` is served already.",
                fix="Give this one another name.",
                param="served_model_name",
            )

    def _serve(self, engine: Engine) -> Engine:
        with self._shared.work:
            names = (engine.name, *engine.aliases)
            self._check_free(names)
            # The registry may have been told to stop while the weights were read.
            if self.state != "ready":
                raise Unavailable(f"{engine.name} was not opened, the registry is {self.state}.", fix="Make a new one.")
            self._engines.update(dict.fromkeys(names, engine))
            self._workers.serve(engine)
        return engine


def _stop(workers: Workers, shared: Shared) -> None:
    """All that closing does; knows no registry, so that a forgotten one can be collected."""
    for engine in workers.engines:
        engine.refuse("is closed")
        engine.end_all()
    workers.stop()
    shared.close()


def _check_not_forked() -> None:
    # torch's own threads do not survive a fork either: once they ran, the first large copy in the child never ends.
    _loaders.add(os.getpid())
    others = sorted(_loaders - {os.getpid()})
    if others:
        raise Unavailable(
            f"No model can be loaded in process {os.getpid()}, a fork of {others[0]}, which loaded one already.",
            allowed="torch cannot go on in such a fork.",
            fix="Start children with multiprocessing's spawn, or load models in children only.",
        )


def _calibration(path: str | None) -> Calibration | None:
    from .precisions import Calibration

    return None if path is None else Calibration.load(path)


def _default_runner(recipe: Recipe, machine: MachineSettings) -> RunsBatches:
    from .runner import Runner

    return Runner(recipe, machine)
