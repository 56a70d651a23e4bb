"""Checks of what a source task's `poll` and a sink task's `pre_commit` return. A wrong type or
field is a mistake of the connector. It is refused by name and fails the task, whatever
`errors.tolerance` says."""

from collections.abc import Collection, Mapping, Sequence
from operator import index
from typing import Any, SupportsIndex

from headgate.connector.api import OffsetUpdate, SkippedRecord, SourceItem, SourceRecord
from headgate.connector.batches import SourceBatch
from headgate.connector.converters import sending_timestamp
from headgate.connector.data_error import DataError
from headgate.connector.schema import Schema
from headgate.connector.topic_names import topic_fault
from headgate.ports import ProducerRecord

EXPECTED = (
    "expected None or an iterable (a list, say) of SourceRecord, SourceBatch, SkippedRecord or "
    "OffsetUpdate"
)
_SINGLE = (SourceRecord, SkippedRecord, OffsetUpdate, SourceBatch)


class PolledTypeError(TypeError):
    """`poll` has returned an object that no source task may return."""


def polled_items(task: object, polled: Any) -> list[SourceItem | SourceBatch]:
    """Return `polled` as a list.

    Raises:
        PolledTypeError: it is no batch.
        Exception: a generator of the task raised it.
    """
    if polled is None:
        return []
    if type(polled) is list:
        return polled
    name = type(task).__name__
    if isinstance(polled, _SINGLE):
        kind = type(polled).__name__
        raise PolledTypeError(f"{name}.poll() returned one {kind}; {EXPECTED}: return [record]")
    if isinstance(polled, (dict, str, bytes, bytearray)) or not hasattr(polled, "__iter__"):
        raise PolledTypeError(f"{name}.poll() returned {shown(polled)}; {EXPECTED}")
    return list(polled)


def check_item(task: object, item: Any) -> None:
    """Check that an item of a batch is a record. Raises PolledTypeError: it is none."""
    if not isinstance(item, _SINGLE):
        raise PolledTypeError(f"{type(task).__name__}.poll() gave {shown(item)}; {EXPECTED}")


def check_topic(record: SourceItem | SourceBatch, topic: Any) -> str:
    """Return `topic`, to which `record` is to go. Raises PolledTypeError: it is no name."""
    if not isinstance(topic, str) or not topic:
        raise PolledTypeError(
            f"a record has the topic {topic!r}, expected its name as text: the task's SourceRecord "
            f"or a transform gives none ({_position(record)})"
        )
    return topic


def check_name(topic: object, known: Collection[str] = ()) -> None:
    """Check a topic name that comes from a record. A bad name costs that record alone. Differs: in
    Java it fails the task.

    Args:
        topic: the name. A value that is no text is left to `check_topic`.
        known: topics that exist.

    Raises:
        DataError: no topic may have this name.
    """
    if type(topic) is not str or not topic or topic in known:
        return
    if fault := topic_fault(topic):
        raise DataError(f"topic {fault}")


def check_fields(record: SourceItem) -> None:
    """Check headers and schemas of a record that was not converted. Values are left to converters.
    Raises PolledTypeError: one of them has a wrong type."""
    if not isinstance(record, SourceRecord):
        return
    headers: object = record.headers
    pairs = isinstance(headers, (list, tuple)) and all(
        isinstance(one, (list, tuple)) and len(one) == 2 for one in headers
    )
    if not pairs:
        raise _wrong(record, "headers", headers, 'pairs of name and value, such as [("a", 1)]')
    for name in ("key_schema", "value_schema"):
        schema: object = getattr(record, name)
        if schema is not None and not isinstance(schema, Schema):
            raise _wrong(record, name, schema, "a Schema of headgate.connector, or None")


def check_sent(sent: Sequence[object], sources: Sequence[SourceItem | SourceBatch]) -> None:
    """Check partitions and timestamps of records. With a wrong type, no log takes them.

    Args:
        sources: the items of which `sent` was made, one for each.

    Raises:
        PolledTypeError: a partition or timestamp has a wrong type.
    """
    for one, source in zip(sent, sources, strict=False):
        if not isinstance(one, ProducerRecord):
            continue
        if not (one.partition is None or type(one.partition) is int):
            raise _wrong(source, "partition", one.partition, "a whole number from 0 on, or None")
        check_time(source, one.timestamp_ms)


def check_time(source: SourceItem | SourceBatch, timestamp_ms: object) -> None:
    """Check a timestamp. Raises PolledTypeError: it is none."""
    if not _is_whole(timestamp_ms, 63):
        expected = "milliseconds since 1970 as an int, or None"
        raise _wrong(source, "timestamp_ms", timestamp_ms, expected)


def sent_time(source: SourceItem, timestamp_ms: int) -> int | None:
    """Return the timestamp to send. Raises PolledTypeError: it is none."""
    check_time(source, timestamp_ms)
    return sending_timestamp(timestamp_ms)


def check_safe_offsets(task: object, given: object) -> None:
    """Check what a sink task's `pre_commit` returned. Raises TypeError: it may not return this."""
    whole = isinstance(given, Mapping) and all(
        offset is not None and _is_whole(offset, 63) for offset in given.values()
    )
    if not whole:
        raise TypeError(
            f"{type(task).__name__}.pre_commit() returned {shown(given)}; expected a mapping of "
            "(topic, partition) to the next offset, a whole number; an empty one commits nothing"
        )


def _is_whole(value: object, bits: int) -> bool:
    """Return whether a value is None or a whole number, numpy's included."""
    if value is None:
        return True
    return isinstance(value, SupportsIndex) and index(value).bit_length() <= bits


def _wrong(
    record: SourceItem | SourceBatch, field: str, value: object, expected: str
) -> PolledTypeError:
    return PolledTypeError(
        f"a record has the {field} {shown(value)}; expected {expected} ({_position(record)})"
    )


def _position(record: SourceItem | SourceBatch) -> str:
    return f"source partition {record.source_partition!r}, offset {record.source_offset!r}"


def shown(value: object) -> str:
    """Return the type of a value, with as much of the value as fits in a line."""
    text = repr(value)
    if len(text) > 60:
        text = text[:57] + "..."
    return f"a value of type {type(value).__name__}: {text}"
