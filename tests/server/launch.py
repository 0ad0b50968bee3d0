"""Runs a server as a process of its own: `launch.py '{"model": {}, "machine": {}, "server": {}, "faulty": false}'`."""

from __future__ import annotations

import json
import signal
import sys

from cenote import registry
from cenote.config import MachineSettings, ModelSettings, ServerSettings, resolve
from cenote.recipe import Recipe
from cenote.runner import Runner
from cenote.server.serve import serve


def main() -> int:
    """Serve until a signal."""
    given = json.loads(sys.argv[1])
    server = resolve(ServerSettings, {"port": 0, **given["server"]}).settings
    if given["faulty"]:
        registry._default_runner = faulty
    model = resolve(ModelSettings, given["model"]).settings
    return serve(model, MachineSettings(**given["machine"]), server)


def faulty(recipe: Recipe, machine: MachineSettings) -> Runner:
    """A runner that does what poison tokens say; SIGUSR1 opens its gate."""
    from support.faulty import FaultyRunner

    runner = FaultyRunner(recipe, machine)
    signal.signal(signal.SIGUSR1, lambda *_: runner.gate.set())
    return runner


if __name__ == "__main__":
    sys.exit(main())
