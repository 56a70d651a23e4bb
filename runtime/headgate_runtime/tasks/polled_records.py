"""What `poll` of a source task and `pre_commit` of a sink task have returned, refused by name where
it is nothing of what they may return. That is a mistake of the connector: it fails the task,
whatever `errors.tolerance` says."""

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
    """`poll` has returned what no source task may return."""


def polled_items(task: object, polled: Any) -> list[SourceItem | SourceBatch]:
    """`polled` as a list.

    Raises:
        PolledTypeError: it is no batch.
        Exception: what a generator of the task raises.
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
    """Raises PolledTypeError: `item` of a batch is no record."""
    if not isinstance(item, _SINGLE):
        raise PolledTypeError(f"{type(task).__name__}.poll() gave {shown(item)}; {EXPECTED}")


def check_topic(record: SourceItem | SourceBatch, topic: Any) -> str:
    """`topic`, where `record` is to go. Raises PolledTypeError: it is no name."""
    if not isinstance(topic, str) or not topic:
        raise PolledTypeError(
            f"a record has the topic {topic!r}, expected its name as text: the task's SourceRecord "
            f"or a transform gives none ({_position(record)})"
        )
    return topic


def check_name(topic: object, known: Collection[str] = ()) -> None:
    """A name that comes of a record costs that record alone. Differs: it fails a task of Java.

    Args:
        topic: what is no text at all is left to `check_topic`.
        known: topics that are there.

    Raises:
        DataError: no topic may be called so.
    """
    if type(topic) is not str or not topic or topic in known:
        return
    if fault := topic_fault(topic):
        raise DataError(f"topic {fault}")


def check_fields(record: SourceItem) -> None:
    """Raises PolledTypeError: what `record`, which was not converted, has as headers or schemas
    is none. What is wrong with a value is a matter of its converter."""
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
    """Raises PolledTypeError: what a record has as partition or timestamp is none, so that no log
    takes it.

    Args:
        sources: what each of `sent` was made of.
    """
    for one, source in zip(sent, sources, strict=False):
        if not isinstance(one, ProducerRecord):
            continue
        if not (one.partition is None or type(one.partition) is int):
            raise _wrong(source, "partition", one.partition, "a whole number from 0 on, or None")
        check_time(source, one.timestamp_ms)


def check_time(source: SourceItem | SourceBatch, timestamp_ms: object) -> None:
    """Raises PolledTypeError: it is no timestamp."""
    if not _is_whole(timestamp_ms, 63):
        expected = "milliseconds since 1970 as an int, or None"
        raise _wrong(source, "timestamp_ms", timestamp_ms, expected)


def sent_time(source: SourceItem, timestamp_ms: int) -> int | None:
    """The timestamp to send. Raises PolledTypeError: it is none."""
    check_time(source, timestamp_ms)
    return sending_timestamp(timestamp_ms)


def check_safe_offsets(task: object, given: object) -> None:
    """Raises TypeError: `given` is nothing that `pre_commit` of a sink task may return."""
    whole = isinstance(given, Mapping) and all(
        offset is not None and _is_whole(offset, 63) for offset in given.values()
    )
    if not whole:
        raise TypeError(
            f"{type(task).__name__}.pre_commit() returned {shown(given)}; expected a mapping of "
            "(topic, partition) to the next offset, a whole number; an empty one commits nothing"
        )


def _is_whole(value: object, bits: int) -> bool:
    """None is. So is what counts as a whole number in Python, such as numpy's."""
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
    """The type of a value, with as much of it as fits in a line."""
    text = repr(value)
    if len(text) > 60:
        text = text[:57] + "..."
    return f"a value of type {type(value).__name__}: {text}"
