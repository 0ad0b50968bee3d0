from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from cenote.config import MachineSettings, ModelSettings
from cenote.errors import ConfigError, ModelNotFound, Unavailable
from cenote.registry import Registry
from support.faulty import WAIT_S, Serve

MACHINE = MachineSettings(device="cpu", num_workers=2, threads_per_worker=1)


def test_models_answer_to_their_names(folder: Path) -> None:
    with Registry(MACHINE) as registry:
        with pytest.raises(ModelNotFound, match="none"):
            registry.get()
        first = registry.open(ModelSettings(model=str(folder)), ("first", "alias"))
        assert registry.get() is registry.get("") is registry.get("alias") is registry.get("first") is first
        assert (first.name, first.aliases) == ("first", ("alias",))
        with pytest.raises(ModelNotFound, match=r"The model `other` does not exist\. Served here: `first`, `alias`"):
            registry.get("other")
        with pytest.raises(ConfigError, match="alias"):
            registry.open(ModelSettings(model=str(folder)), ("alias",))
        second = registry.open(ModelSettings(model=str(folder)))
        assert registry.get(str(folder)) is second
        assert registry.engines() == [first, second]
        with pytest.raises(ModelNotFound, match="2 are served"):
            registry.get()


def test_workers_draw_from_all_models_in_turn(folder: Path) -> None:
    with Registry(MACHINE) as registry:
        engines = [registry.open(ModelSettings(model=str(folder)), (name,)) for name in "abc"]
        calls = [engine.submit("embed", [f"text {number}"]) for number in range(20) for engine in engines]
        rows = np.stack([call.result().rows for call in calls]).reshape(20, 3, -1)
    np.testing.assert_allclose(rows[:, 0], rows[:, 1], atol=1e-6)
    np.testing.assert_allclose(rows[:, 0], rows[:, 2], atol=1e-6)


def test_what_cannot_be_opened_leaves_the_registry_usable(folder: Path, tmp_path: Path) -> None:
    with Registry(MACHINE) as registry:
        with pytest.raises(ModelNotFound):
            registry.open(ModelSettings(model=str(tmp_path / "nowhere" / "no" / "model")))
        assert registry.engines() == []
        assert registry.open(ModelSettings(model=str(folder))).run_call("embed", ["text"]).errors == {}


def test_drain_waits_for_what_runs_and_refuses_the_rest(serve: Serve) -> None:
    served = serve(num_workers=1)
    call = served.occupy()
    states = [served.registry.state]
    assert not served.registry.drain(0.01)
    states.append(served.registry.state)
    assert states == ["ready", "draining"]
    with pytest.raises(Unavailable, match="tiny is shutting down"):
        served.engine.submit("embed", ["more"])
    served.runner.gate.set()
    assert served.registry.drain(WAIT_S)
    assert call.result().errors == {}


def test_close_ends_what_waits(serve: Serve) -> None:
    served = serve(num_workers=1)
    running = served.occupy()
    waiting = served.engine.submit("embed", ["text"])
    closing = threading.Thread(target=served.registry.close)
    closing.start()
    for call in (running, waiting):
        with pytest.raises(Unavailable, match="closed"):
            call.result()
    served.runner.gate.set()
    closing.join(WAIT_S)
    served.registry.close()
    assert served.registry.state == "closed"
    with pytest.raises(Unavailable):
        served.engine.submit("embed", ["more"])
    with pytest.raises(Unavailable, match="closed"):
        served.registry.open(ModelSettings())


def test_those_who_wait_for_room_hear_of_the_end(serve: Serve) -> None:
    served = serve(num_workers=1, max_queue_tokens=1)
    served.occupy()
    served.engine.submit("embed", ["fills the queue"])
    ends: list[BaseException] = []

    def wait_for_room() -> None:
        try:
            served.engine.submit("embed", ["text"], wait=True)
        except Unavailable as error:
            ends.append(error)

    thread = threading.Thread(target=wait_for_room)
    thread.start()
    served.registry.drain(0.0)
    thread.join(WAIT_S)
    assert len(ends) == 1
    served.runner.gate.set()


def test_a_forgotten_registry_is_collected_and_its_threads_end(folder: Path) -> None:
    # Models of other tests may stay open in this process, and their threads have the same names.
    others = set(threading.enumerate())
    registry = Registry(MACHINE)
    runner = weakref.ref(registry.open(ModelSettings(model=str(folder))).runner)
    mine = [one for one in threading.enumerate() if one not in others and one.name.startswith("cenote-worker")]
    assert mine
    assert runner() is not None
    del registry
    gc.collect()
    for thread in mine:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    gc.collect()
    assert runner() is None


FORGETS = """
import sys
from cenote.config import MachineSettings, ModelSettings
from cenote.registry import Registry

registry = Registry(MachineSettings(device="cpu", num_workers=2))
engine = registry.open(ModelSettings(model=sys.argv[1]))
engine.run_call("embed", ["text"])
calls = [engine.submit("embed", [f"text {i} {j}" for j in range(50)], lane="bulk") for i in range(100)]
print("done")
"""


def test_the_interpreter_ends_without_close(folder: Path) -> None:
    source = Path(__file__).parents[2] / "src"
    ended = subprocess.run(
        [sys.executable, "-c", FORGETS, str(folder)],
        env={"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
