"""Runs a server as a process of its own: `launch.py '{"model": {}, "machine": {}, "server": {}, "faulty": false}'`."""

from __future__ import annotations

import json
import sys

from cenote import registry
from cenote.config import MachineSettings, ModelSettings, ServerSettings, resolve
from cenote.server.serve import serve


def main() -> int:
    """Serve until a signal."""
    given = json.loads(sys.argv[1])
    server = resolve(ServerSettings, {"port": 0, **given["server"]}).settings
    if given["faulty"]:
        from support.faulty import FaultyRunner

        registry._default_runner = FaultyRunner
    model = resolve(ModelSettings, given["model"]).settings
    return serve(model, MachineSettings(**given["machine"]), server)


if __name__ == "__main__":
    sys.exit(main())
