"""Conversion of batches to records and back, and of batches to bytes.

Nothing is lost in either direction. A value that the other form cannot hold is refused. The error
names the column.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from headgate.connector.api import SinkRecord, SkippedRecord, SourceRecord
from headgate.connector.batches import SinkBatch, SourceBatch
from headgate.connector.data_error import DataError
from headgate.connector.json_schema import read_schema, schema_text
from headgate.connector.json_values import DecimalFormat
from headgate.connector.schema import Schema, SchemaType
from headgate.connector.text_converters import TypedConverter
from headgate.ports import ConsumerRecord, LogBatch, RowNumbers
from headgate_arrow import arrow_types
from headgate_arrow.values import fault

Rows = list[dict[str, Any]]
_WRONG: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)


# -- records of a batch --


def source_records(batch: SourceBatch) -> list[SourceRecord | SkippedRecord]:
    """Return the records that a source could have returned instead of `batch`. A row with a value
    that has no form in Python is a skipped record."""
    whole = fault(batch.values) is None
    rows = values_of(batch.values) if whole else [None] * batch.count
    found: list[SourceRecord | SkippedRecord] = []
    for at, row in enumerate(rows):
        offset = batch.offsets[at]
        value = row
        if value is None:
            one = batch.values.slice(at, 1)
            reason = fault(one)
            if reason is not None:
                partition = dict(batch.source_partition)
                where = f"{reason} (source partition {partition}, offset {dict(offset)})"
                found.append(SkippedRecord(batch.source_partition, offset, where))
                continue
            value = values_of(one)[0]
        found.append(
            SourceRecord(
                *(batch.source_partition, offset, batch.topic, value, batch.key),
                headers=_headers_of(batch.headers, at),
                partition=batch.partition,
                timestamp_ms=batch.timestamp_ms,
                key_schema=batch.key_schema,
                value_schema=batch.value_schema,
            )
        )
    return found


def sink_records(batch: SinkBatch) -> list[SinkRecord]:
    """Return the records that a sink could have been given instead of `batch`."""
    return [
        SinkRecord(
            *(batch.topic, batch.partition, batch.offset + at, batch.key, value),
            headers=_headers_of(batch.headers, at),
            timestamp_ms=batch.timestamp_ms,
            key_schema=batch.key_schema,
            value_schema=batch.value_schema,
            header_schemas=batch.header_schemas,
        )
        for at, value in enumerate(values_of(batch.values))
    ]


def values_of(values: Any) -> Rows:
    """Return the rows of a RecordBatch as values of the STRUCT whose fields are its columns."""
    table = pa.Table.from_batches([values])
    return arrow_types.rows_of(table, arrow_types.carriers(table.schema))


def _headers_of(headers: Sequence[tuple[str, Any]], at: int) -> tuple[tuple[str, Any], ...]:
    return tuple(
        [(name, one.values[at] if isinstance(one, RowNumbers) else one) for name, one in headers]
    )


# -- a batch of records --


def batch_of(rows: Rows, schema: Schema) -> Any:
    """Return the RecordBatch of values of the STRUCT `schema`.

    Raises:
        DataError: a column has no type in Arrow, or a value does not fit. The message names the
            column.
    """
    try:
        columns = arrow_types.arrow_schema(schema)
    except arrow_types.NoFormError as error:
        raise DataError(str(error)) from error
    return record_batch(table_of(rows, columns, arrow_types.carriers(columns)))


def table_of(rows: Rows, columns: Any, by_way: Any) -> Any:
    """Return a pyarrow.Table of rows.

    Args:
        columns: the pyarrow.Schema of the table.
        by_way: the carriers of these columns (`arrow_types.carriers`).

    Raises:
        DataError: a value does not fit. The message names the column.
    """
    try:
        return arrow_types.table_of(rows, columns, by_way)
    except _WRONG:
        for row in rows:
            for column, way in zip(columns, by_way, strict=True):
                try:
                    arrow_types.table_of([row], pa.schema([column]), pa.schema([way]))
                except _WRONG as error:
                    raise DataError(
                        f"column {column.name} of type {column.type}: {error}"
                    ) from error
        raise


def record_batch(table: Any) -> Any:
    """Return the rows of a Table as one RecordBatch."""
    return with_columns(table, table.schema)


def with_columns(table: Any, columns: Any) -> Any:
    """Return the rows of a Table as one RecordBatch with these columns, which must have the same
    types.

    Raises:
        pyarrow.ArrowException: a type differs.
    """
    arrays = [_one_array(column) for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _one_array(column: Any) -> Any:
    if column.num_chunks == 1:
        return column.chunk(0)
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):  # for example, of dictionaries
        found = pa.concat_arrays(found.unify_dictionaries().chunks)
    return found


def check_columns(batch: SourceBatch) -> None:
    """Check that a source's batch fits its schema and the number of its rows.

    Raises:
        TypeError: its columns are not those of its value schema, or it has another number of
            offsets or header values than rows.
    """
    if batch.value_schema.type is not SchemaType.STRUCT:
        raise TypeError(
            f"a SourceBatch has the value schema {batch.value_schema.type}, expected a STRUCT with "
            "the columns of its values"
        )
    expected = arrow_types.arrow_schema(batch.value_schema)
    if not batch.values.schema.equals(expected):
        raise TypeError(
            f"a SourceBatch has the columns {_text(batch.values.schema)}; its value schema says "
            f"{_text(expected)}: make the schema with headgate_arrow.arrow_types.struct_schema"
        )
    counts = [("offsets", len(batch.offsets))]
    counts += [
        (f"header {name}", len(one.values))
        for name, one in batch.headers
        if isinstance(one, RowNumbers)
    ]
    for what, count in counts:
        if count != batch.count:
            raise TypeError(f"a SourceBatch of {batch.count} rows has {count} {what}")


def _text(columns: Any) -> str:
    return ", ".join(
        [f"{one.name} {one.type}{'' if one.nullable else ' not null'}" for one in columns]
    )


# -- bytes --


def to_bytes(values: Any) -> memoryview:
    """Return a RecordBatch as an IPC stream with its schema."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, values.schema) as writer:
        writer.write_batch(values)
    return memoryview(out.getvalue()).cast("B")


def from_bytes(data: bytes | memoryview) -> Any:
    """Return the RecordBatch in an IPC stream. Its columns use the memory of `data`.

    Raises:
        pyarrow.ArrowException, OSError: `data` is no such stream.
    """
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()


def schema_bytes(schema: Schema) -> bytes:
    """Return a schema as JSON, as `TypedConverter` writes it."""
    return schema_text(schema, DecimalFormat.BASE64, False).encode()


@lru_cache(maxsize=64)
def schema_of(text: bytes) -> Schema:
    """Return the schema that `schema_bytes` has written."""
    found = read_schema(json.loads(text))
    assert found is not None
    return found


def typed_values(schema: bytes, data: bytes | memoryview, start: int, end: int) -> list[bytes]:
    """Return rows `start` to before `end` of a batch in the log as values of records, as
    `TypedConverter` writes them."""
    known = schema_of(schema)
    write: Callable[..., bytes | None] = TypedConverter().from_connect
    rows = values_of(from_bytes(data).slice(start, end - start))
    found = [write("", row, known) for row in rows]
    return [value for value in found if value is not None]


def log_records(batch: LogBatch, start: int, end: int) -> list[ConsumerRecord]:
    """Return rows `start` to before `end` of a batch in the log, counted from 0, as records."""
    assert batch.partition is not None
    assert batch.timestamp_ms is not None
    values = typed_values(batch.schema, batch.data, start, end)
    wanted = range(start, end)
    columns: list[Sequence[tuple[str, bytes | None]]] = [
        [(name, str(number).encode()) for number in one.values[start:end]]
        if isinstance(one, RowNumbers)
        else [(name, one)] * len(wanted)
        for name, one in batch.headers
    ]
    headers = list(zip(*columns, strict=True)) if columns else [()] * len(wanted)
    return [
        ConsumerRecord(
            *(batch.topic, batch.partition, batch.offset + row, batch.key),
            *(value, header, batch.timestamp_ms),
        )
        for row, value, header in zip(wanted, values, headers, strict=True)
    ]


def same_columns(values: Any, columns: Any) -> Any:
    """Return `values` with exactly these columns, in their order. A column that it does not have is
    null.

    Raises:
        DataError: a column has another type, or a null although it is not nullable.
    """
    if values.schema.equals(columns):
        return values
    given: Mapping[str, int] = {name: at for at, name in enumerate(values.schema.names)}
    arrays: list[Any] = []
    for column in columns:
        at = given.get(column.name)
        array = pa.nulls(values.num_rows, column.type) if at is None else values.column(at)
        if array.type != column.type or (array.null_count and not column.nullable):
            raise DataError(f"column {column.name} is of type {array.type}, expected {column}")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
