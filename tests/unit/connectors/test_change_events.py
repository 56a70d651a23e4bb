"""DeltaSink writes Debezium's change events into a Delta table (`change.events`)."""

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headgate.connector import DataError
from headgate.connector.api import SinkRecord
from headgate.connector.json_converter import JsonConverter
from headgate.testing import FakeSinkContext
from headgate_connectors.delta_sink import DeltaSink, DeltaSinkTask

PLACE = ("t", 0)
ID = {"type": "int32", "optional": False, "field": "id"}
ROW = [ID, {"type": "string", "optional": True, "field": "name"}]
KEY_SCHEMA = {"type": "struct", "optional": False, "fields": [ID]}
SCHEMA = {
    "type": "struct",
    "optional": False,
    "name": "db.public.customers.Envelope",
    "fields": [
        {"type": "struct", "optional": True, "field": "before", "name": "V", "fields": ROW},
        {"type": "struct", "optional": True, "field": "after", "name": "V", "fields": ROW},
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ],
}
CONFIG = {"write.mode": "upsert", "key.columns": "id", "change.events": "debezium"}


def task(folder: Path) -> DeltaSinkTask:
    made = DeltaSinkTask()
    made.context = FakeSinkContext(reports=False)
    config = {"name": "sink", "path": str(folder / "table"), **CONFIG}
    made.start({**config, "rotate.interval.ms": "0"})
    made.open([PLACE])
    return made


def event(offset: int, op: str, before: Any, after: Any, key: int | None = None) -> SinkRecord:
    """A record as JsonConverter reads Debezium's text."""
    payload = {"before": before, "after": after, "op": op, "ts_ms": 0}
    return _read(offset, key, {"schema": SCHEMA, "payload": payload})


def _read(offset: int, key: int | None, value: Any) -> SinkRecord:
    converter = JsonConverter()
    converter.configure({"schemas.enable": "true"}, is_key=False)
    found = converter.to_connect_data("t", json.dumps(value).encode() if value else None)
    given = None
    if key is not None:
        text = json.dumps({"schema": KEY_SCHEMA, "payload": {"id": key}})
        given = converter.to_connect_data("t", text.encode())
    return SinkRecord(
        *PLACE, offset, given and given.value, found.value, (), 0, given and given.schema,
        found.schema,
    )  # fmt: skip


def tombstone(offset: int, key: int) -> SinkRecord:
    return _read(offset, key, None)


def rows(folder: Path) -> list[dict[str, Any]]:
    found: Any = DeltaTable(folder / "table").to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def row(number: int, name: str | None = None) -> dict[str, Any]:
    return {"id": number, "name": name}


def test_rows_are_created_updated_and_deleted(tmp_path: Path) -> None:
    subject = task(tmp_path)
    subject.put([event(n, "r", None, row(n, "a")) for n in range(4)])
    subject.put([
        event(4, "c", None, row(4, "new")),
        event(5, "u", row(0, "a"), row(0, "b")),
        event(6, "d", row(1, "a"), None, key=1),
        tombstone(7, 1),
        event(8, "d", None, None, key=2),
        event(9, "d", row(3), None),
    ])  # fmt: skip
    assert rows(tmp_path) == [row(0, "b"), row(4, "new")]
    assert subject.pre_commit({PLACE: 10}) == {PLACE: 10}


def test_a_key_that_changes_moves_its_row(tmp_path: Path) -> None:
    """Debezium tells it as a deletion, a tombstone and a creation."""
    subject = task(tmp_path)
    subject.put([event(0, "c", None, row(1, "x"), key=1)])
    subject.put([
        event(1, "d", row(1, "x"), None, key=1),
        tombstone(2, 1),
        event(3, "c", None, row(7, "x"), key=7),
    ])  # fmt: skip
    assert rows(tmp_path) == [row(7, "x")]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (event(1, "t", None, None), "has op 't', expected c, r, u or d"),
        (event(1, "m", None, None), "has op 'm', expected c, r, u or d"),
        (event(1, "u", row(1), None), "has op u but null in after"),
        (event(1, "d", None, None), "has neither a key nor a value"),
        (
            event(1, "u", None, row(1, "__debezium_unavailable_value")),
            "has not the value of column name: the database did not give it",
        ),
        (
            _read(1, 1, {"schema": KEY_SCHEMA, "payload": {"id": 1}}),
            "is no change event of Debezium, which is a struct with op, before and after",
        ),
    ],
)
def test_what_is_no_change_of_a_row_is_refused_by_name(
    tmp_path: Path, wrong: SinkRecord, error: str
) -> None:
    subject = task(tmp_path)
    subject.put([event(0, "c", None, row(1, "x"))])
    with pytest.raises(DataError, match=f"t-0 offset 1 {error}"):
        subject.put([wrong])
    assert rows(tmp_path) == [row(1, "x")]


LEFT_OUT = "__debezium_unavailable_value"
TEXT = {"type": "string", "optional": True}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ({"type": "array", "items": TEXT}, [LEFT_OUT]),
        ({"type": "array", "items": {"type": "int32"}}, list(LEFT_OUT.encode())),
        ({"type": "array", "items": {"type": "int64"}}, list(LEFT_OUT.encode())),
        ({"type": "map", "keys": {"type": "string"}, "values": TEXT}, {LEFT_OUT: LEFT_OUT}),
        (TEXT, f'{{"{LEFT_OUT}":"{LEFT_OUT}"}}'),
    ],
)
def test_values_of_all_types_that_the_database_did_not_give_are_refused(
    tmp_path: Path, kind: dict[str, Any], value: Any
) -> None:
    """Each type has a placeholder of its own, which was taken for the value."""
    row = {"type": "struct", "optional": True, "fields": [ID, {**kind, "field": "more"}]}
    fields = [
        *({**row, "field": name} for name in ("before", "after")),
        {"type": "string", "field": "op"},
    ]
    schema = {"type": "struct", "fields": fields}
    payload = {"before": None, "after": {"id": 1, "more": value}, "op": "u"}
    subject = task(tmp_path)
    with pytest.raises(DataError, match="has not the value of column more: the database did not"):
        subject.put([_read(0, None, {"schema": schema, "payload": payload})])


def test_change_events_need_upsert() -> None:
    errors = DeltaSink.validate({"path": "x", "change.events": "debezium"})
    assert errors == {"change.events": ["is debezium, which needs write.mode = upsert"]}
