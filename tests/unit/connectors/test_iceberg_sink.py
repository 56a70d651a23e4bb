"""The task of IcebergSink, driven by hand with a catalog in SQLite: two writers, and types."""

import datetime
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from support.task.iceberg_tables import PLACE, catalog, iceberg_task

from headgate.connector import DataError, Schema
from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate_arrow import arrow_types
from headgate_connectors.iceberg_sink import IcebergSink
from headgate_connectors.tables.sink import TableError

ROW = s.struct({"n": s.INT64})


def record(offset: int, value: Any, schema: Schema = ROW) -> SinkRecord:
    return SinkRecord("t", 0, offset, None, value, (), 0, None, schema)


def rows(*numbers: int) -> list[SinkRecord]:
    return [record(n, {"n": n}) for n in numbers]


def table(folder: Path) -> Any:
    return SqlCatalog("default", **catalog(folder)).load_table("shop.rows")


def numbers(folder: Path) -> list[int]:
    return sorted(table(folder).scan().to_arrow()["n"].to_pylist())


def test_it_goes_on_where_the_table_ends(tmp_path: Path) -> None:
    iceberg_task(tmp_path, rotate_records=2).put(rows(0, 1, 2))
    second = iceberg_task(tmp_path, rotate_records=2)
    assert second.context.seeks == {PLACE: 3}  # type: ignore[attr-defined]
    second.put(rows(3))
    second.context.stopping = True  # type: ignore[misc]
    assert second.pre_commit({PLACE: 4}) == {PLACE: 4}
    assert numbers(tmp_path) == [0, 1, 2, 3]
    assert table(tmp_path).properties["headgate.sink.t-0"] == "4"


def test_a_zombie_with_a_stale_view_is_refused(tmp_path: Path) -> None:
    """The task has looked at the table, was frozen, and commits after another task has."""
    iceberg_task(tmp_path, rotate_records=1).put(rows(0))
    late, owner = iceberg_task(tmp_path, rotate_records=2), iceberg_task(tmp_path, rotate_records=2)
    target = late._target
    target.read()
    target.read = lambda: None  # type: ignore[method-assign]
    owner.put(rows(1, 2))
    with pytest.raises(TableError, match="was changed by others during each of 50 commits"):
        late.put(rows(1, 2))
    assert numbers(tmp_path) == [0, 1, 2]


def test_a_zombie_that_looks_again_drops_what_it_has(tmp_path: Path) -> None:
    late, owner = iceberg_task(tmp_path, rotate_records=4), iceberg_task(tmp_path, rotate_records=2)
    late.put(rows(0, 1))
    owner.put(rows(0, 1))
    late.put(rows(2, 3))
    assert late.context.seeks == {PLACE: 2}  # type: ignore[attr-defined]
    assert numbers(tmp_path) == [0, 1]


def test_a_table_of_others_whose_commits_are_tried_again_is_made_safe(tmp_path: Path) -> None:
    found = SqlCatalog("default", **catalog(tmp_path))
    found.create_namespace("shop")
    found.create_table("shop.rows", schema=pa.schema([("n", pa.int64())]))
    iceberg_task(tmp_path, rotate_records=1).put(rows(0))
    assert table(tmp_path).properties["commit.retry.num-retries"] == "0"
    assert numbers(tmp_path) == [0]


@pytest.mark.parametrize("how", ["drop", "rename"])
def test_a_table_that_is_gone_while_the_task_runs_is_told(tmp_path: Path, how: str) -> None:
    subject = iceberg_task(tmp_path, rotate_records=1)
    subject.put(rows(0))
    found = SqlCatalog("default", **catalog(tmp_path))
    if how == "drop":
        found.drop_table("shop.rows")
    else:
        found.rename_table("shop.rows", "shop.other")
    with pytest.raises(TableError, match=r"shop\.rows is gone: it was dropped or renamed"):
        subject.put(rows(1))
    assert not found.table_exists("shop.rows")


@pytest.mark.parametrize("how", ["made anew", "without its offsets"])
def test_a_table_that_has_less_than_before_is_told_and_no_row_passed_over(
    tmp_path: Path, how: str
) -> None:
    subject = iceberg_task(tmp_path, rotate_records=1)
    subject.put(rows(0))
    if how == "made anew":
        found = SqlCatalog("default", **catalog(tmp_path))
        found.drop_table("shop.rows")
        found.create_table("shop.rows", schema=pa.schema([("n", pa.int64())]))
    else:
        with table(tmp_path).transaction() as change:
            change.remove_properties("headgate.sink.t-0")
    with pytest.raises(TableError, match="had t-0 up to offset 1, and now knows nothing of it"):
        subject.put(rows(1))


def test_columns_are_added_as_declared_and_keep_their_types(tmp_path: Path) -> None:
    more = s.struct({"n": s.INT64, "more": s.STRING})
    subject = iceberg_task(tmp_path, rotate_records=1)
    subject.put(rows(0))
    with pytest.raises(DataError, match=r"column more .* schema.evolution = add_columns"):
        subject.put([record(1, {"n": 1, "more": "x"}, more)])
    adding = iceberg_task(tmp_path, rotate_records=1, schema_evolution="add_columns")
    adding.put([record(1, {"n": 1, "more": "x"}, more)])
    adding.put(rows(2))
    with pytest.raises(DataError, match="column n is of type double, expected int64"):
        adding.put([record(3, {"n": 1.5}, s.struct({"n": s.FLOAT64}))])
    found = table(tmp_path).scan().to_arrow().sort_by("n").to_pylist()
    assert found == [{"n": 0, "more": None}, {"n": 1, "more": "x"}, {"n": 2, "more": None}]


TYPED: Mapping[str, Any] = {
    "n": [1, 2],
    "byte": pa.array([255, None], pa.uint8()),
    "price": pa.array([Decimal("12345678901234567890.12"), None], pa.decimal128(38, 2)),
    "at": pa.array([1_704_067_200_123_456, None], pa.timestamp("us", "America/New_York")),
    "local": pa.array([1_704_067_200_123_456, None], pa.timestamp("us")),
    "day": pa.array([datetime.date(2020, 2, 29), None]),
    "real": pa.array([0.1, None], pa.float32()),
    "bytes": pa.array([b"\x00\xff", None]),
    "list": pa.array([[1, None], None], pa.list_(pa.int8())),
    "map": pa.array([[("k", 5)], None], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"x": None}, None], pa.struct([("x", pa.int16())])),
}


def test_values_come_out_equal(tmp_path: Path) -> None:
    given = pa.table(TYPED)
    schema = arrow_types.struct_schema(given.schema)
    values = arrow_types.rows_of(given, arrow_types.carriers(given.schema))
    subject = iceberg_task(tmp_path, rotate_records=1)
    subject.put([record(n, value, schema) for n, value in enumerate(values)])
    found = table(tmp_path).scan().to_arrow().sort_by("n")
    for name in given.schema.names:
        was, now = given.column(name), found.column(name)
        assert now.cast(was.type).to_pylist() == was.to_pylist(), name


def test_settings_without_a_catalog_are_refused() -> None:
    assert "names no catalog" in IcebergSink.validate({"table": "a.b"})["table"][0]
    assert "expected a namespace" in IcebergSink.validate({"table": "b"})["table"][0]
    assert IcebergSink.validate({"table": "a.b", "catalog.type": "sql"}) == {}
