"""Sinks of tables get records that change their types. They widen columns without loss, or refuse
by name."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from support.task.iceberg_tables import PLACE, catalog, config_of

from headgate.connector import DataError, Schema
from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.connector.batches import SinkBatch
from headgate.connector.times import UNIT_TIMESTAMP, time_schema
from headgate.testing import FakeSinkContext
from headgate_arrow.rows import batch_of
from headgate_connectors.delta_sink import DeltaSinkTask
from headgate_connectors.iceberg_sink import IcebergSinkTask
from headgate_connectors.tables.sink import TableSinkTask

WIDEN = "widen"


def delta(folder: Path, evolution: str, *, reports: bool = False, **more: str) -> TableSinkTask:
    return _started(DeltaSinkTask(), {"path": str(folder / "table")}, evolution, reports, more)


def iceberg(folder: Path, evolution: str, *, reports: bool = False, **more: str) -> TableSinkTask:
    return _started(IcebergSinkTask(), config_of(folder), evolution, reports, more)


def _started(
    made: TableSinkTask, own: dict[str, str], evolution: str, reports: bool, more: dict[str, str]
) -> TableSinkTask:
    made.context = FakeSinkContext(reports=reports)
    pace = {"rotate.interval.ms": "600000", "schema.evolution": evolution}
    made.start({"name": "sink", **pace, **own, **more})
    made.open([PLACE])
    return made


Made = Callable[..., TableSinkTask]
both = pytest.mark.parametrize("made", [delta, iceberg])
by_record_and_batch = pytest.mark.parametrize("as_batch", [False, True], ids=["records", "batch"])


def read(folder: Path) -> Any:
    if (folder / "table").exists():
        return DeltaTable(folder / "table").to_pyarrow_table()
    return SqlCatalog("default", **catalog(folder)).load_table("shop.rows").scan().to_arrow()


def struct(**columns: Schema) -> Schema:
    return s.struct({name: one.as_optional() for name, one in columns.items()})


def give(
    subject: TableSinkTask, offset: int, schema: Schema, *rows: Any, as_batch: bool = False
) -> int:
    """Give the rows to the task. Return the offset after them."""
    values = list(rows)
    if as_batch:
        subject.put_batch(
            SinkBatch(*PLACE, offset, batch_of(values, schema), schema, key=None, timestamp_ms=0)
        )
    else:
        subject.put(
            [SinkRecord(*PLACE, offset + n, None, row, (), 0, None, schema)
             for n, row in enumerate(values)]
        )  # fmt: skip
    return offset + len(values)


def end(subject: TableSinkTask, offset: int) -> None:
    subject.context.stopping = True  # type: ignore[misc]
    assert subject.pre_commit({PLACE: offset}) == {PLACE: offset}


WIDE = struct(
    n=s.INT64, x=s.FLOAT64, sum=s.decimal_of(4, 20), at=time_schema(UNIT_TIMESTAMP, "us", "UTC")
)
NARROW = struct(n=s.INT32, x=s.FLOAT32, sum=s.decimal_of(2, 10), at=s.TIMESTAMP_SCHEMA)
AT = datetime.datetime(2026, 11, 26, 7, 5, tzinfo=datetime.UTC)
MICROS = 1_795_676_700_000_000


@both
@by_record_and_batch
def test_narrower_values_are_taken_unchanged(tmp_path: Path, made: Made, as_batch: bool) -> None:
    subject = made(tmp_path, WIDEN)
    wide = {"n": 2**40, "x": 0.1, "sum": Decimal("1.0001"), "at": MICROS + 1}
    narrow = {"n": 7, "x": 0.5, "sum": Decimal("-2.25"), "at": AT}
    place = give(subject, 0, WIDE, wide, as_batch=as_batch)
    end(subject, give(subject, place, NARROW, narrow, as_batch=as_batch))
    first, second = sorted(read(tmp_path).to_pylist(), key=lambda row: -row["n"])
    assert first["x"] == 0.1
    assert second == {"n": 7, "x": 0.5, "sum": Decimal("-2.2500"), "at": AT}


@both
@by_record_and_batch
def test_a_value_that_does_not_hold_is_reported_and_its_neighbours_arrive(
    tmp_path: Path, made: Made, as_batch: bool
) -> None:
    subject = made(tmp_path, WIDEN, reports=True)
    place = give(subject, 0, struct(x=s.FLOAT64), {"x": 0.5})
    whole = struct(x=s.INT64)
    rows = [{"x": 1}, {"x": 2**53 + 1}, {"x": 2**60}]
    end(subject, give(subject, place, whole, *rows, as_batch=as_batch))
    assert sorted(read(tmp_path)["x"].to_pylist()) == [0.5, 1.0, float(2**60)]
    ((record, error),) = subject.context.reported  # type: ignore[attr-defined]
    assert record.offset == 2
    assert "column x of type int64 has a value that is no double" in str(error)


@both
def test_a_value_that_does_not_hold_fails_the_task_where_nobody_takes_it(
    tmp_path: Path, made: Made
) -> None:
    subject = made(tmp_path, WIDEN)
    give(subject, 0, struct(x=s.FLOAT64), {"x": 0.5})
    with pytest.raises(DataError, match="t-0 offset 1: column x of type int64"):
        give(subject, 1, struct(x=s.INT64), {"x": 2**53 + 1})


@both
@pytest.mark.parametrize("evolution", ["none", "add_columns"])
def test_without_widen_another_type_is_refused_and_the_setting_named(
    tmp_path: Path, made: Made, evolution: str
) -> None:
    subject = made(tmp_path, evolution)
    give(subject, 0, struct(n=s.INT64), {"n": 1})
    with pytest.raises(DataError, match=r"set schema\.evolution = widen to have it widened"):
        give(subject, 1, struct(n=s.INT32), {"n": 1})


@both
def test_what_is_not_narrower_is_refused_by_name(tmp_path: Path, made: Made) -> None:
    subject = made(tmp_path, WIDEN)
    give(subject, 0, struct(n=s.INT64), {"n": 1})
    with pytest.raises(DataError, match="column n is of type string, expected int64"):
        give(subject, 1, struct(n=s.STRING), {"n": "1"})


def test_a_column_of_a_delta_table_does_not_become_wider(tmp_path: Path) -> None:
    subject = delta(tmp_path, WIDEN)
    give(subject, 0, struct(n=s.INT32), {"n": 1})
    with pytest.raises(DataError, match="column n is of type int64, expected int32"):
        give(subject, 1, struct(n=s.INT64), {"n": 2})


@by_record_and_batch
@pytest.mark.parametrize("between", [False, True], ids=["one-commit", "two-commits"])
def test_a_column_of_an_iceberg_table_becomes_wider(
    tmp_path: Path, as_batch: bool, between: bool
) -> None:
    narrow = struct(n=s.INT32, x=s.FLOAT32, sum=s.decimal_of(2, 5))
    wide = struct(n=s.INT64, x=s.FLOAT64, sum=s.decimal_of(2, 30), more=s.STRING)
    more = {"rotate.records": "1"} if between else {}
    subject = iceberg(tmp_path, WIDEN, **more)
    old = {"n": 1, "x": 0.5, "sum": Decimal("1.25")}
    new = {"n": 2**40, "x": 0.1, "sum": Decimal("12345678901234567890.12"), "more": "m"}
    place = give(subject, 0, narrow, old, as_batch=as_batch)
    place = give(subject, place, wide, new, as_batch=as_batch)
    end(subject, give(subject, place, narrow, {**old, "n": 3}, as_batch=as_batch))
    found = read(tmp_path)
    assert found.schema.field("n").type == pa.int64()
    assert sorted(found.to_pylist(), key=lambda row: row["n"]) == [
        {**old, "more": None},
        {**old, "n": 3, "more": None},
        new,
    ]


def test_a_table_whose_column_is_narrow_is_altered(tmp_path: Path) -> None:
    """The first commit is long done when the wider values come."""
    first = iceberg(tmp_path, WIDEN)
    end(first, give(first, 0, struct(n=s.INT32), {"n": 1}))
    assert read(tmp_path).schema.field("n").type == pa.int32()
    second = iceberg(tmp_path, WIDEN)
    end(second, give(second, 1, struct(n=s.INT64), {"n": 2**40}))
    assert read(tmp_path).schema.field("n").type == pa.int64()
    assert sorted(read(tmp_path)["n"].to_pylist()) == [1, 2**40]


def test_another_task_with_the_old_type_goes_on_in_the_wider_table(tmp_path: Path) -> None:
    old, new = iceberg(tmp_path, WIDEN), iceberg(tmp_path, WIDEN)
    end(old, give(old, 0, struct(n=s.INT32), {"n": 1}))
    late = iceberg(tmp_path, WIDEN)  # knows the narrow table
    end(new, give(new, 0, struct(n=s.INT32), {"n": 0}))  # was written by the other
    owner = iceberg(tmp_path, WIDEN)
    end(owner, give(owner, 1, struct(n=s.INT64), {"n": 2**40}))
    late.put([])
    give(late, 1, struct(n=s.INT32), {"n": 5})  # the same offset: the other one counts
    late.context.stopping = True  # type: ignore[misc]
    late.pre_commit({PLACE: 2})
    assert sorted(read(tmp_path)["n"].to_pylist()) == [1, 2**40]


@both
def test_by_key_a_narrower_key_is_the_same_key(tmp_path: Path, made: Made) -> None:
    keys = {"write.mode": "upsert", "key.columns": "n"}
    subject = made(tmp_path, WIDEN, **keys)
    place = give(subject, 0, struct(n=s.INT64, x=s.STRING), {"n": 1, "x": "a"})
    place = give(subject, place, struct(n=s.INT32, x=s.STRING), {"n": 1, "x": "b"})
    end(subject, place)
    assert read(tmp_path).to_pylist() == [{"n": 1, "x": "b"}]
