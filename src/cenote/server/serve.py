"""Run a server until it is told to stop: bind, load, answer, drain."""

from __future__ import annotations

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
from ..errors import ConfigError
from ..registry import Registry
from .app import build

_KEEP_ALIVE_S = 75
"""Longer than the 60 s after which common load balancers drop idle connections, so that the server never is first."""


def serve(
    model: ModelSettings,
    machine: MachineSettings | None = None,
    server: ServerSettings | None = None,
    *,
    out: TextIO | None = None,
) -> int:
    """Serve one model over HTTP until SIGINT or SIGTERM; blocks, and must run in the main thread.

    The port is bound before the model is loaded, so a taken one is told at once. On a signal no connection is accepted
    any more and running requests get `drain_s` seconds to finish.

    Args:
        model: The checkpoint.
        machine: How the machine is used.
        server: How to listen.
        out: Where the one line goes that says the server is ready; standard output if None.

    Returns:
        0 after a signal, 1 if the engine died.

    Raises:
        CenoteError: The address cannot be bound, or the model cannot be served.
    """
    server = server or ServerSettings()
    listening = bind(server.host, server.port)
    registry = Registry(machine or MachineSettings())
    try:
        engine = registry.open(model, names=server.served_model_name)
        ready = f"Serving {engine.name} on {address(listening)} (up to {engine.recipe.max_len} tokens per input)"
        if engine.fingerprint is not None:
            engine.fingerprint.known()  # begins to look for it, beside the first requests
        app = build(registry, server, on_long=model.on_long)
        stopped_s = _run(uvicorn.Config(app, **_options(server)), listening, ready, out or sys.stdout)
        registry.drain(max(0.0, server.drain_s - (time.monotonic() - stopped_s)))
        return 1 if registry.state == "dead" else 0
    finally:
        registry.close()
        listening.close()


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to `host` and `port`; port 0 takes a free one.

    Raises:
        ConfigError: The address is taken, or not one of this machine, or there is no such port.
    """
    if not 0 <= port <= 65535:  # the system would take it modulo 65536
        raise ConfigError(
            f"port={port} is no port.", allowed="Ports are 1 to 65535, and 0 for a free one.", param="port"
        )
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_bind(host, port, error) from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
    except OSError as error:
        listening.close()
        raise _cannot_bind(host, port, error) from error
    listening.set_inheritable(True)
    return listening


def address(listening: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """A uvicorn server that says when it is ready, and remembers when it was told to stop."""

    def __init__(self, config: uvicorn.Config, ready: str, out: TextIO) -> None:
        super().__init__(config)
        self._ready, self._out = ready, out
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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.stopped_s = time.monotonic()
        await super().shutdown(sockets)


def _run(config: uvicorn.Config, listening: socket.socket, ready: str, out: TextIO) -> float:
    server = _Server(config, ready, out)
    server.run(sockets=[listening])
    return server.stopped_s if server.stopped_s is not None else time.monotonic()


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
    }


def _cannot_bind(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"Cannot listen on {host}:{port}: {error.strerror or error}.",
        fix="Stop the program that has the port, or choose another with --port (0 takes a free one).",
        param="port",
    )
