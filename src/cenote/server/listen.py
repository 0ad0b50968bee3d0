"""Where a server listens: a port or a Unix socket, and with which certificate. All of it fails before a model loads."""

from __future__ import annotations

import os
import socket
import ssl
import stat

from ..config import ServerSettings
from ..errors import ConfigError


def listening_socket(server: ServerSettings) -> socket.socket:
    """The socket that the settings name, bound; and a check that the certificate can be read.

    Raises:
        ConfigError: The address cannot be bound, or the certificate cannot be used.
    """
    _check_certificate(server)
    return bind_unix(server.uds) if server.uds else bind(server.host, server.port)


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


def bind_unix(path: str) -> socket.socket:
    """A Unix socket at `path`; one that a dead server left there is replaced.

    Raises:
        ConfigError: Somebody listens there, or it is no socket, or it cannot be made.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode) and _is_dead(path):
            os.unlink(path)
        listening.bind(path)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"Cannot listen on the Unix socket {path}: {error.strerror or error}.",
            fix="Stop the program that has it, or choose another path with --uds.",
            param="uds",
        ) from error
    return listening


def release(listening: socket.socket, uds: str | None) -> None:
    """Close a socket, if it still is open, and remove the file of a Unix one."""
    listening.close()
    if uds and os.path.exists(uds):
        os.unlink(uds)


def address(listening: socket.socket, *, tls: bool = False) -> str:
    """The URL of a bound socket; of a Unix one `unix:` and its path."""
    if listening.family == socket.AF_UNIX:
        return f"unix:{listening.getsockname()}"
    host, port = listening.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _is_dead(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(path) != 0


def _check_certificate(server: ServerSettings) -> None:
    key, certificate = server.ssl_keyfile, server.ssl_certfile
    if key is None and certificate is None:
        return
    if certificate is None:
        raise ConfigError("There is a key without a certificate.", fix="Add --ssl-certfile.", param="ssl_certfile")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"The certificate {certificate} with the key {key or certificate} cannot be used: {error}.",
            allowed="Both are files in PEM form, and belong together.",
            param="ssl_certfile",
        ) from error


def _cannot_bind(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"Cannot listen on {host}:{port}: {error.strerror or error}.",
        fix="Stop the program that has the port, or choose another with --port (0 takes a free one).",
        param="port",
    )
