"""What `poll` of a source task has returned, refused by name where it is nothing of what it may
return. That is a mistake of the connector: it fails the task whatever `errors.tolerance` says."""

from typing import Any

from headgate.connector.api import OffsetUpdate, SkippedRecord, SourceItem, SourceRecord
from headgate.connector.batches import SourceBatch

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
            "or a transform gives none (source partition "
            f"{record.source_partition!r}, offset {record.source_offset!r})"
        )
    return topic


def shown(value: object) -> str:
    """The type of a value, with as much of it as fits in a line."""
    text = repr(value)
    if len(text) > 60:
        text = text[:57] + "..."
    return f"a value of type {type(value).__name__}: {text}"
