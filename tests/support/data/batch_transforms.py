"""Rows of a batch through a chain of transforms, as a whole batch and one by one."""

from collections.abc import Sequence
from typing import Any

from headgate.connector.api import SinkRecord, SourceRecord, Transform
from headgate.connector.batches import SinkBatch, SourceBatch
from headgate.connector.converters import CONVERTERS, SimpleHeaderConverter, TaskConverters
from headgate.connector.text_converters import TypedConverter
from headgate.connector.transforms import transform_sink, transform_source
from headgate.ports import ConsumerRecord
from headgate_arrow import rows
from headgate_arrow.batch_chain import BatchChain
from headgate_runtime.tasks.source_batches import DroppedBatch, Item, ReadyBatch, SourceBatches


def converters() -> TaskConverters:
    key: Any = CONVERTERS["JsonConverter"]()
    key.configure({"schemas.enable": "false"}, is_key=True)
    return TaskConverters(key, TypedConverter(), SimpleHeaderConverter())


def in_the_log(made: TaskConverters, record: SourceRecord) -> Any:
    topic = record.topic
    key = None if record.key is None else made.key.from_connect(topic, record.key, None)
    return (
        *(topic, record.partition, key),
        made.value.from_connect(topic, record.value, record.value_schema),
        made.header.from_connect(topic, record.headers, record.header_schemas),
        record.timestamp_ms,
    )


def sent(made: TaskConverters, chain: Sequence[Transform], record: Any) -> Any:
    """Return the fate of one source record: its form in the log, None if it is dropped, or its
    error."""
    try:
        found = transform_source(chain, record)
        return None if found is None else in_the_log(made, found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def of_the_log(record: ConsumerRecord, time_ms: int | None) -> Any:
    return (record.topic, 0, record.key, record.value, record.headers, time_ms)


def prepared(chain: Sequence[Transform], batch: SourceBatch) -> Sequence[Item]:
    batches = SourceBatches(converters(), chain)
    batches.flow = batches.kept = True
    return batches.prepared([batch])


def source_ways(chain: Sequence[Transform], batch: SourceBatch) -> tuple[list[Any], list[Any]]:
    """Return what a source sends of a batch, as a batch where it can and one by one."""
    made = converters()
    records = rows.source_records(batch)
    return by_batch(chain, batch), [sent(made, chain, one) for one in records]


def by_batch(chain: Sequence[Transform], batch: SourceBatch) -> list[Any]:
    made, found = converters(), list[Any]()
    for item in prepared(chain, batch):
        if isinstance(item, DroppedBatch):
            found += [None] * item.count
        elif isinstance(item, ReadyBatch):
            item.sent.offset, item.sent.timestamp_ms = 0, 0
            given_rows = rows.log_records(item.sent, 0, item.sent.count)
            found += [of_the_log(one, batch.timestamp_ms) for one in given_rows]
        else:
            found.append(sent(made, chain, item))
    return found


def taken(made: TaskConverters, record: SinkRecord | None) -> Any:
    if record is None:
        return None
    value = made.value.from_connect(record.topic, record.value, record.value_schema)
    return (
        *(record.topic, record.partition, record.offset, repr(record.key), record.key_schema),
        *(value, record.headers, record.header_schemas, record.timestamp_ms),
    )


def sink_ways(chain: Sequence[Transform], batch: SinkBatch) -> tuple[list[Any] | None, list[Any]]:
    """Return what a sink gets of a batch, as a batch and one by one. The first is None if the chain
    cannot take the batch as a whole."""
    made, records = converters(), rows.sink_records(batch)
    try:
        found = BatchChain(chain).apply(batch)
    except Exception:  # whatever it is, the rows are changed one by one, and tell it themselves
        return None, []
    one_by_one = [taken(made, transform_sink(chain, record)) for record in records]
    if found is None:
        return [None] * len(records), one_by_one
    return [taken(made, record) for record in rows.sink_records(found)], one_by_one
