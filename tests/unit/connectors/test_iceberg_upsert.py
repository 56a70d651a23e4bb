"""IcebergSink with `write.mode` = upsert: rows by key, deletions, and two writers."""

import datetime
import random
import warnings
from dataclasses import replace
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
from headgate_connectors.iceberg_sink import IcebergSink, IcebergSinkTask
from headgate_connectors.tables.sink import TableError

ROW = s.struct({"id": s.INT64, "text": replace(s.STRING, optional=True)})
KEY = s.struct({"id": s.INT64})


def task(folder: Path, keys: str = "id", **settings: Any) -> IcebergSinkTask:
    return iceberg_task(folder, write_mode="upsert", key_columns=keys, **settings)


def row(offset: int, value: Any, schema: Schema = ROW) -> SinkRecord:
    return SinkRecord("t", 0, offset, None, value, (), 0, None, schema)


def tombstone(offset: int, key: Any, schema: Schema = KEY) -> SinkRecord:
    return SinkRecord("t", 0, offset, key, None, (), 0, schema, None)


def found(folder: Path) -> list[dict[str, Any]]:
    table = SqlCatalog("default", **catalog(folder)).load_table("shop.rows")
    rows: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    return rows


def test_random_changes_leave_the_last_row_of_each_key(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    chance, expected, subject = random.Random(seed), dict[int, str | None](), None
    for offset in range(120):
        if subject is None or chance.random() < 0.05:  # another task goes on
            if subject is not None:
                subject.context.stopping = True  # type: ignore[misc]
                subject.pre_commit({PLACE: offset})
            subject = task(tmp_path, rotate_records=7)
        key = chance.randrange(12)
        if chance.random() < 0.3:
            expected.pop(key, None)
            subject.put([tombstone(offset, {"id": key})])
        else:
            expected[key] = chance.choice([None, f"at {offset}"])
            subject.put([row(offset, {"id": key, "text": expected[key]})])
    assert subject is not None
    subject.context.stopping = True  # type: ignore[misc]
    subject.pre_commit({PLACE: 120})
    rows = found(tmp_path)
    assert len(rows) == len(expected), f"seed {seed}"
    assert {one["id"]: one["text"] for one in rows} == expected, f"seed {seed}"


KEYS = [
    pytest.param(s.INT8, 1, 2, id="int8"),
    pytest.param(s.INT64, -(2**63), 2**63 - 1, id="int64"),
    pytest.param(s.STRING, "a'b\"", "", id="text"),
    pytest.param(s.BOOLEAN, True, False, id="boolean"),
    pytest.param(s.BYTES, b"\x00\xff", b"", id="bytes"),
    pytest.param(s.decimal_of(2, 10), Decimal("1.10"), Decimal("-1.10"), id="decimal"),
    pytest.param(s.DATE_SCHEMA, datetime.date(1, 1, 1), datetime.date(9999, 12, 31), id="date"),
    pytest.param(
        s.TIMESTAMP_SCHEMA,
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, datetime.UTC),
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        id="timestamp",
    ),
]


@pytest.mark.parametrize(("kind", "one", "other"), KEYS)
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "with another column"])
def test_a_key_of_each_type_is_found_again(
    tmp_path: Path, kind: Schema, one: Any, other: Any, beside: bool
) -> None:
    fields = {"k": kind, "n": s.INT64, "v": s.STRING}
    names = ("k", "n") if beside else ("k",)
    schema, key = s.struct(fields), s.struct({name: fields[name] for name in names})
    subject = task(tmp_path, ",".join(names), rotate_records=2)
    subject.put([row(0, {"k": one, "n": 0, "v": "first"}, schema)])
    subject.put([row(1, {"k": other, "n": 0, "v": "stays"}, schema)])
    subject.put([row(2, {"k": one, "n": 0, "v": "second"}, schema)])
    subject.put([tombstone(3, {name: {"k": other, "n": 0}[name] for name in names}, key)])
    rows = found(tmp_path)
    assert [(item["n"], item["v"]) for item in rows] == [(0, "second")]
    assert rows[0]["k"] == one


def test_a_zombie_in_an_upsert_is_refused(tmp_path: Path) -> None:
    task(tmp_path, rotate_records=1).put([row(0, {"id": 1, "text": "old"})])
    late, owner = task(tmp_path, rotate_records=1), task(tmp_path, rotate_records=1)
    late._target.read()
    late._target.read = lambda: None  # type: ignore[method-assign]
    owner.put([row(1, {"id": 1, "text": "new"}), row(2, {"id": 2, "text": "more"})])
    with pytest.raises(TableError, match="was changed by others"):
        late.put([row(1, {"id": 1, "text": "new"})])
    assert sorted((one["id"], one["text"]) for one in found(tmp_path)) == [(1, "new"), (2, "more")]


def test_a_batch_of_deletions_alone_moves_the_offsets(tmp_path: Path) -> None:
    subject = task(tmp_path, rotate_records=1)
    subject.put([row(0, {"id": 1, "text": "a"})])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        subject.put([tombstone(1, {"id": 5})])
        subject.put([tombstone(2, {"id": 1})])
    assert found(tmp_path) == []
    assert task(tmp_path).context.seeks == {PLACE: 3}  # type: ignore[attr-defined]


def test_rows_without_the_keys_column_stay(tmp_path: Path) -> None:
    """The rows are older than the key's column, and null is no key."""
    schema = pa.schema([("text", pa.string()), ("id", pa.int64())])
    made = SqlCatalog("default", **catalog(tmp_path))
    made.create_namespace("shop")
    made.create_table("shop.rows", schema=schema).append(
        pa.table({"text": ["old", "mine"], "id": pa.array([None, 1], pa.int64())})
    )
    task(tmp_path, rotate_records=1).put([row(0, {"id": 1, "text": "new"})])
    assert sorted((one["id"] or 0, one["text"]) for one in found(tmp_path)) == [
        (0, "old"),
        (1, "new"),
    ]


def test_change_events_replace_and_delete(tmp_path: Path) -> None:
    event = s.struct(
        {
            "before": replace(ROW, optional=True),
            "after": replace(ROW, optional=True),
            "op": s.STRING,
        }
    )
    subject = task(tmp_path, rotate_records=1, change_events="debezium")
    one, two = {"id": 1, "text": "a"}, {"id": 1, "text": "b"}
    subject.put([row(0, {"before": None, "after": one, "op": "c"}, event)])
    subject.put([row(1, {"before": one, "after": two, "op": "u"}, event)])
    assert found(tmp_path) == [two]
    subject.put([row(2, {"before": two, "after": None, "op": "d"}, event)])
    assert found(tmp_path) == []


def test_many_keys_of_two_columns_in_one_batch(tmp_path: Path) -> None:
    schema = s.struct({"a": s.INT64, "b": s.STRING, "v": s.INT64})
    subject = task(tmp_path, "a,b", rotate_records=3_000)
    for again in range(2):
        first = again * 3_000
        subject.put(
            [row(first + n, {"a": n, "b": f"b{n % 5}", "v": again}, schema) for n in range(3_000)]
        )
    # Each of these has the one column of a key that is there and the other of another key.
    crossed = [{"a": n, "b": f"b{(n + 1) % 5}", "v": 2} for n in range(3_000)]
    subject.put([row(6_000 + n, value, schema) for n, value in enumerate(crossed)])
    rows = found(tmp_path)
    assert len(rows) == 6_000
    assert {one["v"] for one in rows} == {1, 2}


def test_a_key_that_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    schema = s.struct({"id": s.FLOAT64})
    with pytest.raises(DataError, match=r"column id of key\.columns is of type double"):
        task(tmp_path).put([row(0, {"id": 1.5}, schema)])


def test_an_upsert_without_a_key_is_refused() -> None:
    config = {"table": "a.b", "catalog.type": "sql", "write.mode": "upsert"}
    assert "expected the columns of the key" in IcebergSink.validate(config)["key.columns"][0]


def test_a_zombie_that_deletes_nothing_does_not_set_the_offsets_back(tmp_path: Path) -> None:
    """A commit without changes makes no snapshot by itself. The owner would read rows again that
    are in the table."""
    task(tmp_path, rotate_records=1).put([row(0, {"id": 1, "text": "a"})])
    late, owner = task(tmp_path, rotate_records=1), task(tmp_path, rotate_records=1)
    late._target.read()
    late._target.read = lambda: None  # type: ignore[method-assign]
    for offset in (1, 2):
        owner.put([row(offset, {"id": offset, "text": "b"})])
    with pytest.raises(TableError, match="was changed by others during each of 50 commits"):
        late.put([tombstone(1, {"id": 7})])
    owner.put([row(3, {"id": 3, "text": "c"})])
    assert owner.context.seeks == {PLACE: 1}  # type: ignore[attr-defined]
    assert {each["id"]: each["text"] for each in found(tmp_path)} == {1: "b", 2: "b", 3: "c"}
