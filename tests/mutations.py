"""Break the product on purpose, one small edit at a time, and see that the tests that guard the spot fail.

    python tests/mutations.py              # all of them, and docs/parity.md is written anew
    python tests/mutations.py --only NAME  # some of them, as a check; nothing is written

Each mutation is tried on a copy of `src`, in a process of its own. The lists are `support/mutations_*.py`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "parity.md"
LIMIT_S = 240
sys.path.insert(0, str(ROOT / "tests"))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from support.mutation import Mutation  # noqa: E402
from support.mutation_list import CONTROL, MUTATIONS  # noqa: E402


@dataclass(frozen=True)
class Verdict:
    """What the tests said of one copy of the product.

    Args:
        code: pytest's exit code: 0 where all passed, 1 where one failed; -1 where the process died.
        caught_by: The first test that failed.
        seconds: How long they took.
        ran: How many tests ran.
        output: What pytest printed.
    """

    code: int
    caught_by: str
    seconds: float
    ran: int
    output: str

    @property
    def killed(self) -> bool:
        return self.code == 1 and bool(self.caught_by)


class Recorder:
    """A pytest plugin that remembers which test failed first; only a failing call counts, never a failing import."""

    def __init__(self) -> None:
        self.caught_by = ""
        self.ran = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.ran += report.when == "call"
        if report.failed and report.when in ("setup", "call") and not self.caught_by:
            self.caught_by = report.nodeid


def main() -> int:
    """Run what the command line asks for; 0 if every mutation was caught and the control was not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names of mutations; nothing is written")
    chosen = parser.parse_args().only
    unknown = set(chosen or ()) - {mutation.name for mutation in MUTATIONS}
    if unknown:
        parser.error(f"no such mutation: {', '.join(sorted(unknown))}")
    import_references()
    mutations = [mutation for mutation in MUTATIONS if chosen is None or mutation.name in chosen]
    verdicts = [(mutation, show(mutation, trial(mutation))) for mutation in mutations]
    control = trial(CONTROL, [guard for mutation in mutations for guard in mutation.guards])
    show(CONTROL, control)
    wrong = [mutation.name for mutation, verdict in verdicts if not verdict.killed]
    if control.code != 0:
        print(control.output)
        wrong.append(CONTROL.name)
    if wrong:
        print(f"\nNot as it should be: {', '.join(wrong)}")
        return 1
    if chosen is None:
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(document(measured(), verdicts), encoding="utf-8")
        print(f"\n{DOCUMENT.relative_to(ROOT)} is written.")
    return 0


def import_references() -> None:
    """Do what is slow once: a forked child has it already. Nothing here may import Cenote."""
    for name in ("pytest", "torch", "transformers", "sentence_transformers"):
        importlib.import_module(name)
    vocab = importlib.import_module("support.vocab")
    for model_type in ("bert", "distilbert", "mpnet", "roberta", "xlm-roberta", "camembert", "modernbert", "llama"):
        # Trained once here and remembered, so that no child trains it again.
        vocab.tiny_tokenizer(model_type, max_tokens=70)
    assert "cenote" not in sys.modules, "the children must import their own copy"


def trial(mutation: Mutation, guards: Sequence[str] = ()) -> Verdict:
    """Run the guards of `mutation` on a copy of the product that has it."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = source / "cenote" / mutation.file
        path.write_text(mutation.applied(path.read_text(encoding="utf-8")), encoding="utf-8")
        started = time.monotonic()
        told = in_child(lambda: run_guards(source, guards or mutation.guards, Path(scratch)), Path(scratch))
        return Verdict(seconds=time.monotonic() - started, **told)


def run_guards(source: Path, guards: Sequence[str], scratch: Path) -> dict[str, Any]:
    """In the child: run pytest on the copy in `source`."""
    import pytest

    sys.path.insert(0, str(source))
    recorder = Recorder()
    paths = f"pythonpath={source} {ROOT / 'tests'} {ROOT} {ROOT / 'kernels' / 'src'}"
    # Plugins of pytest that the parent has imported cannot be rewritten, and need not be.
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options = [
        *quiet,
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "support.fixtures",
        "--import-mode=importlib",
        "-o",
        paths,
    ]
    arguments = [f"--rootdir={ROOT}", f"--basetemp={scratch / 'pytest'}", *options]
    code = pytest.main([*arguments, *(str(ROOT / guard) for guard in dict.fromkeys(guards))], plugins=[recorder])
    used = importlib.import_module("cenote").__file__
    assert str(used).startswith(str(source)), f"the tests used another copy of Cenote: {used}"
    return {"code": int(code), "caught_by": recorder.caught_by, "ran": recorder.ran}


def in_child(work: Callable[[], dict[str, Any]], scratch: Path) -> dict[str, Any]:
    """What `work` returns in a forked child, with the child's output; code -1 where the child died."""
    told, output = scratch / "told.json", scratch / "output.txt"
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT_S)
        try:
            with output.open("w", encoding="utf-8") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                told.write_text(json.dumps(work()), encoding="utf-8")
                sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.waitpid(child, 0)
    printed = output.read_text(encoding="utf-8", errors="replace")
    found = json.loads(told.read_text(encoding="utf-8")) if told.exists() else {"code": -1, "caught_by": "", "ran": 0}
    return {**found, "output": printed}


def show(mutation: Mutation, verdict: Verdict) -> Verdict:
    """Print one line of the table, and pytest's output where a mutation was not caught."""
    word = {0: "not caught", 1: "caught"}.get(verdict.code, "no verdict")
    print(
        f"{mutation.name:48} {word:10} {verdict.seconds:5.1f} s  {verdict.caught_by or f'{verdict.ran} tests'}",
        flush=True,
    )
    if mutation is not CONTROL and not verdict.killed:
        print(verdict.output)
    return verdict


def measured() -> dict[str, dict[str, float]]:
    """Name of a parity case -> its largest differences, measured in a child on the product as it is."""

    def work() -> dict[str, Any]:
        sys.path.insert(0, str(ROOT / "src"))
        from support.parity import CASES, make_case, measure

        found = {name: asdict(measure(make_case(name, Path(scratch) / name))) for name in CASES}
        return {"cases": found}

    with tempfile.TemporaryDirectory() as scratch:
        told = in_child(work, Path(scratch))
    cases: dict[str, dict[str, float]] = told["cases"]
    return cases


def document(cases: dict[str, dict[str, float]], verdicts: Sequence[tuple[Mutation, Verdict]]) -> str:
    """The text of docs/parity.md."""
    from importlib.metadata import version

    versions = f"transformers {version('transformers')} and torch {version('torch').split('+')[0]}"
    measures = [f"| {name} | {found['reference']:.1e} | {found['batch']:.1e} |" for name, found in cases.items()]
    caught = [f"| {m.name} | `{m.file}` | `{short(v.caught_by)}` |" for m, v in verdicts]
    return "\n".join(
        [
            "# Parity",
            "",
            "Written by `python tests/mutations.py`; do not edit it.",
            "",
            "## Differences",
            "",
            f"Tiny random checkpoints in float32 on a CPU, against {versions} (eager, one text at a time).",
            "A difference is max|a-b| / max|b| of one text's last hidden states; the largest of a batch is shown.",
            "Against the reference 1e-5 is allowed; between a text alone and in any batch, 2e-6.",
            "At these small sizes the products of a text do not depend on its batch; at real ones their rounding may.",
            "",
            "| case | to the reference | alone to batched |",
            "|---|---|---|",
            *measures,
            "",
            "## Mutations",
            "",
            "Each line is one small edit of the product and the first test that fails with it. Without an edit, all of",
            "these tests pass.",
            "",
            "| edit | file | caught by |",
            "|---|---|---|",
            *caught,
            "",
        ]
    )


def short(nodeid: str) -> str:
    """`tests/models/test_parity.py::test_x[case]` without the folders."""
    return nodeid.rsplit("/", 1)[-1]


if __name__ == "__main__":
    sys.exit(main())
