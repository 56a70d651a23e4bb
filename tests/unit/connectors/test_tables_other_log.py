"""Sinks of tables whose table has the records of another log."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from support.task.iceberg_tables import PLACE, catalog, config_of

from headgate.connector import schema as s
from headgate.connector.api import SinkRecord
from headgate.connector.batches import SinkBatch
from headgate.testing import FakeSinkContext, Message, run_sink
from headgate_connectors.delta_sink import DeltaSinkTask
from headgate_connectors.iceberg_sink import IcebergSinkTask
from headgate_connectors.output.rows import VALUE
from headgate_connectors.tables.sink import TableError, TableSinkTask

SINKS = ("DeltaSink", "IcebergSink")
UPSERT = {"write_mode": "upsert", "key_columns": "n"}
ROW = s.struct({"n": s.INT64})
every_sink = pytest.mark.parametrize("sink", SINKS)


def config(sink: str, folder: Path) -> dict[str, str]:
    if sink == "DeltaSink":
        return {"path": str(folder / "table")}
    return {key: value for key, value in config_of(folder).items() if key != "name"}


def keys(settings: Mapping[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): value for key, value in settings.items()}


def run(sink: str, folder: Path, messages: Sequence[Message], **settings: str) -> Any:
    given = {**config(sink, folder), "rotate.interval.ms": "0", **keys(settings)}
    return run_sink(sink, given, messages).ended


def task(
    sink: str, folder: Path, times: Mapping[int, int] | None = None, **settings: str
) -> TableSinkTask:
    made = DeltaSinkTask() if sink == "DeltaSink" else IcebergSinkTask()
    made.context = context = FakeSinkContext()
    context.log_times[PLACE] = times or {}
    made.start({"name": "sink", "rotate.records": "1", **config(sink, folder), **keys(settings)})
    made.open([PLACE])
    return made


def values(sink: str, folder: Path) -> list[str]:
    if sink == "DeltaSink":
        table = DeltaTable(folder / "table").to_pyarrow_table()
    else:
        table = SqlCatalog("default", **catalog(folder)).load_table("shop.rows").scan().to_arrow()
    return sorted(table[VALUE].to_pylist())


def messages(count: int, time: int) -> list[Message]:
    return [Message(f"{time}-{n}", timestamp_ms=time + n) for n in range(count)]


@every_sink
@pytest.mark.parametrize(
    "count, seen",
    [
        (2, "this is another log: it ends at offset 2"),
        (3, "this is another log: its record at offset 2 is of 72 ms, expected 7 ms"),
        (5, "this is another log: its record at offset 2 is of 72 ms, expected 7 ms"),
    ],
)
def test_a_log_that_was_made_anew_is_refused(
    tmp_path: Path, sink: str, count: int, seen: str
) -> None:
    """Its first records were passed over, as if they were in the table."""
    assert run(sink, tmp_path, messages(3, 5)).trace is None
    ended = run(sink, tmp_path, messages(count, 70))
    assert f"the table has the records of topic-0 up to offset 2, but {seen}" in ended.reason
    assert "another name, and another table or path" in ended.reason
    assert values(sink, tmp_path) == ["5-0", "5-1", "5-2"]


@every_sink
@pytest.mark.parametrize("how", ["upsert", "batch"])
def test_so_is_one_for_an_upsert_and_for_a_batch(tmp_path: Path, sink: str, how: str) -> None:
    subject = task(sink, tmp_path, **(UPSERT if how == "upsert" else {}))
    if how == "upsert":
        subject.put([SinkRecord("t", 0, 0, None, {"n": 1}, (), 5, None, ROW)])
    else:
        values = pa.record_batch({"n": pa.array([1], pa.int64())})
        subject.put_batch(SinkBatch("t", 0, 0, values, ROW, timestamp_ms=5))
    task(sink, tmp_path, {0: 5})
    with pytest.raises(TableError, match="is of 6 ms, expected 5 ms"):
        task(sink, tmp_path, {0: 6})


@every_sink
def test_a_last_record_without_a_time_is_not_taken_for_another(tmp_path: Path, sink: str) -> None:
    """Nor for the one before it, whose time the table had."""
    for offset, time in enumerate((5, None)):
        subject = task(sink, tmp_path)
        subject.put([SinkRecord("t", 0, offset, None, "x", (), time)])
    again = task(sink, tmp_path, {0: 5, 1: 99})
    assert again.context.seeks == {PLACE: 2}  # type: ignore[attr-defined]


@every_sink
def test_its_first_records_are_left_out_where_the_user_says_so(tmp_path: Path, sink: str) -> None:
    run(sink, tmp_path, messages(3, 5))
    assert run(sink, tmp_path, messages(5, 70), on_missing_output="accept").trace is None
    assert values(sink, tmp_path) == ["5-0", "5-1", "5-2", "70-3", "70-4"]


@every_sink
def test_a_group_without_offsets_goes_on_where_the_log_is_the_same(
    tmp_path: Path, sink: str
) -> None:
    """It was killed before its group's first commit, or the group's offsets have expired."""
    run(sink, tmp_path, messages(3, 5))
    assert run(sink, tmp_path, messages(4, 5)).trace is None
    assert values(sink, tmp_path) == ["5-0", "5-1", "5-2", "5-3"]
