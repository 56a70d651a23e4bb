"""Values of sink records as rows of columns: which schema a row has, and how errors name it."""

from collections.abc import Mapping
from typing import Any, Final

from headgate.connector import schema as s
from headgate.connector.api import DataError, SinkRecord, SinkTaskContext
from headgate.connector.schema import Schema, SchemaType

VALUE: Final = "value"
"""Name of the one column of values that are no struct."""

_WITHOUT_SCHEMA: Final[Mapping[type, Schema]] = {
    str: s.STRING.as_optional(),
    bytes: s.BYTES.as_optional(),
    bool: s.BOOLEAN.as_optional(),
    int: s.INT64.as_optional(),
    float: s.FLOAT64.as_optional(),
}


def value_schema(record: SinkRecord) -> Schema:
    """Schema of the record's value, which is not None.

    Raises:
        DataError: it is a map or a list without a schema.
    """
    return record.value_schema or _schema_of(record.value, "is", at(record))


def key_schema(record: SinkRecord) -> Schema:
    """Schema of the record's key, which is not None. Raises `DataError` as `value_schema`."""
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
    """The STRUCT of a row: a schema of another type becomes the column `VALUE`."""
    return schema if schema.type is SchemaType.STRUCT else s.struct({VALUE: schema})


def refuse(context: SinkTaskContext, record: SinkRecord, error: DataError) -> None:
    """Give a record that the sink cannot write to the errant record reporter.

    Raises:
        DataError: there is none.
    """
    reporter = context.errant_record_reporter()
    if reporter is None:
        raise error
    reporter.report(record, error)


def at(record: SinkRecord) -> str:
    return f"the value at {record.topic}-{record.partition} offset {record.offset}"
