"""IcebergSink with `partition.by`: partitions of new tables, and rows that pyiceberg would lose."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionSpec
from support.task.iceberg_tables import catalog, iceberg_task

from headgate.connector import ConfigError, Schema
from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.testing import FakeSinkContext
from headgate_connectors.iceberg_sink import CONFIG
from headgate_connectors.tables.iceberg_partitions import parse_partitions, partitions_of
from headgate_connectors.tables.sink import TableError

TEXT = s.STRING.as_optional()
ROW = s.struct({"n": s.INT64, "region": s.STRING, "at": s.TIMESTAMP_SCHEMA})
DAY = datetime.datetime(2026, 11, 27, tzinfo=datetime.UTC)


def record(offset: int, value: Any, schema: Schema = ROW) -> SinkRecord:
    return SinkRecord("t", 0, offset, None, value, (), 0, None, schema)


def rows(*numbers: int) -> list[SinkRecord]:
    return [
        record(n, {"n": n, "region": "no" if n % 2 else "", "at": DAY + n * _HOUR}) for n in numbers
    ]


_HOUR = datetime.timedelta(hours=1)


def opened(folder: Path) -> SqlCatalog:
    return SqlCatalog("default", **catalog(folder))


def table(folder: Path) -> Any:
    return opened(folder).load_table("shop.rows")


def of_others(folder: Path, columns: pa.Schema, by: str) -> Any:
    """A table of another program, partitioned by the column `by`."""
    made = opened(folder)
    made.create_namespace("shop")
    found = made.create_table("shop.rows", schema=columns)
    with found.update_spec() as spec:
        spec.add_identity(by)
    return found


def test_a_new_table_has_the_partitions_and_each_row_is_in_its_own(tmp_path: Path) -> None:
    by = "region, day(at), bucket(4, n)"
    subject = iceberg_task(tmp_path, rotate_records=30, partition_by=by)
    subject.put(rows(*range(30)))
    found = table(tmp_path)
    assert ", ".join(map(str, partitions_of(found))) == by
    assert [field.name for field in found.spec().fields] == ["region", "at_day", "n_bucket_4"]
    kept = found.scan().to_arrow().sort_by("n").to_pylist()
    assert kept == [one.value for one in rows(*range(30))]
    of_region = found.scan(row_filter="region = '' and at >= '2026-11-28T00:00:00+00:00'")
    assert sorted(of_region.to_arrow()["n"].to_pylist()) == [24, 26, 28]
    files = found.inspect.partitions().to_pylist()
    assert {one["partition"]["region"] for one in files} == {"", "no"}
    assert {str(one["partition"]["at_day"]) for one in files} == {"2026-11-27", "2026-11-28"}
    assert sum(one["record_count"] for one in files) == 30


@pytest.mark.parametrize("by", ["id", "bucket(3, id)", "text", "truncate(1, text)"])
def test_an_upsert_moves_rows_between_partitions(tmp_path: Path, by: str) -> None:
    schema = s.struct({"id": s.INT64, "text": TEXT})
    subject = iceberg_task(
        tmp_path, write_mode="upsert", key_columns="id", partition_by=by, rotate_records=3
    )
    texts = ["a1", None, "b1", "a2", "b1", "a1", None, "a1", "a3"]
    for offset, text in enumerate(texts):
        subject.put([record(offset, {"id": offset % 4, "text": text}, schema)])
    found = {one["id"]: one["text"] for one in table(tmp_path).scan().to_arrow().to_pylist()}
    assert found == {0: "a3", 1: "a1", 2: None, 3: "a1"}
    assert table(tmp_path).scan().to_arrow().num_rows == 4


def test_null_has_a_partition(tmp_path: Path) -> None:
    schema = s.struct({"n": s.INT64, "region": TEXT})
    subject = iceberg_task(tmp_path, rotate_records=2, partition_by="region")
    subject.put([record(n, {"n": n, "region": None}, schema) for n in range(2)])
    assert table(tmp_path).scan(row_filter="region is null").to_arrow().num_rows == 2


WRONG = {
    "day": "Could not find field with name day",
    "day(region)": "day cannot transform string",
    "n, real": "column real is of type double, which has no partitions",
}


@pytest.mark.parametrize("by", WRONG)
def test_partitions_that_the_columns_do_not_give_are_named(tmp_path: Path, by: str) -> None:
    schema = s.struct({"n": s.INT64, "region": s.STRING, "real": s.FLOAT64})
    subject = iceberg_task(tmp_path, rotate_records=1, partition_by=by)
    with pytest.raises(TableError, match=WRONG[by]) as caught:
        subject.put([record(0, {"n": 0, "region": "no", "real": 1.0}, schema)])
    assert f"partition.by = {by}" in str(caught.value)
    assert not opened(tmp_path).table_exists("shop.rows")


@pytest.mark.parametrize(
    "by",
    ["week(at)", "bucket(at)", "bucket(0, n)", "day(3, at)", "n,,m", "day(at", "n, n", "a)b", ","],
)
def test_what_names_no_partitions_is_refused_before_the_start(by: str) -> None:
    with pytest.raises(ConfigError, match=r"partition\.by"):
        CONFIG.parse({"table": "a.b", "topics": "t", "partition.by": by})


def test_partitions_are_written_as_they_are_read() -> None:
    by = "a, year(b), month(c), hour(d), bucket(16, e), truncate(3, f g)"
    assert ", ".join(map(str, parse_partitions(by))) == by
    assert parse_partitions(" Day( at ) ") == parse_partitions("day(at)")
    assert parse_partitions("") == ()


def test_a_table_with_other_partitions_is_refused(tmp_path: Path) -> None:
    iceberg_task(tmp_path, rotate_records=1, partition_by="region").put(rows(0))
    with pytest.raises(TableError, match=r"partitioned by region, expected day\(at\)"):
        iceberg_task(tmp_path, partition_by="day(at)")
    iceberg_task(tmp_path, rotate_records=1).put(rows(1))  # it takes those that are there
    assert len(table(tmp_path).scan().to_arrow()) == 2
    assert len(partitions_of(table(tmp_path))) == 1


def test_another_task_may_make_the_table_meanwhile(tmp_path: Path) -> None:
    late = iceberg_task(tmp_path, rotate_records=1, partition_by="region")
    create = late._target._create

    def slow(columns: Any) -> None:
        other = iceberg_task(tmp_path, rotate_records=1, partition_by="region")
        other.open([("t", 1)])
        one = rows(0)[0]
        other.put([SinkRecord("t", 1, 0, None, one.value, (), 0, None, ROW)])
        create(columns)

    late._target._create = slow  # type: ignore[method-assign]
    late.put(rows(1))
    assert sorted(table(tmp_path).scan().to_arrow()["n"].to_pylist()) == [0, 1]
    assert table(tmp_path).spec() != PartitionSpec()


REAL = pa.schema([("n", pa.int64()), ("real", pa.float64())])
REAL_ROW = s.struct({"n": s.INT64, "real": s.FLOAT64.as_optional()})


def test_a_row_with_nan_in_the_partitions_of_anothers_table_is_refused_alone(
    tmp_path: Path,
) -> None:
    of_others(tmp_path, REAL, "real")
    subject = iceberg_task(tmp_path, rotate_records=3)
    subject.context = FakeSinkContext(reports=True)
    values = [0.5, float("nan"), -0.0, None]
    subject.put([record(n, {"n": n, "real": real}, REAL_ROW) for n, real in enumerate(values)])
    ((refused, error),) = subject.context.reported
    assert refused.offset == 1
    assert "column real of the table's partitions has NaN" in str(error)
    assert sorted(table(tmp_path).scan().to_arrow()["n"].to_pylist()) == [0, 2, 3]
