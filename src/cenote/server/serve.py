"""Run a server until it is told to stop: bind, load, answer, drain."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import uvicorn

from ..config import MachineSettings, ModelSettings, ServerSettings
from ..registry import Registry
from .app import build
from .front import known_keys
from .listen import address, listening_socket, release

_KEEP_ALIVE_S = 75
"""Longer than the 60 s after which common load balancers drop idle connections, so that the server never is first."""


_COLLECT_EVERY = 20_000
"""New objects that may be in cycles before the collector looks; a request has some hundreds, freed without it."""


def serve(
    model: ModelSettings,
    machine: MachineSettings | None = None,
    server: ServerSettings | None = None,
    *,
    out: TextIO | None = None,
) -> int:
    """Serve one model over HTTP until SIGINT or SIGTERM; blocks, and must run in the main thread.

    The address is bound before the model is loaded, so a taken one is told at once. On a signal no connection is
    accepted any more and running requests get `drain_s` seconds to finish.

    Args:
        model: The checkpoint.
        machine: How the machine is used.
        server: How to listen.
        out: Where the one line goes that says the server is ready; standard output if None.

    Returns:
        0 after a signal, 1 if a worker died, which stops the server.

    Raises:
        CenoteError: The address cannot be bound, a file of keys or certificates cannot be read, or the model cannot be
            served.
    """
    server = server or ServerSettings()
    known_keys(server)
    listening = listening_socket(server)
    registry = Registry(machine or MachineSettings())
    try:
        engine = registry.open(model, server.served_model_name, server.model_alias)
        where = address(listening, tls=server.ssl_certfile is not None)
        ready = f"Serving {engine.name} on {where} (up to {engine.recipe.max_len} tokens per input)"
        if engine.fingerprint is not None:
            engine.fingerprint.known()  # begins to look for it, beside the first requests
        _settle()
        app = build(registry, server, on_long=model.on_long)
        running = _Server(uvicorn.Config(app, **_options(server)), registry, ready, out or sys.stdout)
        running.run(sockets=[listening])
        stopped_s = running.stopped_s if running.stopped_s is not None else time.monotonic()
        registry.drain(max(0.0, server.drain_s - (time.monotonic() - stopped_s)))
        return 1 if registry.state == "dead" else 0
    finally:
        registry.close()
        release(listening, server.uds)


def _settle() -> None:
    """Let the collector of cycles pass over what is loaded, and look for new ones less often.

    What torch and the model hold is never freed, but each full collection went through it for a fifth of a second;
    and with 64 requests under way the small ones, every 700 objects, took a third of the event loop's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY, 10, 10)


class _Server(uvicorn.Server):
    """A uvicorn server that says when it is ready, stops where no worker is left, and remembers when it stopped."""

    def __init__(self, config: uvicorn.Config, registry: Registry, ready: str, out: TextIO) -> None:
        super().__init__(config)
        self._registry, self._ready, self._out = registry, ready, out
        self.stopped_s: float | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGINT and SIGTERM, and do not raise them again after that: draining the engine comes next."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, earlier in before.items():
                signal.signal(number, earlier)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._out.write(f"{self._ready}\n")
            self._out.flush()

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop; what waited for a dead worker has been answered when this is seen."""
        return await super().on_tick(counter) or self._registry.state == "dead"

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.stopped_s = time.monotonic()
        await super().shutdown(sockets)


def _options(server: ServerSettings) -> dict[str, Any]:
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return {
        "http": "httptools",
        "loop": "uvloop" if sys.platform != "win32" else "asyncio",
        "ws": "none",
        "lifespan": "off",
        "access_log": False,
        "log_config": None,
        "server_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": _KEEP_ALIVE_S,
        "timeout_graceful_shutdown": server.drain_s,
        "ssl_keyfile": server.ssl_keyfile,
        "ssl_certfile": server.ssl_certfile,
    }
