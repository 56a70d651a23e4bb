"""Types of columns for ``columns.types``: those of ``csv.types``, and times of other units and
zones."""

import re
from collections.abc import Mapping
from typing import Any, Final

from headgate.connector import schema as s
from headgate.connector.config import ConfigError
from headgate.connector.schema import Schema
from headgate.connector.times import UNIT_TIME, UNIT_TIMESTAMP, time_schema
from headgate_connectors.formats.csv_types import KINDS as OF_TEXT
from headgate_connectors.formats.csv_types import column, split_types
from headgate_connectors.formats.text_checks import zone_of

KINDS: Final = f"{OF_TEXT}, binary, time(us|ns), timestamp(s|ms|us|ns) or timestamp(us, UTC)"
_TIME: Final = re.compile(r"time\((us|ns)\)")
_TIMESTAMP: Final = re.compile(r"timestamp\((s|ms|us|ns)(?:,\s*([^\s()]+))?\)", re.IGNORECASE)

_OFFSET: Final = re.compile(r"[+-](?:(?:0\d|1[0-7]):[0-5]\d|18:00)", re.ASCII)
"""Offsets from UTC that Java, and so Spark, also has."""


def parse_columns(text: str) -> dict[str, str]:
    """Return the types by column of a text such as ``id: int64, at: timestamp(us, UTC)``.

    Raises:
        ValueError: the text cannot be parsed.
    """
    found = split_types(text)
    for kind in found.values():
        schema_of_kind(kind)
    return found


def column_types(name: str, value: Any) -> None:
    """Validate a setting for `parse_columns`. Raises ConfigError."""
    try:
        parse_columns(value)
    except ValueError as error:
        raise ConfigError.of(name, value, str(error)) from None


def struct_of_kinds(kinds: Mapping[str, str]) -> Schema:
    """Return the STRUCT of optional columns with these types."""
    return s.struct({name: schema_of_kind(kind).as_optional() for name, kind in kinds.items()})


def schema_of_kind(kind: str) -> Schema:
    """Return the schema of a type by its name, such as ``timestamp(us, UTC)``.

    Raises:
        ValueError: there is no such type.
    """
    if kind.lower() == "binary":
        return s.BYTES
    if (found := _TIME.fullmatch(kind.lower())) is not None:
        return time_schema(UNIT_TIME, found[1])
    if (found := _TIMESTAMP.fullmatch(kind)) is not None:
        unit, zone = found[1].lower(), found[2]
        if unit == "ms" and zone == "UTC":
            return s.TIMESTAMP_SCHEMA
        _check_zone(zone)
        return time_schema(UNIT_TIMESTAMP, unit, zone)
    try:
        return column(kind.lower(), None)[0]
    except ValueError as error:
        raise ValueError(str(error).replace(OF_TEXT, KINDS)) from None


def _check_zone(zone: str | None) -> None:
    if zone is None or _OFFSET.fullmatch(zone):
        return
    if re.match(r"[+-]\d", zone):
        raise ValueError(f"{zone} is no offset from UTC, expected -18:00 to +18:00, such as +01:00")
    zone_of(zone)
