"""Records what clients send to a real server and what they get, each as it comes, in an environment of its own.

    python tests/clients/record.py            # writes recorded.json
    python tests/clients/record.py --check    # compares with it instead
    python tests/clients/record.py --python PATH/bin/python    # in an environment that is there already

The environment is made of `requirements.txt`, in `.venvs/clients`, once. The server's model is the embedded one.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RECORDED = HERE / "recorded.json"
PAGE = ROOT / "docs" / "clients.md"
FIRST_HEADING = "## LangChain, Cohere"
"""From here on the examples of the page are run here, and not beside the other tests."""
ENVIRONMENT = ROOT / ".venvs" / "clients"
HEADERS = ("accept", "authorization", "content-type", "x-fern-sdk-name")
"""Headers of requests that mean something to the server; the others name versions and machines."""
NUM_KEPT = 6
"""Numbers of a vector that are kept; enough to tell it from others."""
LIMIT = 1e-5
_HOP = ("connection", "transfer-encoding", "content-length")


class Listener(ThreadingHTTPServer):
    """Passes requests on to a server, and keeps them by step.

    Args:
        url: Address of the server.
    """

    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.upstream = urlsplit(url).netloc
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests: dict[str, list[dict[str, Any]]] = {}
        self.step = ""


class _Passing(BaseHTTPRequestHandler):
    server: Listener
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path.startswith("/step/"):
            self.server.step = self.path.rpartition("/")[2]
            self.server.requests[self.server.step] = []
            self._answer(204, {}, b"")
        else:
            self._pass()

    def do_POST(self) -> None:
        self._pass()

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        told = {name: self.headers[name] for name in HEADERS if name in self.headers}
        kept = {"method": self.command, "path": self.path, "headers": told, "body": body.decode()}
        self.server.requests[self.server.step].append(kept)
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=60)
        sent = {name: value for name, value in self.headers.items() if name.lower() not in (*_HOP, "host")}
        upstream.request(self.command, self.path, body, sent)
        with upstream.getresponse() as answer:
            self._answer(answer.status, dict(answer.getheaders()), answer.read())
        upstream.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in (*_HOP, "date", "server"):
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing; what matters is in the file."""


def record(python: Path) -> dict[str, Any]:
    """Take all steps of `talk.py` with that interpreter: by step what was sent, and what the client got."""
    with listening() as listener:
        command = [str(python), str(HERE / "talk.py"), listener.url]
        given = json.dumps(examples())
        done = subprocess.run(command, input=given, capture_output=True, text=True, env=_quiet(), check=False)
        if done.returncode:
            raise SystemExit(f"The clients failed at the step {listener.step}:\n{done.stderr}")
        got: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return {name: {"requests": listener.requests[name], "got": _kept(values)} for name, values in got.items()}


def examples() -> list[str]:
    """The examples of the page that want this environment."""
    from house.test_docs import blocks

    page = PAGE.read_text(encoding="utf-8")
    return [block.text for block in blocks(page[page.index(FIRST_HEADING) :]) if block.language == "python"]


@contextmanager
def listening() -> Iterator[Listener]:
    """A real server of the embedded model, and a listener before it."""
    from cenote.checkpoint import embedded_default
    from clients.talk import MODEL
    from server.running import Server

    with Server(embedded_default().folder, model_alias=[MODEL]) as server, Listener(server.url) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        try:
            yield listener
        finally:
            listener.shutdown()


def build_environment() -> Path:
    """Make `.venvs/clients` unless its stamp says that it was made of these pins; its interpreter."""
    python, stamp, pins = ENVIRONMENT / "bin" / "python", ENVIRONMENT / "stamp", HERE / "requirements.txt"
    recipe = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != recipe:
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        subprocess.run([str(python), "-m", "pip", "--quiet", "install", "-r", str(pins)], check=True)
        stamp.write_text(recipe, encoding="utf-8")
    return python


def differences(ours: dict[str, Any], recorded: dict[str, Any]) -> list[str]:
    """Steps whose requests are not those that were recorded, or whose values are not near them."""
    found = [f"{name} is on one side alone" for name in sorted(ours.keys() ^ recorded.keys())]
    for name in sorted(ours.keys() & recorded.keys()):
        now, before = ours[name], recorded[name]
        if now["requests"] != before["requests"]:
            found.append(f"{name} sent {now['requests']}, not {before['requests']}")
        if not _near(now["got"], before["got"]):
            found.append(f"{name} got {now['got']}, not {before['got']}")
    return found


def _near(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_near(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_near, one, other))
    return bool(abs(one - other) <= LIMIT)


def _kept(values: dict[str, Any]) -> dict[str, Any]:
    """Rankings as they are; of vectors the first numbers."""
    return {kind: [[round(value, 7) for value in row[:NUM_KEPT]] for row in rows] for kind, rows in values.items()}


def _quiet() -> dict[str, str]:
    """The environment of this process without what changes where clients go, or what they may reach."""
    changes = ("PYTHONPATH", "HF_HUB_OFFLINE")
    return {name: value for name, value in os.environ.items() if "proxy" not in name.lower() and name not in changes}


def main() -> int:
    """Record, or compare; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with recorded.json")
    parser.add_argument("--python", type=Path, help="interpreter that has the clients")
    given = parser.parse_args()
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    found = record(given.python or build_environment())
    if not given.check:
        RECORDED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return 0
    different = differences(found, json.loads(RECORDED.read_text(encoding="utf-8")))
    sys.stdout.write("".join(f"{line}\n" for line in different))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
