"""Turns change events into rows and deletions: ``change.events`` of a table sink.

Debezium's event is a struct. `op` says what was done. `before` and `after` are the row before and
after the change. Source: Debezium's documentation of the connectors' data change events.
"""

import json
from dataclasses import replace
from hashlib import md5
from typing import Any, Final
from uuid import UUID

from headgate.connector.api import DataError, SinkRecord
from headgate.connector.schema import Schema, SchemaType
from headgate_connectors.output.rows import at, value_schema

NONE, DEBEZIUM = "none", "debezium"
_WRITTEN: Final = frozenset("cru")
"""Values of `op` for a row that was created, updated, or read for a snapshot."""
_DELETED: Final = "d"
_LEFT_OUT: Final = "__debezium_unavailable_value"
"""Default of Debezium's `unavailable.value.placeholder`, which stands for a value that the event
lacks."""


def plain(record: SinkRecord) -> SinkRecord:
    """Return a record whose value is the row after the change, or a tombstone for a deletion.

    The tombstone's key is the row before the change, or the record's own key if that row is null.
    A record that is a tombstone already is returned unchanged.

    Raises:
        DataError: the value is not a change event, neither writes nor deletes a row, or lacks the
            value of a column.
    """
    if record.value is None:
        return record
    schema = value_schema(record)
    if schema.type is not SchemaType.STRUCT or schema.field("op") is None:
        raise DataError(
            f"{at(record)} is no change event of Debezium, which is a struct with op, before and "
            "after: set change.events = none if its transform ExtractNewRecordState made a row"
        )
    op = record.value.get("op")
    if op in _WRITTEN:
        kind, row = _part(record, schema, "after")
        if row is None:
            raise DataError(f"{at(record)} has op {op} but null in after, expected the row")
        _check_complete(record, row)
        return replace(record, value=row, value_schema=kind)
    if op == _DELETED:
        kind, row = _part(record, schema, "before")
        gone = replace(record, value=None, value_schema=None)
        return gone if row is None else replace(gone, key=row, key_schema=kind)
    raise DataError(
        f"{at(record)} has op {op!r}, expected c, r, u or d: a table sink can neither truncate nor "
        "keep messages. Leave such events out where they are made (skipped.operations), or by a "
        "Filter"
    )


def _part(record: SinkRecord, schema: Schema, name: str) -> tuple[Schema | None, Any]:
    field = schema.field(name)
    if field is None:
        raise DataError(f"{at(record)} has no field {name}: a change event has one")
    return field.schema, record.value.get(name)


def _check_complete(record: SinkRecord, row: Any) -> None:
    for name, value in row.items():
        if value in _PLACEHOLDERS:
            raise DataError(
                f"{at(record)} has not the value of column {name}: the database did not give it, "
                "and the row would lose it. For PostgreSQL set REPLICA IDENTITY FULL on the table"
            )


_NAME: Final = _LEFT_OUT.encode()
_PLACEHOLDERS: Final[tuple[Any, ...]] = (
    *(_LEFT_OUT, _NAME, [_LEFT_OUT], [_NAME], list(_NAME)),
    [str(UUID(bytes=md5(_NAME, usedforsecurity=False).digest(), version=3))],
    {_LEFT_OUT: _LEFT_OUT},
    json.dumps({_LEFT_OUT: _LEFT_OUT}, separators=(",", ":")),
)
"""Values that stand for one that the event lacks: a text or bytes, an array (of texts, bytes,
numbers or UUIDs), or an hstore as a map or as JSON. Source: Debezium's
UnchangedToastedPlaceholder."""
