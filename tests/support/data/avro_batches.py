"""Batches that AvroConverter writes by columns."""

from typing import Any

from hypothesis import event

from headgate.connector.registry_converters import AvroConverter
from headgate.connector.schema import Schema
from headgate_arrow.avro_columns import AvroColumns, NeedsRowsError


def by_columns(converter: object, schema: Schema, values: Any) -> list[bytes] | NeedsRowsError:
    """What the columns of a RecordBatch give for topic ``t``, or why they leave it to the rows."""
    assert isinstance(converter, AvroConverter)
    try:
        found = AvroColumns(schema, converter.form("t", schema)).values(values)
    except NeedsRowsError as error:
        event(f"by rows: {error}")
        return error
    event("by columns")
    return found
