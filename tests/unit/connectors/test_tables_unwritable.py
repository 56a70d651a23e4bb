"""Values that a Delta or Iceberg table cannot have as they are: their record alone is refused."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from support.task.iceberg_tables import PLACE, catalog, config_of

from headgate.connector import DataError
from headgate.connector.api import SinkRecord
from headgate.connector.batches import SinkBatch
from headgate.testing import FakeSinkContext
from headgate_arrow import arrow_types
from headgate_connectors.delta_sink import DeltaSinkTask
from headgate_connectors.iceberg_sink import IcebergSinkTask
from headgate_connectors.tables.sink import TableSinkTask

YEAR_10000 = 253_402_300_800_000_000
PART = pa.struct([("x", pa.int64())])


def task(sink: str, folder: Path) -> TableSinkTask:
    made = DeltaSinkTask() if sink == "delta" else IcebergSinkTask()
    made.context = FakeSinkContext()
    own = config_of(folder) if sink == "iceberg" else {"path": str(folder / "table")}
    made.start({"rotate.records": "1", **own, "name": "sink"})
    made.open([PLACE])
    return made


def read(sink: str, folder: Path) -> list[Any]:
    if sink == "delta":
        table = DeltaTable(folder / "table").to_pyarrow_table()
    else:
        table = SqlCatalog("default", **catalog(folder)).load_table("shop.rows").scan().to_arrow()
    return table.column("c").to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "bad, good, kind, seen",
    [
        (YEAR_10000, YEAR_10000 - 1, pa.timestamp("us"), "column c has a time outside the years"),
        (-62_135_596_800_000_001, 0, pa.timestamp("us", "UTC"), "outside the years 1 to 9999"),
        ([YEAR_10000], [0], pa.list_(pa.timestamp("us")), "outside the years 1 to 9999"),
        (None, [], pa.list_(PART), "column c has null for a list or map of structs"),
        (None, [], pa.map_(pa.string(), PART), "column c has null for a list or map of structs"),
        ({"m": None}, None, pa.struct([("m", pa.list_(PART))]), "column c has null for a list"),
        ([{"m": None}], [None], pa.list_(pa.struct([("m", pa.list_(PART))])), "has null for a"),
    ],
)
def test_what_pyiceberg_would_lose_costs_its_record_alone(
    tmp_path: Path, bad: Any, good: Any, kind: Any, seen: str
) -> None:
    """The task failed for good, or the null was an empty list to readers."""
    column = pa.array([bad, good], kind)
    table = pa.table({"c": column})
    values = arrow_types.rows_of(table, arrow_types.carriers(table.schema))
    schema = arrow_types.struct_schema(table.schema)
    subject = task("iceberg", tmp_path)
    given = [
        SinkRecord("t", 0, n, None, value, (), 0, None, schema) for n, value in enumerate(values)
    ]
    subject.put(given)
    ((record, error),) = subject.context.reported  # type: ignore[attr-defined]
    assert record.offset == 0 and seen in str(error)
    assert read("iceberg", tmp_path) == column[1:].to_pylist()


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
@pytest.mark.parametrize("day", [2_932_897, 2**31 - 1, -719_163])
def test_a_date_beyond_year_9999_is_refused_by_its_column(
    tmp_path: Path, sink: str, day: int
) -> None:
    """Readers of the Delta table failed at its statistics, or delta-rs did when it wrote them."""
    days = pa.array([0, day], pa.int32()).cast(pa.date32())
    values = pa.record_batch({"n": pa.array([1, 2]), "c": days})
    subject = task(sink, tmp_path)
    batch = SinkBatch("t", 0, 0, values, arrow_types.struct_schema(values.schema))
    with pytest.raises(DataError, match="t-0 from offset 0 on: column c: "):
        subject.put_batch(batch)
    subject.put_batch(batch.part(0, 1))
    assert read(sink, tmp_path) == [datetime.date(1970, 1, 1)]


def test_a_refused_type_within_a_struct_is_told_of_iceberg(tmp_path: Path) -> None:
    kind = pa.struct([("at", pa.time64("us"))])
    table = pa.table({"c": pa.array([None], kind)})
    schema = arrow_types.struct_schema(table.schema)
    subject = task("iceberg", tmp_path)
    subject.put([SinkRecord("t", 0, 0, None, {"c": None}, (), 0, None, schema)])
    ((_, error),) = subject.context.reported  # type: ignore[attr-defined]
    assert "column c.at is of type time64[us], which Iceberg has no type for" in str(error)
