"""Dead letters: records that could not be processed, with headers that say why.

A sink's dead letter is the record as the log had it. A source's record has no such form yet: the
value of its dead letter is the bytes or text that the source had read, else JSON of the record's
value or of the reason. Headers of ours say where it stood. Source: KIP-298, DeadLetterQueueReporter
(4.3.1).

Differs: Connect has no queue for sources. An exception that Java does not have is named by Python's
module and class. The trace is Python's.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from headgate.connector.api import DataError, RetriableError, SkippedRecord, SourceRecord
from headgate.connector.error_handling import ErrorStage
from headgate.connector.json_converter import json_bytes
from headgate.connector.schema import kind_of
from headgate.ports import ConsumerRecord, Headers, ProducerRecord

PREFIX: Final = "__connect.errors."
OUR_PREFIX: Final = "__headgate.errors."
SOURCE_PARTITION: Final = OUR_PREFIX + "source.partition"
"""Header of a source's dead letter: the source partition as JSON."""
SOURCE_OFFSET: Final = OUR_PREFIX + "source.offset"
SINK_TASK: Final = "org.apache.kafka.connect.sink.SinkTask"
"""Class that Connect names for `ErrorStage.TASK_PUT`."""
SOURCE_TASK: Final = "org.apache.kafka.connect.source.SourceTask"

_JAVA_ERRORS: Final[Mapping[type[BaseException], str]] = {
    DataError: "org.apache.kafka.connect.errors.DataException",
    RetriableError: "org.apache.kafka.connect.errors.RetriableException",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of one record, and where it occurred."""

    connector: str
    task: int
    stage: ErrorStage
    executing_class: str
    """Connect's name of the converter or transform, as the config gives it."""
    error: BaseException
    trace: str
    """Text of the error's traceback."""


def error_class(error: BaseException) -> str:
    """Return Java's name of an error that Connect has too, else Python's module and name."""
    kind = type(error)
    return _JAVA_ERRORS.get(kind) or f"{kind.__module__}.{kind.__qualname__}"


def context_headers(failure: Failure, place: tuple[str, int, int] | None) -> Headers:
    """Return the headers that `errors.deadletterqueue.context.headers.enable` adds.

    Args:
        place: Topic, partition and offset of the record; None if it was in no topic.
    """
    found: list[tuple[str, bytes | None]] = []
    if place is not None:
        topic, partition, offset = place
        found += [
            (PREFIX + "topic", _bytes(topic)),
            (PREFIX + "partition", _bytes(str(partition))),
            (PREFIX + "offset", _bytes(str(offset))),
        ]
    error = failure.error
    message = str(error)
    return (
        *found,
        (PREFIX + "connector.name", _bytes(failure.connector)),
        (PREFIX + "task.id", _bytes(str(failure.task))),
        (PREFIX + "stage", _bytes(failure.stage.value)),
        (PREFIX + "class.name", _bytes(failure.executing_class)),
        (PREFIX + "exception.class.name", _bytes(error_class(error))),
        # Java writes null for an exception without a message.
        (PREFIX + "exception.message", _bytes(message) if message else None),
        (PREFIX + "exception.stacktrace", _bytes(failure.trace)),
    )


def sink_letter(topic: str, raw: ConsumerRecord, failure: Failure | None) -> ProducerRecord:
    """Return `raw` as a dead letter for `topic`, with its key, value, headers and time unchanged.

    Args:
        failure: Error for the headers; None if they are not wanted.
    """
    place = (raw.topic, raw.partition, raw.offset)
    added = context_headers(failure, place) if failure is not None else ()
    time_ms = raw.timestamp_ms if raw.timestamp_ms >= 0 else None
    return ProducerRecord(topic, None, raw.key, raw.value, (*raw.headers, *added), time_ms)


def source_letter(
    topic: str, record: SourceRecord | SkippedRecord, failure: Failure | None
) -> ProducerRecord:
    """Return a dead letter for `topic`, of a record that a source has read and cannot write.

    Args:
        failure: Error for Connect's headers; None if they are not wanted. The headers of the source
            partition and offset are always there.
    """
    headers: Headers = (
        (SOURCE_PARTITION, _json(record.source_partition)),
        (SOURCE_OFFSET, _json(record.source_offset)),
    )
    key: bytes | None = None
    if isinstance(record, SourceRecord):
        value = _plain(record.value)
    elif record.raw is not None:
        value = record.raw
    else:
        value = _json({"reason": record.reason, "count": record.count})
    time_ms = None
    if isinstance(record, SourceRecord):
        key = _plain(record.key)
        headers = ((OUR_PREFIX + "topic", _bytes(str(record.topic))), *headers)
        time_ms = record.timestamp_ms
    if failure is not None:
        headers = (*context_headers(failure, None), *headers)
    if time_ms is not None and time_ms < 0:
        time_ms = None
    return ProducerRecord(topic, None, key, value, headers, time_ms)


def log_text(task: str, stage: ErrorStage, executing_class: str, record: str | None) -> str:
    """Return the log line of one error, for `errors.log.enable`.

    Args:
        record: With `errors.log.include.messages`, the text of `told_sink` or `told_source`.
    """
    told = record or ""
    return (
        f"Error encountered in task {task}. Executing stage '{stage}' with class "
        f"'{executing_class}'{told}."
    )


def told_sink(raw: ConsumerRecord) -> str:
    """Return where a sink's record stood. As in Connect, key and value are not shown."""
    return (
        f", where consumed record is {{topic='{raw.topic}', partition={raw.partition}, "
        f"offset={raw.offset}, timestamp={raw.timestamp_ms}, timestampType=CreateTime}}"
    )


def told_source(record: object) -> str:
    """Return a source's record with all its parts."""
    return f", where source record is = {record!r}"


def _bytes(text: str) -> bytes:
    """Encode as UTF-8. Half a surrogate pair becomes a question mark, as in Java."""
    return text.encode("utf-8", "replace")


def _json(value: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(dict(value), default=str, separators=(",", ":")).encode()
    except (TypeError, ValueError):
        return _bytes(repr(value))


def _plain(value: Any) -> bytes | None:
    """Return a value of any type as bytes that show as much of it as possible."""
    if value is None:
        return None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(cast("bytes", value))
    if isinstance(value, str):
        return _bytes(value)
    try:
        return json_bytes(value)
    except Exception:  # the value is here because it is odd
        return _plain_text(value)


def _plain_text(value: Any) -> bytes:
    forms: tuple[Callable[[Any], str], ...] = (partial(json.dumps, default=repr), repr)
    for form in forms:
        try:
            return _bytes(form(value))
        except Exception:  # keys of other types, cycles, a repr that raises
            continue
    return _bytes(f"a value of type {kind_of(value)} that has no text")
