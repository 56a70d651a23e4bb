"""The task of DirectorySink, driven by hand: files, rotation, and two writers."""

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.connector import DataError, Schema
from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.connector.config import ConfigError
from headgate.testing import FakeSinkContext
from headgate_connectors.directory_sink import DirectorySink, DirectorySinkTask
from headgate_connectors.output.manifest import ManifestError

ROW = s.struct({"n": s.INT64, "price": s.decimal_of(2, 10).as_optional()})
PLACE = ("t", 0)


def task(
    folder: Path, by_group: int = 0, *, reports: bool = False, **settings: Any
) -> DirectorySinkTask:
    made = DirectorySinkTask()
    made.context = FakeSinkContext(
        committed={PLACE: by_group} if by_group else None, reports=reports
    )
    config = {name.replace("_", "."): str(value) for name, value in settings.items()}
    made.start({"name": "sink", "path": str(folder), "rotate.interval.ms": "600000", **config})
    made.open([PLACE])
    return made


def record(offset: int, value: Any, schema: Schema | None = ROW) -> SinkRecord:
    return SinkRecord("t", 0, offset, None, value, (), 0, None, schema)


def rows(*numbers: int) -> list[SinkRecord]:
    return [record(n, {"n": n, "price": Decimal(n)}) for n in numbers]


def read(folder: Path) -> list[Mapping[str, Any]]:
    tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    return [row for table in tables for row in table.to_pylist()]


def numbers(folder: Path) -> list[int]:
    return [row["n"] for row in read(folder)]


def test_files_are_published_by_records_and_the_last_when_it_stops(tmp_path: Path) -> None:
    subject = task(tmp_path, rotate_records=3)
    for start in range(0, 8, 2):
        subject.put(rows(start, start + 1))
    assert numbers(tmp_path) == list(range(8))
    subject.put(rows(8))
    assert subject.pre_commit({PLACE: 9}) == {PLACE: 8}
    subject.context.stopping = True  # type: ignore[misc]
    assert subject.pre_commit({PLACE: 9}) == {PLACE: 9}
    assert numbers(tmp_path) == list(range(9))
    assert pq.read_schema(next(tmp_path.glob("*.parquet"))).field("price").type == pa.decimal128(
        10, 2
    )


def test_files_are_published_by_bytes_and_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_bytes = task(tmp_path / "bytes", rotate_bytes=1, format="jsonl")
    for n in range(3):
        by_bytes.put([record(n, "x", None)])
    assert len(list((tmp_path / "bytes").glob("*.jsonl"))) == 3
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    by_time = task(tmp_path / "time", rotate_interval_ms=1_000)
    by_time.put(rows(0))
    now[0] += 0.9
    by_time.put(rows(1))
    assert numbers(tmp_path / "time") == []
    now[0] += 0.1
    by_time.put([])
    assert numbers(tmp_path / "time") == [0, 1]
    assert by_time.pre_commit({PLACE: 2}) == {PLACE: 2}


def test_what_was_not_committed_is_read_again_and_what_was_is_not(tmp_path: Path) -> None:
    first = task(tmp_path, rotate_records=2)
    first.put(rows(0, 1))
    first.put(rows(2))
    first.close([PLACE])
    second = task(tmp_path, rotate_records=2)
    assert second.context.seeks == {PLACE: 2}  # type: ignore[attr-defined]
    second.put(rows(0, 1, 2, 3))  # as a group that is behind delivers them
    assert numbers(tmp_path) == [0, 1, 2, 3]


def test_of_two_tasks_with_the_same_records_one_counts(tmp_path: Path) -> None:
    """A task that was frozen wakes up after its partition was given away."""
    late, owner = task(tmp_path, rotate_records=4), task(tmp_path, rotate_records=2)
    late.put(rows(0, 1))
    owner.put(rows(0, 1))
    late.put(rows(2, 3))
    assert late.context.seeks == {PLACE: 2}  # type: ignore[attr-defined]
    assert late.pre_commit({PLACE: 4}) == {PLACE: 2}
    owner.put(rows(2, 3))
    late.put(rows(2, 3, 4, 5))
    late.close([PLACE])
    assert numbers(tmp_path) == [0, 1, 2, 3]
    assert task(tmp_path).context.seeks == {PLACE: 4}  # type: ignore[attr-defined]


def test_a_task_killed_between_commit_and_publication_is_finished(tmp_path: Path) -> None:
    task(tmp_path, rotate_records=2).put(rows(0, 1))
    (entry,) = (tmp_path / "_headgate").glob("t-0-*.json")
    found = json.loads(entry.read_bytes())
    (tmp_path / found["file"]).rename(tmp_path / found["staged"])
    assert numbers(tmp_path) == []
    task(tmp_path)
    assert numbers(tmp_path) == [0, 1]


def test_a_committed_file_that_is_gone_is_told(tmp_path: Path) -> None:
    task(tmp_path, rotate_records=2).put(rows(0, 1))
    next(tmp_path.glob("*.parquet")).unlink()
    with pytest.raises(ManifestError, match=r"1 committed file is gone from .*, with 2 records"):
        task(tmp_path)
    accepted = task(tmp_path, on_missing_output="accept")
    assert accepted.context.seeks == {PLACE: 2}  # type: ignore[attr-defined]
    assert "is gone" in accepted.context.logged[0]  # type: ignore[attr-defined]


def test_a_column_has_one_type_in_a_folder(tmp_path: Path) -> None:
    """Reported to Spark (23822) and Hudi (4043): int64 in one file, double in the next."""
    subject = task(tmp_path, rotate_records=1)
    subject.put(rows(0))
    other = s.struct({"n": s.FLOAT64})
    with pytest.raises(DataError, match="offset 1: column n is of type double, expected int64"):
        subject.put([record(1, {"n": 1.5}, other)])


def test_new_columns_are_added_and_missing_ones_are_null(tmp_path: Path) -> None:
    subject = task(tmp_path, rotate_records=10)
    subject.put(rows(0))
    subject.put([record(1, {"more": "x"}, s.struct({"more": s.STRING}))])
    subject.put(rows(2))
    subject.context.stopping = True  # type: ignore[misc]
    subject.pre_commit({PLACE: 3})
    assert read(tmp_path) == [
        {"n": 0, "price": Decimal("0.00")},
        {"n": None, "price": None, "more": "x"},
        {"n": 2, "price": Decimal("2.00"), "more": None},
    ]


@pytest.mark.parametrize(("one", "other"), [("ID", "id"), ("Straße", "straße"), ("É", "é")])
def test_columns_that_differ_by_case_are_refused_by_name(
    tmp_path: Path, one: str, other: str
) -> None:
    """Spark, Hive and DuckDB refuse a folder with both (SPARK-25207, duckdb 7956)."""
    subject = task(tmp_path)
    subject.put([record(0, {one: 1}, s.struct({one: s.INT64}))])
    with pytest.raises(DataError, match=f"offset 1: column {other} differs from column {one} of"):
        subject.put([record(1, {other: 2}, s.struct({other: s.INT64}))])
    both = s.struct({one: s.INT64, other: s.INT64})
    with pytest.raises(DataError, match=f"column {other} differs from column {one} of"):
        task(tmp_path / "both").put([record(0, {one: 1, other: 2}, both)])


def test_fields_of_structs_that_differ_by_case_are_refused_by_name(tmp_path: Path) -> None:
    """Spark refuses a folder with both, at any depth."""
    inner = s.struct({"ID": s.INT64, "id": s.INT64})
    value = {"ID": 1, "id": 2}
    for schema, given, path in (
        (inner, value, "p."),
        (s.array(inner), [value], "p."),
        (s.map_of(s.STRING, s.struct({"q": inner})), {"k": {"q": value}}, "p.value.q."),
    ):
        subject = task(tmp_path / str(schema.type))
        with pytest.raises(DataError, match=f"{path}id differs from column {path}ID of"):
            subject.put([record(0, {"p": given}, s.struct({"p": schema}))])


def test_tombstones_fail_or_are_skipped(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"offset 0 has no value \(a tombstone\)"):
        task(tmp_path).put([record(0, None, None)])
    subject = task(tmp_path, on_null_value="skip", rotate_records=1)
    subject.put([record(0, None, None)])
    assert subject.pre_commit({PLACE: 1}) == {PLACE: 1}
    subject.put(rows(1))
    assert numbers(tmp_path) == [1]


def test_a_dict_without_a_schema_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="offset 0 is a dict without a schema"):
        task(tmp_path).put([record(0, {"a": 1}, None)])


def test_a_value_that_its_column_cannot_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="column price of type decimal128"):
        task(tmp_path).put([record(0, {"n": 1, "price": Decimal(10) ** 12})])
    assert numbers(tmp_path) == []


@pytest.mark.parametrize("format", ["parquet", "arrow", "csv"])
def test_records_that_no_file_can_hold_are_reported_and_the_others_written(
    tmp_path: Path, format: str
) -> None:
    """With an errant record reporter, a record of another type harms no other record."""
    other = s.struct({"n": s.STRING})
    case = s.struct({"N": s.INT64})
    subject = task(tmp_path, reports=True, format=format)
    subject.put(
        [
            *rows(0),
            record(1, {"n": "x"}, other),
            *rows(2),
            record(3, None, None),
            record(4, {"a": 1}, None),
            record(5, {"N": 5}, case),
            *rows(6),
        ]
    )
    assert isinstance(subject.context, FakeSinkContext)
    told = [(one.offset, str(error)) for one, error in subject.context.reported]
    assert [offset for offset, _ in told] == [1, 3, 4, 5]
    for (offset, text), expected in zip(
        told,
        ["column n is of type string, expected int64", "tombstone", "a dict without", "case only"],
        strict=True,
    ):
        assert f"the value at t-0 offset {offset}" in text
        assert expected in text
    subject.context.stopping = True
    assert subject.pre_commit({PLACE: 7}) == {PLACE: 7}
    if format == "parquet":
        assert numbers(tmp_path) == [0, 2, 6]


@pytest.mark.parametrize("bad", [[0], [3], [6], [0, 1, 2, 3, 4, 5, 6], [2, 5]])
def test_values_that_no_file_can_hold_are_reported_one_by_one(
    tmp_path: Path, bad: list[int]
) -> None:
    subject = task(tmp_path, reports=True)
    subject.put(
        [
            record(n, {"n": n, "price": Decimal(10) ** 12 if n in bad else Decimal(n)})
            for n in range(7)
        ]
    )
    assert isinstance(subject.context, FakeSinkContext)
    assert [one.offset for one, _ in subject.context.reported] == bad
    for one, error in subject.context.reported:
        assert str(error).startswith(f"the value at t-0 offset {one.offset}: column price of type")
    subject.context.stopping = True
    assert subject.pre_commit({PLACE: 7}) == {PLACE: 7}
    assert numbers(tmp_path) == [n for n in range(7) if n not in bad]


def test_the_record_whose_value_does_not_fit_is_named(tmp_path: Path) -> None:
    wrong = record(2, {"n": 2, "price": Decimal(10) ** 12})
    with pytest.raises(DataError, match="the value at t-0 offset 2: column price of type"):
        task(tmp_path).put([*rows(0, 1), wrong, *rows(3)])


def test_empty_bytes_and_null_differ_in_csv(tmp_path: Path) -> None:
    columns = s.struct({"n": s.INT64, "data": s.BYTES.as_optional()})
    given = [record(n, {"n": n, "data": data}, columns) for n, data in enumerate([b"", None, b"x"])]
    task(tmp_path, format="csv", rotate_records=3).put(given)
    (path,) = tmp_path.glob("*.csv")
    assert path.read_text() == 'n,data\n0,""\n1,\n2,eA==\n'


@pytest.mark.parametrize("kind", [s.STRING, s.INT64])
def test_a_null_that_is_all_of_a_csv_row_is_refused_by_name(tmp_path: Path, kind: Schema) -> None:
    """An empty line is no row to those who read the file."""
    columns = s.struct({"only": kind.as_optional()})
    with pytest.raises(DataError, match="offset 0: column only is null, and is the only one"):
        task(tmp_path, format="csv").put([record(0, {"only": None}, columns)])


def test_a_csv_column_that_begins_as_a_byte_order_mark_is_quoted(tmp_path: Path) -> None:
    columns = s.struct({"\ufeffa": s.INT64})
    task(tmp_path, format="csv", rotate_records=1).put([record(0, {"\ufeffa": 1}, columns)])
    (path,) = tmp_path.glob("*.csv")
    assert path.read_bytes() == '"\ufeffa"\n1\n'.encode()


def test_floats_that_are_no_numbers_stay_in_lines_of_json(tmp_path: Path) -> None:
    """Once they became null."""
    columns = s.struct({"x": s.FLOAT64, "l": s.array(s.FLOAT32)})
    odd = [math.nan, math.inf, -math.inf, -0.0]
    task(tmp_path, format="jsonl", rotate_records=4).put(
        [record(n, {"x": one, "l": [one]}, columns) for n, one in enumerate(odd)]
    )
    (path,) = tmp_path.glob("*.jsonl")
    assert path.read_text().splitlines() == [
        '{"x":"NaN","l":["NaN"]}',
        '{"x":"Infinity","l":["Infinity"]}',
        '{"x":"-Infinity","l":["-Infinity"]}',
        '{"x":-0.0,"l":[-0.0]}',
    ]


def test_lines_of_json_and_csv(tmp_path: Path) -> None:
    values = [record(0, '{"a": 1}', None), record(1, "plain", None), *rows(2)]
    values.append(record(3, "\ufeff[]", None))  # no JSON: a file that begins so would lose it
    subject = task(tmp_path / "json", format="jsonl", rotate_records=4)
    subject.put(values)
    (path,) = (tmp_path / "json").glob("*.jsonl")
    assert path.read_text() == '{"a": 1}\n"plain"\n{"n":2,"price":"2"}\n"\ufeff[]"\n'
    columns = s.struct({"n": s.INT64, "text": s.STRING.as_optional()})
    given = [record(n, {"n": n, "text": text}, columns) for n, text in enumerate([None, "", 'a"b'])]
    subject = task(tmp_path / "csv", format="csv", rotate_records=3)
    subject.put(given)
    (path,) = (tmp_path / "csv").glob("*.csv")
    assert path.read_text() == 'n,text\n0,\n1,""\n2,"a""b"\n'


def test_arrow_files(tmp_path: Path) -> None:
    task(tmp_path, format="arrow", rotate_records=2).put(rows(0, 1))
    (path,) = tmp_path.glob("*.arrow")
    assert pa.ipc.open_file(path).read_all()["n"].to_pylist() == [0, 1]


def test_a_folder_belongs_to_one_connector(tmp_path: Path) -> None:
    task(tmp_path)
    with pytest.raises(ManifestError, match="connector sink writes to"):
        task(tmp_path, name="other")


def test_offsets_are_those_of_the_files() -> None:
    with pytest.raises(ConfigError, match="give it another name and path"):
        DirectorySink.alter_offsets({}, {PLACE: 0})


def test_a_folder_that_is_gone_as_a_whole_is_an_error(tmp_path: Path) -> None:
    """The folder's manifest is gone with it, so only the group's offsets show that there were
    files."""
    with pytest.raises(ManifestError, match="committed its records up to offset 11: put back"):
        task(tmp_path / "out", by_group=11)
    subject = task(tmp_path / "out", by_group=11, on_missing_output="accept")
    assert "no file of t-0" in subject.context.logged[0]  # type: ignore[attr-defined]
    subject.put(rows(11, 12))
    subject.context.stopping = True  # type: ignore[misc]
    assert subject.pre_commit({PLACE: 13}) == {PLACE: 13}
    assert numbers(tmp_path / "out") == [11, 12]
