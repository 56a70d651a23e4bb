"""DirectorySink gets records that change their types. Each column of the folder has one type, and
no value changes."""

import datetime
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.connector import DataError, Schema
from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.connector.batches import SinkBatch
from headgate.connector.times import UNIT_TIMESTAMP, time_schema
from headgate.testing import FakeSinkContext
from headgate_arrow.rows import batch_of
from headgate_connectors.directory_sink import DirectorySink, DirectorySinkTask

PLACE = ("t", 0)
by_record_and_batch = pytest.mark.parametrize("as_batch", [False, True], ids=["records", "batch"])


def task(folder: Path, *, reports: bool = False, **settings: str) -> DirectorySinkTask:
    made = DirectorySinkTask()
    made.context = FakeSinkContext(reports=reports)
    config = {name.replace("_", "."): value for name, value in settings.items()}
    made.start({"name": "sink", "path": str(folder), "rotate.interval.ms": "600000", **config})
    made.open([PLACE])
    return made


def struct(**columns: Schema) -> Schema:
    return s.struct({name: one.as_optional() for name, one in columns.items()})


def give(
    subject: DirectorySinkTask,
    offset: int,
    schema: Schema,
    rows: Sequence[dict[str, Any]],
    as_batch: bool = False,
) -> int:
    """Give the rows to the task. Return the offset after them."""
    if as_batch:
        subject.put_batch(SinkBatch(*PLACE, offset, batch_of(list(rows), schema), schema))
    else:
        subject.put(
            [SinkRecord(*PLACE, offset + n, None, row, (), 0, None, schema)
             for n, row in enumerate(rows)]
        )  # fmt: skip
    return offset + len(rows)


def end(subject: DirectorySinkTask, offset: int) -> None:
    subject.context.stopping = True  # type: ignore[misc]
    assert subject.pre_commit({PLACE: offset}) == {PLACE: offset}


def read(folder: Path) -> tuple[list[dict[str, Any]], set[Any]]:
    """Rows of all files in their order, and the schemas of the files."""
    tables = []
    for path in sorted(folder.glob("t-0-*")):
        if path.suffix == ".arrow":
            tables.append(pa.ipc.open_file(path).read_all())
        else:
            tables.append(pq.read_table(path))
    rows = [row for table in tables for row in table.to_pylist()]
    return rows, {table.schema.remove_metadata() for table in tables}


POINT = s.struct({"x": s.INT32})
WIDE = struct(
    n=s.INT64,
    x=s.FLOAT64,
    sum=s.decimal_of(4, 20),
    at=time_schema(UNIT_TIMESTAMP, "us", "UTC"),
    tags=s.array(s.INT64),
    point=s.struct({"x": s.INT64, "y": s.STRING.as_optional()}),
)
NARROW = struct(
    n=s.INT8,
    x=s.INT64,
    sum=s.INT16,
    at=s.TIMESTAMP_SCHEMA,
    tags=s.array(s.INT16),
    point=POINT,
)
AT = datetime.datetime(2026, 11, 26, 7, 5, tzinfo=datetime.UTC)
MICROS = 1_795_676_700_000_000
BIG = {
    "n": 2**40, "x": 0.1, "sum": Decimal("1.0001"), "at": MICROS, "tags": [2**40],
    "point": {"x": 2**40, "y": "y"},
}  # fmt: skip
SMALL = {"n": -7, "x": 2**53, "sum": 300, "at": AT, "tags": [1, 2], "point": {"x": 3}}


@by_record_and_batch
@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_narrower_values_are_written_unchanged_in_the_folders_types(
    tmp_path: Path, as_batch: bool, format: str
) -> None:
    subject = task(tmp_path, schema_evolution="widen", format=format, rotate_records="2")
    place = give(subject, 0, WIDE, [BIG], as_batch)
    place = give(subject, place, NARROW, [SMALL, SMALL, SMALL], as_batch)
    end(subject, give(subject, place, WIDE, [BIG], as_batch))
    rows, schemas = read(tmp_path)
    assert len(schemas) == 1
    big = {**BIG, "at": AT}
    small = {
        "n": -7, "x": float(2**53), "sum": Decimal("300.0000"), "at": AT, "tags": [1, 2],
        "point": {"x": 3, "y": None},
    }  # fmt: skip
    assert rows == [big, small, small, small, big]


@by_record_and_batch
def test_a_value_that_does_not_hold_is_reported_and_its_neighbours_arrive_in_order(
    tmp_path: Path, as_batch: bool
) -> None:
    subject = task(tmp_path, reports=True, schema_evolution="widen")
    place = give(subject, 0, struct(x=s.FLOAT64), [{"x": 0.5}], as_batch)
    rows = [{"x": n} for n in (1, 2**53 + 1, 3, 2**63 - 1, 5)]
    place = give(subject, place, struct(x=s.INT64), rows, as_batch)
    end(subject, give(subject, place, struct(x=s.FLOAT64), [{"x": 6.5}], as_batch))
    found, _ = read(tmp_path)
    assert [row["x"] for row in found] == [0.5, 1.0, 3.0, 5.0, 6.5]
    reported = subject.context.reported  # type: ignore[attr-defined]
    assert [record.offset for record, _ in reported] == [2, 4]
    assert "column x of type int64 has a value that is no double" in str(reported[0][1])


@by_record_and_batch
def test_a_value_that_does_not_hold_fails_the_task_where_nobody_takes_it(
    tmp_path: Path, as_batch: bool
) -> None:
    subject = task(tmp_path, schema_evolution="widen")
    give(subject, 0, struct(x=s.FLOAT64), [{"x": 0.5}])
    with pytest.raises(DataError, match="t-0 offset 2: column x of type int64"):
        give(subject, 1, struct(x=s.INT64), [{"x": 1}, {"x": 2**53 + 1}], as_batch)


def test_by_default_a_narrower_type_is_refused_and_the_setting_named(tmp_path: Path) -> None:
    subject = task(tmp_path)
    give(subject, 0, struct(n=s.INT64), [{"n": 1}])
    with pytest.raises(DataError, match=r"set schema\.evolution = widen to have it widened"):
        give(subject, 1, struct(n=s.INT32), [{"n": 1}])


def test_a_wider_type_is_refused_by_name(tmp_path: Path) -> None:
    subject = task(tmp_path, schema_evolution="widen")
    give(subject, 0, struct(n=s.INT32), [{"n": 1}])
    advice = "another path, with the wider type in columns.types from its first file on"
    with pytest.raises(DataError, match=f"column n is of type int64, expected int32, .*{advice}"):
        give(subject, 1, struct(n=s.INT64), [{"n": 1}])


def test_a_folder_begins_with_the_types_that_are_declared(tmp_path: Path) -> None:
    settings = {"schema_evolution": "widen", "columns_types": "n: int64, note: string"}
    subject = task(tmp_path, **settings)
    place = give(subject, 0, struct(n=s.INT32), [{"n": 1}])
    end(subject, give(subject, place, struct(n=s.INT64), [{"n": 2**40}]))
    again = task(tmp_path, **settings)
    end(again, give(again, 2, struct(n=s.INT8, note=s.STRING), [{"n": 3, "note": "x"}]))
    rows, schemas = read(tmp_path)
    assert len(schemas) == 1
    assert rows == [
        {"n": 1, "note": None},
        {"n": 2**40, "note": None},
        {"n": 3, "note": "x"},
    ]


def test_types_that_are_declared_later_than_the_first_record_are_refused(tmp_path: Path) -> None:
    subject = task(tmp_path)
    end(subject, give(subject, 0, struct(n=s.INT32), [{"n": 1}]))
    with pytest.raises(DataError, match="column n is of type int64, expected int32"):
        task(tmp_path, columns_types="n: int64")


def test_csv_files_have_the_folders_type_too(tmp_path: Path) -> None:
    subject = task(tmp_path, schema_evolution="widen", format="csv")
    place = give(subject, 0, struct(p=s.decimal_of(2, 10)), [{"p": Decimal("1.50")}])
    end(subject, give(subject, place, struct(p=s.INT64), [{"p": 7}]))
    text = next(tmp_path.glob("*.csv")).read_text()
    assert text == "p\n1.50\n7.00\n"


def test_partitions_are_those_of_the_records_own_fields(tmp_path: Path) -> None:
    subject = task(tmp_path, schema_evolution="widen", partition_by="day")
    place = give(subject, 0, struct(day=s.INT64, n=s.INT64), [{"day": 1, "n": 2**40}])
    end(subject, give(subject, place, struct(day=s.INT32, n=s.INT32), [{"day": 1, "n": 2}]))
    (path,) = tmp_path.glob("day=1/*.parquet")
    assert pq.read_table(path)["n"].to_pylist() == [2**40, 2]


def test_lines_of_json_have_no_columns_to_declare() -> None:
    config = {"path": "p", "topics": "t", "format": "jsonl", "columns.types": "n: int64"}
    (told,) = DirectorySink.validate(config)["columns.types"]
    assert "lines of JSON have no columns in common" in told
