"""Batches of Arrow rows go into Delta and Iceberg tables as columns, equal to rows one by one."""

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

from headgate.connector import DataError
from headgate.connector.api import SinkRecord
from headgate.connector.batches import SinkBatch
from headgate.testing import FakeSinkContext
from headgate_arrow import arrow_types, rows
from headgate_connectors.delta_sink import DeltaSinkTask
from headgate_connectors.iceberg_sink import IcebergSinkTask
from headgate_connectors.tables.sink import TableError, TableSinkTask

Make = Callable[..., TableSinkTask]
FLAT: Any = pa.table(
    {
        "n": [1, 2],
        "byte": pa.array([255, None], pa.uint8()),
        "many": pa.array([2**64 - 1, None], pa.uint64()),
        "small": pa.array([-1, None], pa.int8()),
        "half": pa.array([0.5, None], pa.float16()),
        "real": pa.array([0.1, float("nan")], pa.float32()),
        "price": pa.array([Decimal("12345678901234567890.12"), None], pa.decimal128(38, 2)),
        "at": pa.array([1_704_067_200_123, None], pa.timestamp("ms", "America/New_York")),
        "nanos": pa.array([1_704_067_200_123_456_000, None], pa.timestamp("ns")),
        "day": pa.array([datetime.date(2020, 2, 29), None]),
        "day64": pa.array([datetime.date(2020, 2, 29), None]).cast(pa.date64()),
        "text": ["", "ä"],
        "large": pa.array(["x", None], pa.large_string()),
        "word": pa.array(["x", None]).dictionary_encode(),
        "bytes": pa.array([b"\x00\xff", None]),
        "fixed": pa.array([b"ab", None], pa.binary(2)),
        "yes": [True, None],
    }
)
NESTED: Any = pa.table(
    {
        "n": [1, 2],
        "list": pa.array([[1, None], None], pa.list_(pa.int8())),
        "map": pa.array([[("k", 5)], None], pa.map_(pa.string(), pa.int64())),
        "struct": pa.array([{"x": None}, None], pa.struct([("x", pa.int16())])),
    }
)


def started(made: TableSinkTask, config: dict[str, str]) -> TableSinkTask:
    made.context = FakeSinkContext(reports=False)
    made.start({"name": "sink", "rotate.interval.ms": "600000", **config})
    made.open([PLACE])
    return made


def texts(settings: dict[str, Any]) -> dict[str, str]:
    return {name.replace("_", "."): str(value) for name, value in settings.items()}


def delta(folder: Path, **settings: Any) -> TableSinkTask:
    return started(DeltaSinkTask(), {"path": str(folder / "table"), **texts(settings)})


def iceberg(folder: Path, **settings: Any) -> TableSinkTask:
    folder.mkdir(exist_ok=True)
    return started(IcebergSinkTask(), {**config_of(folder), **texts(settings)})


def read(folder: Path) -> Any:
    """The table in `folder`, in the order of `n`; None: there is none."""
    if DeltaTable.is_deltatable(str(folder / "table")):
        return DeltaTable(folder / "table").to_pyarrow_table().sort_by("n")
    if not (folder / "catalog.db").exists():
        return None
    found = SqlCatalog("default", **catalog(folder))
    return found.load_table("shop.rows").scan().to_arrow().sort_by("n")


def batch_of(table: Any, offset: int = 0) -> SinkBatch:
    schema = arrow_types.struct_schema(table.schema)
    return SinkBatch("t", 0, offset, rows.record_batch(table), schema)


def records_of(table: Any) -> list[SinkRecord]:
    schema = arrow_types.struct_schema(table.schema)
    values = arrow_types.rows_of(table, arrow_types.carriers(table.schema))
    return [
        SinkRecord("t", 0, n, None, value, (), 0, None, schema) for n, value in enumerate(values)
    ]


def numbers(start: int, end: int) -> SinkBatch:
    return batch_of(pa.table({"n": range(start, end)}), start)


def column(folder: Path) -> list[int]:
    found: list[int] = read(folder)["n"].to_pylist()
    return found


both = pytest.mark.parametrize("make", [delta, iceberg])


@both
@pytest.mark.parametrize("given", [FLAT, NESTED], ids=["flat", "nested"])
def test_a_batch_is_what_its_records_are(tmp_path: Path, make: Make, given: Any) -> None:
    make(tmp_path / "a", rotate_records=2).put_batch(batch_of(given))
    make(tmp_path / "b", rotate_records=2).put(records_of(given))
    whole, by_record = read(tmp_path / "a"), read(tmp_path / "b")
    assert whole.schema == by_record.schema
    assert repr(whole.to_pylist()) == repr(by_record.to_pylist())  # NaN is NaN


def test_a_map_that_has_a_key_twice_is_refused_as_in_a_record(tmp_path: Path) -> None:
    twice = pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))
    with pytest.raises(DataError, match=r"a value of t-0 from offset 4 on: .*k"):
        delta(tmp_path).put_batch(batch_of(pa.table({"map": twice}), 4))


@both
def test_columns_are_not_taken_apart(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(TableSinkTask, "_take")
    make(tmp_path, rotate_records=2).put_batch(batch_of(FLAT))
    assert column(tmp_path) == [1, 2]


@both
def test_changes_by_key_need_records(tmp_path: Path, make: Make) -> None:
    assert make(tmp_path / "a").takes_batches()
    assert not make(tmp_path / "b", write_mode="upsert", key_columns="n").takes_batches()


@both
def test_what_is_delivered_again_is_taken_once(tmp_path: Path, make: Make) -> None:
    subject = make(tmp_path, rotate_records=20)
    for start, end in [(0, 10), (5, 15), (0, 3), (15, 20)]:
        subject.put_batch(numbers(start, end))
    assert column(tmp_path) == list(range(20))
    assert subject.pre_commit({PLACE: 20}) == {PLACE: 20}
    again = make(tmp_path, rotate_records=5)
    assert again.context.seeks == {PLACE: 20}  # type: ignore[attr-defined]
    again.put_batch(numbers(20, 25))
    assert column(tmp_path) == list(range(25))


@both
def test_of_two_that_write_the_first_counts(tmp_path: Path, make: Make) -> None:
    slow, fast = make(tmp_path, rotate_records=30), make(tmp_path, rotate_records=5)
    fast.put_batch(numbers(0, 5))
    slow.put_batch(numbers(0, 30))
    assert slow.context.seeks == {PLACE: 5}  # type: ignore[attr-defined]
    slow.put_batch(numbers(5, 35))
    assert column(tmp_path) == list(range(35))


@both
def test_records_and_batches_keep_their_order(tmp_path: Path, make: Make) -> None:
    subject = make(tmp_path, rotate_records=100)
    subject.put_batch(numbers(0, 3))
    subject.put(records_of(pa.table({"n": range(5)})))
    subject.put_batch(numbers(5, 8))
    (partition,) = subject._partitions.values()
    given = [row["n"] for table in partition.taken.tables for row in table.to_pylist()]
    assert given == list(range(8))


@both
def test_a_topic_that_was_made_anew_is_told(tmp_path: Path, make: Make) -> None:
    make(tmp_path, rotate_records=5).put_batch(numbers(0, 5))
    subject = make(tmp_path)
    with pytest.raises(TableError, match="gives offset 2, but the table has its records up to"):
        subject.put_batch(numbers(2, 4))


@both
def test_a_value_that_does_not_fit_is_told_with_its_record(tmp_path: Path, make: Make) -> None:
    times = pa.array([1_000, 1_000, 1_001], pa.timestamp("ns"))
    with pytest.raises(DataError, match=r"t-0 offset 9: column at .* has nanoseconds"):
        make(tmp_path).put_batch(batch_of(pa.table({"at": times}), 7))


@both
def test_a_column_that_the_table_has_not_is_told_with_its_record(
    tmp_path: Path, make: Make
) -> None:
    subject = make(tmp_path, rotate_records=1)
    subject.put_batch(numbers(0, 1))
    more = batch_of(pa.table({"n": [1], "more": ["x"]}), 1)
    with pytest.raises(DataError, match=r"t-0 offset 1: column more .* add_columns"):
        subject.put_batch(more)
    adding = make(tmp_path, rotate_records=1, schema_evolution="add_columns")
    adding.put_batch(more)
    assert read(tmp_path).to_pylist() == [{"n": 0, "more": None}, {"n": 1, "more": "x"}]


def test_nan_in_a_partition_of_iceberg_is_refused_with_its_record(tmp_path: Path) -> None:
    real = pa.schema([("n", pa.int64()), ("x", pa.float64())])
    found = SqlCatalog("default", **catalog(tmp_path))
    found.create_namespace("shop")
    found.create_table("shop.rows", schema=real)
    with found.load_table("shop.rows").update_spec() as spec:
        spec.add_identity("x")
    given = pa.table({"n": [1, 2], "x": [0.5, float("nan")]})
    with pytest.raises(DataError, match=r"t-0 offset 1: .* has NaN"):
        iceberg(tmp_path).put_batch(batch_of(given))
