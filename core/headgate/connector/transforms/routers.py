"""Transforms that name another topic, or drop a record.

Source: Connect's `RegexRouter`, `TimestampRouter`, `Filter` (4.3.1).
"""

import re
from collections.abc import Mapping
from typing import Final

from headgate.connector.api import DataError
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.transforms.base import Record, RecordTransform, copied
from headgate.connector.transforms.columns import RowsAtOnce
from headgate.connector.transforms.insert_field import timestamp_of
from headgate.connector.validators import regex
from headgate.java.simple_date_format import DatePatternError, date_format

ROUTES_MAX: Final = 10_000
"""Number of topics whose new names `RegexRouter` caches."""


class RegexRouter(RecordTransform):
    """Renames topics whose whole name matches. ``$1`` in the replacement is a group, as in Java.

    Differs: the expression is Python's.
    """

    BY_TOPIC = True
    CONFIG = (
        ConfigDef()
        .define(
            "regex",
            Type.STRING,
            validator=regex,
            importance=Importance.HIGH,
            documentation="For matching.",
        )
        .define(
            "replacement",
            Type.STRING,
            importance=Importance.HIGH,
            documentation="The new topic; $1 is a group.",
        )
    )

    def rows_at_once(self) -> RowsAtOnce:
        return RowsAtOnce.ALIKE

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._regex = re.compile(self.settings["regex"])
        self._routes: dict[str, str] = {}

    def apply(self, record: Record) -> Record | None:
        topic = self._routes.get(record.topic)
        if topic is None:
            topic = self._route(record.topic)
        if topic == record.topic:
            return record
        result = copied(record)
        result.topic = topic
        return result

    def _route(self, topic: str) -> str:
        if len(self._routes) == ROUTES_MAX:  # there may be a topic for each value of a field
            self._routes.clear()
        route = topic
        if self._regex.fullmatch(topic) is not None:
            # Only the first match is replaced, which need not be the whole name. Source:
            # replaceFirst.
            found = self._regex.search(topic)
            assert found is not None
            try:
                new = _replaced(self.settings["replacement"], found)
            except (ValueError, IndexError) as error:
                raise DataError(f"RegexRouter on topic {topic}: {error}") from error
            route = topic[: found.start()] + new + topic[found.end() :]
        self._routes[topic] = route
        return route


_REFERENCE: Final = re.compile(r"\\(.?)|\$(?:\{([^}]*)(\}?)|(\d+))?|[^\\$]+", re.DOTALL)


def _replaced(replacement: str, found: re.Match[str]) -> str:
    """Return the replacement with its groups filled in. Source: Matcher.appendReplacement.

    Raises:
        IndexError: There is no such group.
        ValueError: A ``$`` or backslash has no meaning.
    """
    result: list[str] = []
    for part in _REFERENCE.finditer(replacement):
        escaped, name, end, number = part.groups()
        if part.group().startswith("\\"):
            if not escaped:
                raise ValueError("character to be escaped is missing")
            result.append(escaped)
        elif number is not None:
            result.append(_numbered(number, found))
        elif name is not None and end:
            result.append(found.group(name) or "")
        elif part.group().startswith("$"):
            raise ValueError("Illegal group reference")
        else:
            result.append(part.group())
    return "".join(result)


def _numbered(digits: str, found: re.Match[str]) -> str:
    """Return a group by its number. It uses as many of the digits as give the number of a group."""
    length = 1
    if int(digits[0]) > found.re.groups:
        raise IndexError(f"No group {digits[0]}")
    while length < len(digits) and int(digits[: length + 1]) <= found.re.groups:
        length += 1
    return (found.group(int(digits[:length])) or "") + digits[length:]


_TOPIC: Final = "${topic}"
_TIMESTAMP: Final = "${timestamp}"


def _valid_format(name: str, value: str) -> None:
    try:
        date_format(value)
    except DatePatternError as error:
        raise ConfigError.of(name, value, str(error)) from error


class TimestampRouter(RecordTransform):
    """Renames the topic by the record's timestamp, in UTC; ``${topic}`` and ``${timestamp}`` are
    filled in. Differs: an invalid pattern is refused at once, not at the first record."""

    CONFIG = (
        ConfigDef()
        .define(
            "topic.format",
            Type.STRING,
            f"{_TOPIC}-{_TIMESTAMP}",
            importance=Importance.HIGH,
            documentation=f"The new topic, with {_TOPIC} and {_TIMESTAMP}.",
        )
        .define(
            "timestamp.format",
            Type.STRING,
            "yyyyMMdd",
            _valid_format,
            Importance.HIGH,
            "Pattern of Java's SimpleDateFormat for the timestamp.",
        )
    )

    def rows_at_once(self) -> RowsAtOnce:
        return RowsAtOnce.ALIKE

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._topic_format: str = self.settings["topic.format"]
        self._format = date_format(self.settings["timestamp.format"])

    def apply(self, record: Record) -> Record | None:
        timestamp = timestamp_of(record)
        if timestamp is None:
            raise DataError(f"Timestamp missing on record: one of the topic {record.topic}")
        topic = self._topic_format.replace(_TOPIC, record.topic)
        result = copied(record)
        result.topic = topic.replace(_TIMESTAMP, self._format.format(timestamp))
        return result


class Filter(RecordTransform):
    """Drops every record it is applied to; used with a predicate."""

    BY_TOPIC = True

    def rows_at_once(self) -> RowsAtOnce:
        return RowsAtOnce.ALIKE

    def apply(self, record: Record) -> Record | None:
        return None
