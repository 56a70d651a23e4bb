"""A chain of transforms on batches of Arrow rows. It needs pyarrow.

A change that is the same for all rows is made by the transform itself, on one record that stands
for them. A change of values is described by the transform as a `ColumnPlan`, and made here on
columns. If it is not certain that the result is the same as for single records, the batch is
refused with `NeedsRecordsError` or another error. Its rows are then changed one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from headgate.connector.api import SinkRecord, SourceRecord, Transform
from headgate.connector.batches import SinkBatch, SourceBatch
from headgate.connector.schema import Schema, SchemaType
from headgate.connector.transforms import RecordTransform, Stage
from headgate.connector.transforms.base import SidedTransform
from headgate.connector.transforms.columns import (
    Column,
    ColumnPlan,
    Computed,
    Constant,
    RowOffset,
    RowsAtOnce,
    Taken,
    Whole,
)
from headgate_arrow import arrow_types
from headgate_arrow.computed_columns import alike, computed

Batch = TypeVar("Batch", SourceBatch, SinkBatch)


class NeedsRecordsError(Exception):
    """The rows of a batch must be changed one by one. The message says why."""


@dataclass(slots=True)
class _Rows:
    """Rows between two transforms. `record` stands for all of them, except for its value."""

    record: SourceRecord | SinkRecord
    values: Any
    """A RecordBatch, or an array after a field was extracted."""
    count: int
    offset: int | None
    """Consumer offset of the first row. None: they are a source's."""

    @property
    def schema(self) -> Schema:
        schema = self.record.value_schema
        assert schema is not None
        return schema


class BatchChain:
    """A chain of transforms for which `takes_rows_at_once` is true. It is made once for a task."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self._stages: list[tuple[Stage | None, RecordTransform]] = []
        for one in transforms:
            stage = one if isinstance(one, Stage) else None
            transform = one if stage is None else stage.transform
            assert isinstance(transform, RecordTransform)
            self._stages.append((stage, transform))

    def apply(self, batch: Batch) -> Batch | None:
        """Return the transformed batch. None: all of it is dropped.

        Raises:
            NeedsRecordsError: the rows must be changed one by one.
            Exception: an exception of a transform or of pyarrow. The rows must be changed one by
                one too.
        """
        rows = _begun(batch)
        for stage, transform in self._stages:
            if stage is not None:
                _require_values(rows)
                if not stage.applies(rows.record):
                    continue
            changed = _transformed(rows, transform)
            if changed is None:
                return None
            rows = changed
        return _ended(batch, rows)


def _begun(batch: SourceBatch | SinkBatch) -> _Rows:
    if isinstance(batch, SourceBatch):
        source = SourceRecord(
            *(batch.source_partition, {}, batch.topic, {}, batch.key),
            headers=batch.headers,
            partition=batch.partition,
            timestamp_ms=batch.timestamp_ms,
            key_schema=batch.key_schema,
            value_schema=batch.value_schema,
        )
        return _Rows(source, batch.values, batch.count, None)
    sink = SinkRecord(
        *(batch.topic, batch.partition, batch.offset, batch.key, {}),
        headers=batch.headers,
        timestamp_ms=batch.timestamp_ms,
        key_schema=batch.key_schema,
        value_schema=batch.value_schema,
        header_schemas=batch.header_schemas,
    )
    return _Rows(sink, batch.values, batch.count, batch.offset)


def _ended(batch: Batch, rows: _Rows) -> Batch:
    _require_values(rows)
    values, record = _columns(rows), rows.record
    made = replace(
        batch,
        topic=record.topic,
        values=values,
        value_schema=rows.schema,
        key=record.key,
        key_schema=record.key_schema,
        headers=record.headers,
    )
    if isinstance(made, SinkBatch):
        made.header_schemas = record.header_schemas
    return made


def _require_values(rows: _Rows) -> None:
    """Check that no value is null. A tombstone's record differs from the other records.

    Raises:
        NeedsRecordsError: some value is null.
    """
    if isinstance(rows.values, pa.Array) and rows.values.null_count:
        raise NeedsRecordsError("some values are null")


def _transformed(rows: _Rows, transform: RecordTransform) -> _Rows | None:
    if transform.rows_at_once() is RowsAtOnce.COLUMNS:
        assert isinstance(transform, SidedTransform)
        return _planned(rows, transform)
    given = rows.record
    record = (
        transform.apply_source(given)
        if isinstance(given, SourceRecord)
        else transform.apply_sink(given)
    )
    return None if record is None else _Rows(record, rows.values, rows.count, rows.offset)


def _planned(rows: _Rows, transform: SidedTransform) -> _Rows:
    if rows.schema.type is not SchemaType.STRUCT:
        raise NeedsRecordsError("the values are no structs")
    _require_values(rows)
    plan = transform.columns(rows.schema, rows.record)
    if plan is None:
        raise NeedsRecordsError("the transform has no plan for columns")
    values = _taken(rows, cast(Taken, plan.columns[0])) if plan.extracts else _made(rows, plan)
    return _Rows(replace(rows.record, value_schema=plan.schema), values, rows.count, rows.offset)


def _made(rows: _Rows, plan: ColumnPlan) -> Any:
    """Return the RecordBatch that `plan` makes of `rows`."""
    fields = arrow_types.arrow_schema(plan.schema)
    if not len(fields):
        raise NeedsRecordsError("no field is left, and a batch without columns has no rows")
    arrays = [_array(rows, one, kind) for one, kind in zip(plan.columns, fields, strict=True)]
    for array, field in zip(arrays, fields, strict=True):
        if array.null_count and not field.nullable:
            raise NeedsRecordsError(f"column {field.name} has a null, and takes none")
    return pa.RecordBatch.from_arrays(arrays, schema=fields)


def _array(rows: _Rows, column: Column, field: Any) -> Any:
    match column:
        case Taken():
            return _taken(rows, column)
        case Whole():
            values = _columns(rows)
            return pa.StructArray.from_arrays(values.columns, fields=list(values.schema))
        case Constant(value):
            return pa.repeat(arrow_types.scalar_of(value, field.type), rows.count)
        case RowOffset():
            if rows.offset is None:
                raise NeedsRecordsError("records of a source have no offset")
            return pa.array(range(rows.offset, rows.offset + rows.count), field.type)
        case Computed(name):
            array = _taken(rows, Taken((name,)))
            return (
                alike(array, column, field.type)
                if column.alike
                else computed(array, column, field.type)
            )


def _taken(rows: _Rows, column: Taken) -> Any:
    """Return the values of a field. Values within a null struct are null."""
    values, schema = _columns(rows), rows.schema
    first, *steps = column.path
    at = _place(schema, first)
    array, schema = values.column(at), schema.fields[at].schema
    defaults = [schema.default]
    for step in steps:
        if schema.type is not SchemaType.STRUCT:
            raise NeedsRecordsError(f"no field {step} in a {schema.type}")
        at = _place(schema, step)
        array, schema = pc.struct_field(array, [at]), schema.fields[at].schema
        defaults.append(schema.default)
    if array.null_count and any(default is not None for default in defaults):
        raise NeedsRecordsError(f"the field {'.'.join(column.path)} has nulls and a default")
    return array


def _place(schema: Schema, name: str) -> int:
    for at, field in enumerate(schema.fields):
        if field.name == name:
            return at
    raise NeedsRecordsError(f"there is no field {name}")


def _columns(rows: _Rows) -> Any:
    """Return the values as a RecordBatch."""
    if not isinstance(rows.values, pa.Array):
        return rows.values
    if rows.schema.type is not SchemaType.STRUCT or not rows.schema.fields:
        raise NeedsRecordsError(f"the values are of type {rows.schema.type}, and no struct")
    columns = [pc.struct_field(rows.values, [at]) for at in range(rows.values.type.num_fields)]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_types.arrow_schema(rows.schema))
