"""Checks of the offsets that users give, before anything is written. Source: KIP-875, OffsetUtils,
SinkUtils.parseSinkConnectorOffsets.

Differs: a value that is no offset of a source connector is refused like one of a sink connector
(Java: an internal error). A negative consumer offset is refused, too.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, cast

from headgate.herder.calls import ErrorKind, Failure, OffsetChange
from headgate.topics.config_records import parse_java_int
from headgate.topics.offsets import OffsetFormatError, encode_key, encode_value

NOTHING_GIVEN: Final = Failure(
    ErrorKind.BAD_REQUEST, "Partitions / offsets need to be provided for an alter offsets request"
)
TOPIC, PARTITION, OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
DEPTH_MAX: Final = 64
"""Most levels of nesting in a partition or an offset. Both are written and read in several steps,
each of which takes a piece of the stack for each level."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_LONG_MAX: Final = 2**63 - 1


def is_nested_too_deep(value: object) -> bool:
    """Return whether a partition or an offset has more than `DEPTH_MAX` levels of lists and
    objects."""
    level = [value]
    for _ in range(DEPTH_MAX):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(cast(dict[str, object], each).values())
            elif isinstance(each, list):
                inner.extend(cast(list[object], each))
        level = inner
    return any(isinstance(each, dict | list) for each in level)


def source_changes(given: Sequence[OffsetChange]) -> tuple[OffsetChange, ...] | Failure:
    """Return the changes as given, or why they cannot be stored."""
    for partition, offset in given:
        for what, item in (("partition", partition), ("offset", offset)):
            if item is not None and not isinstance(item, dict):
                text = f"The {what} of a source connector offset must be a JSON object or null, not"
                return _refused(f"{text} {json.dumps(item)}")
        try:
            encode_key("", cast(dict[str, Any] | None, partition))
            encode_value(cast(dict[str, Any] | None, offset))
        except OffsetFormatError as error:
            return _refused(str(error))
    return tuple(given)


def sink_changes(given: Sequence[OffsetChange]) -> tuple[OffsetChange, ...] | Failure:
    """Return the changes with only the known keys and with integers, or why they are refused. The
    last change of a partition counts."""
    parsed: dict[tuple[str, int], OffsetChange] = {}
    for partition, offset in given:
        place = _topic_partition(partition)
        if isinstance(place, Failure):
            return place
        number = _consumer_offset(offset)
        if isinstance(number, Failure):
            return number
        topic, index = place
        parsed[place] = (
            {TOPIC: topic, PARTITION: index},
            None if number is None else {OFFSET: number},
        )
    return tuple(parsed.values())


def _topic_partition(partition: object) -> tuple[str, int] | Failure:
    if partition is None:
        return _refused("The partition for a sink connector offset cannot be null or missing")
    table = _table(partition)
    if table is None or TOPIC not in table or PARTITION not in table:
        return _refused(
            f"The partition for a sink connector offset must contain the keys '{TOPIC}' and "
            f"'{PARTITION}'"
        )
    if table[TOPIC] is None:
        return _refused("Kafka topic names must be valid strings and may not be null")
    index = parse_java_int(_text(table[PARTITION]))
    if index is None or index < 0:
        return _not_parsed("partition", "Partition", table[PARTITION])
    return _text(table[TOPIC]), index


def _consumer_offset(offset: object) -> int | Failure | None:
    if offset is None:
        return None
    table = _table(offset)
    if table is None or OFFSET not in table:
        return _refused(
            f"The offset for a sink connector should either be null or contain the key '{OFFSET}'"
        )
    text = _text(table[OFFSET])
    number = int(text) if _INTEGER.fullmatch(text) else None
    if number is None or not 0 <= number <= _LONG_MAX:
        return _not_parsed("offset", "Offset", table[OFFSET])
    return number


def _table(value: object) -> dict[str, Any] | None:
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def _text(value: object) -> str:
    """Return a value as text: users may write both 10 and "10"."""
    return value if isinstance(value, str) else json.dumps(value)


def _not_parsed(what: str, start: str, value: object) -> Failure:
    return _refused(
        f"Failed to parse the following Kafka {what} value in the provided offsets: "
        f"'{_text(value)}'. {start} values for sink connectors need to be integers"
        f"{', and not negative' if _text(value).startswith('-') else ''}."
    )


def _refused(text: str) -> Failure:
    return Failure(ErrorKind.BAD_REQUEST, text)
