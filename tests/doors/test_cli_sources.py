"""Texts from arguments, lines, JSON lines and Parquet, and what a broken record becomes."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from cenote.cli.sources import Record, Sources, chunks
from cenote.errors import BadInput


def _texts(records: list[Record]) -> list[str | None]:
    return [record.text for record in records]


def test_arguments_come_before_files_and_indices_run_on(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("three")
    sources = Sources(("zero",), (str(tmp_path / "a.txt"), str(tmp_path / "b.txt")))
    records = list(sources.read())
    assert _texts(records) == ["zero", "one", "two", "three"]
    assert [record.index for record in records] == [0, 1, 2, 3]
    assert records[-1].end == sources.total_units


def test_lines_keep_white_space_and_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf  left\t\r\n\nri\x0cght\xe2\x80\xa8 \n")
    assert _texts(list(Sources((), (str(path),)).read())) == ["  left\t", "", "ri\x0cght\u2028 "]


def test_json_lines_take_the_field_and_the_id(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "x", "body": "one"}\n\n"two"\n{"body": "three"}\n')
    records = list(Sources((), (str(path),), field="body").read())
    assert _texts(records) == ["one", "two", "three"]
    assert [record.id for record in records] == ["x", None, None]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"body": ', "Line 2 of"),
        ('{"title": "a"}', "no field 'body' but ['title']"),
        ('{"body": 5}', "of type int"),
        ("[1]", "neither a JSON object"),
    ],
)
def test_a_broken_json_line_is_one_failed_record(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'"one"\n{line}\n"three"\n')
    records = list(Sources((), (str(path),), field="body").read())
    assert _texts(records) == ["one", None, "three"]
    assert said in str(records[1].error)


def test_bytes_that_are_not_utf8_are_one_failed_record(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\xff\xfe\nthree\n")
    records = list(Sources(("\udcff",), (str(path),)).read())
    assert _texts(records) == [None, "one", None, "three"]
    assert isinstance(records[2].error, BadInput)


def test_standard_input_has_no_size_and_no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "one"}\n')))
    sources = Sources((), ("-",), lines="json")
    assert sources.total_units is None
    assert sources.identity() is None
    assert _texts(list(sources.read())) == ["one"]


def test_parquet_takes_a_column_and_its_ids(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"id": [7, 8, 9], "body": ["one", None, "three"]}), path)
    sources = Sources((), (str(path),), field="body")
    records = list(sources.read())
    assert _texts(records) == ["one", None, "three"]
    assert [record.id for record in records] == [7, 8, 9]
    assert "Row 2" in str(records[1].error)
    assert records[-1].end == pytest.approx(path.stat().st_size)
    with pytest.raises(BadInput, match=r"no column 'text'.*id, body.*--field"):
        list(Sources((), (str(path),)).read())


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(ImportError, match=r"cenote\[parquet\]"):
        list(Sources((), (str(path),)).read())


def test_a_file_that_is_no_parquet_is_bad_input(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    path.write_text("no parquet at all")
    with pytest.raises(BadInput, match="is not a Parquet file"):
        list(Sources((), (str(path),)).read())


def test_identity_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    before = Sources((), (str(path),)).identity()
    assert json.loads(json.dumps(before)) == before
    path.write_text("one more\n")
    assert Sources((), (str(path),)).identity() != before


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        (Sources((), ()), "There is no text"),
        (Sources((), ("nowhere.txt",)), "There is no file nowhere.txt"),
        (Sources((), ("-", "-")), "more than once"),
    ],
)
def test_check_refuses_what_cannot_be_read(sources: Sources, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        sources.check()


def test_chunks_are_bounded_by_texts_and_characters() -> None:
    records = [Record(index, "x" * size, 0) for index, size in enumerate([1, 1, 1, 50, 1])]
    assert [len(group) for group in chunks(iter(records), 2, 50)] == [2, 2, 1]
    assert [len(group) for group in chunks(iter(records), 9, 3)] == [3, 1, 1]
