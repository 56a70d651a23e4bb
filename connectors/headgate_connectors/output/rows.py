"""Sink records as rows of columns: the schema of a row, and the name of a record in errors."""

from collections.abc import Mapping
from typing import Any, Final

from headgate.connector import schema as s
from headgate.connector.api import DataError, SinkRecord, SinkTaskContext
from headgate.connector.schema import Schema, SchemaType

VALUE: Final = "value"
"""Name of the only column if the values are not structs."""

_WITHOUT_SCHEMA: Final[Mapping[type, Schema]] = {
    str: s.STRING.as_optional(),
    bytes: s.BYTES.as_optional(),
    bool: s.BOOLEAN.as_optional(),
    int: s.INT64.as_optional(),
    float: s.FLOAT64.as_optional(),
}


def value_schema(record: SinkRecord) -> Schema:
    """Return the schema of the record's value, which must not be None. A value without a schema
    gets that of its Python type.

    Raises:
        DataError: the value has no schema and is a map, a list or of another unknown type.
    """
    return record.value_schema or _schema_of(record.value, "is", at(record))


def key_schema(record: SinkRecord) -> Schema:
    """Return the schema of the record's key, which must not be None. Raises `DataError` like
    `value_schema`."""
    return record.key_schema or _schema_of(record.key, "has a key that is", at(record))


def _schema_of(value: Any, does: str, where: str) -> Schema:
    found = _WITHOUT_SCHEMA.get(type(value))
    if found is None:
        raise DataError(
            f"{where} {does} a {type(value).__name__} without a schema, so its columns "
            "have no types: use a converter that keeps schemas (JsonConverter with schemas.enable "
            "= true, or TypedConverter)"
        )
    return found


def as_struct(schema: Schema) -> Schema:
    """Return the STRUCT of a row. A schema of another type becomes the one column `VALUE`."""
    return schema if schema.type is SchemaType.STRUCT else s.struct({VALUE: schema})


def refuse(context: SinkTaskContext, record: SinkRecord, error: DataError) -> None:
    """Report a record that the sink cannot write to the errant record reporter.

    Raises:
        DataError: `error`, if there is no reporter.
    """
    reporter = context.errant_record_reporter()
    if reporter is None:
        raise error
    reporter.report(record, error)


def at(record: SinkRecord) -> str:
    return f"the value at {record.topic}-{record.partition} offset {record.offset}"
