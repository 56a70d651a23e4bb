"""Batches that AvroConverter writes by columns."""

from typing import Any

from hypothesis import event

from headgate.connector.registry_converters import AvroConverter
from headgate.connector.schema import Schema
from headgate_arrow.avro_columns import AvroColumns, NeedsRowsError


def by_columns(converter: object, schema: Schema, values: Any) -> list[bytes] | NeedsRowsError:
    """Return the Avro values for topic ``t`` made from the columns of a RecordBatch, or the error
    that says why the rows must be written one by one."""
    assert isinstance(converter, AvroConverter)
    try:
        found = AvroColumns(schema, converter.form("t", schema)).values(values)
    except NeedsRowsError as error:
        event(f"by rows: {error}")
        return error
    event("by columns")
    return found
