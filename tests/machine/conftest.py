from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cenote.config import MachineSettings, ModelSettings
from cenote.registry import Registry
from support.faulty import FaultyRunner, Serve, Served
from support.fixtures import Tiny


@pytest.fixture(scope="session")
def folder(tiny: Tiny) -> Path:
    """A tiny BERT of 300 positions."""
    return tiny("bert", max_positions=300)


@pytest.fixture
def serve(folder: Path) -> Iterator[Serve]:
    """`serve(num_workers=1)`: a `Served` with these machine settings; closed after the test."""
    opened: list[Served] = []

    def open_it(**settings: Any) -> Served:
        runners: list[FaultyRunner] = []

        def make(*arguments: Any) -> FaultyRunner:
            runners.append(FaultyRunner(*arguments))
            return runners[0]

        machine = MachineSettings(**{"device": "cpu", "num_workers": 2, "threads_per_worker": 1, **settings})
        registry = Registry(machine, runner_factory=make)
        served = Served(registry, registry.open(ModelSettings(model=str(folder)), ("tiny",)), runners[0])
        opened.append(served)
        return served

    yield open_it
    for served in opened:
        served.runner.gate.set()
        served.registry.close()
