"""Batches of Arrow rows on their way from the log to `put_batch`."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from headgate.connector.api import SinkTask
from headgate.connector.batches import RowNumbers, SinkBatch
from headgate.connector.converters import TaskConverters
from headgate.connector.transforms import takes_rows_at_once
from headgate.ports import BatchConsumer, Consumer, ConsumerRecord, LogBatch
from headgate_runtime.tasks.source_batches import flows_typed

Change: TypeAlias = Callable[[SinkBatch], SinkBatch | None]
"""Function that applies the transforms to a batch, as `BatchChain.apply` does."""


def batches_flow(
    task: SinkTask, made: TaskConverters, transforms: Sequence[Any], consumer: Consumer
) -> Change | None:
    """Return the transforms as a function for whole batches, or None if the task cannot be given
    whole batches."""
    at_once = flows_typed(made) and takes_rows_at_once(transforms)
    if not (at_once and isinstance(consumer, BatchConsumer) and task.takes_batches()):
        return None
    if not transforms:
        return lambda batch: batch
    from headgate_arrow.batch_chain import BatchChain

    return BatchChain(transforms).apply


def sink_batch(batch: LogBatch, made: TaskConverters) -> SinkBatch:
    """Return a batch of the log as the task's converters read it, before transforms.

    Raises:
        Exception: as converters and pyarrow raise it.
    """
    from headgate_arrow import rows

    assert batch.partition is not None
    topic, skip = batch.topic, batch.skip
    values = rows.from_bytes(batch.data)
    key_schema, key = None, None
    if batch.key is not None:
        key_schema, key = made.key.to_connect_data(topic, batch.key)
    raw = [(name, b"0" if isinstance(one, RowNumbers) else one) for name, one in batch.headers]
    headers, schemas = made.header.to_connect_data(topic, tuple(raw))
    shown = tuple(
        [
            (name, RowNumbers(one.values[skip:]) if isinstance(one, RowNumbers) else value)
            for (name, value), (_, one) in zip(headers, batch.headers, strict=True)
        ]
    )
    return SinkBatch(
        *(topic, batch.partition, batch.offset + skip, values.slice(skip) if skip else values),
        value_schema=rows.schema_of(batch.schema),
        key=key,
        key_schema=key_schema,
        headers=shown,
        header_schemas=schemas,
        timestamp_ms=batch.timestamp_ms or 0,
    )


def log_records(batch: LogBatch) -> Sequence[ConsumerRecord]:
    """Return the records that the batch stands for, without the unwanted ones."""
    from headgate_arrow import rows

    return rows.log_records(batch, batch.skip, batch.count)
