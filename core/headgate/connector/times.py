"""Times that Connect's types cannot hold: seconds, microseconds and nanoseconds, with or without
zone.

Connect's Time and Timestamp hold milliseconds. A time of another unit is an integer (INT64, the
value an int) under a schema name of ours. Parameter ``unit`` is its unit (s, ms, us, ns). For an
instant, ``timezone`` is the zone it was shown in. A Timestamp without ``timezone`` is local: what a
calendar and a clock show, counted as if in UTC.
"""

from collections.abc import Mapping
from datetime import date
from typing import Final

from headgate.connector.data_error import DataError
from headgate.connector.schema import Schema, SchemaType

UNIT_TIMESTAMP: Final = "headgate.data.Timestamp"
"""Schema name of a timestamp: units since 1970-01-01T00:00."""
UNIT_TIME: Final = "headgate.data.Time"
"""Schema name of a time of day: units since midnight."""
DURATION: Final = "headgate.data.Duration"
"""Schema name of a duration: units."""
UNIT: Final = "unit"
TIMEZONE: Final = "timezone"
UNITS: Final[Mapping[str, int]] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Number of units in a second."""


def time_schema(name: str, unit: str, timezone: str | None = None) -> Schema:
    parameters = {UNIT: unit} if timezone is None else {UNIT: unit, TIMEZONE: timezone}
    return Schema(SchemaType.INT64, name=name, version=1, parameters=parameters)


def is_unit_time(schema: Schema) -> bool:
    return schema.name in (UNIT_TIMESTAMP, UNIT_TIME, DURATION) and (
        schema.type is SchemaType.INT64
    )


def time_text(schema: Schema, value: int) -> str:
    """Return a time or timestamp in ISO 8601, an instant in UTC; a duration in seconds.

    Raises:
        DataError: The schema has no unit that is known here.
    """
    per_second = UNITS.get(schema.parameters.get(UNIT, ""))
    if per_second is None:
        known = ", ".join(UNITS)
        raise DataError(f"{schema.name} has unit {schema.parameters.get(UNIT)}, expected {known}")
    seconds, part = divmod(value, per_second)
    nanos = part * (10**9 // per_second)
    if schema.name == DURATION:
        sign, whole = ("-", -value) if value < 0 else ("", value)
        seconds, part = divmod(whole, per_second)
        digits = f"{part * (10**9 // per_second):09}".rstrip("0")
        return f"{sign}{seconds}.{digits or '0'}"
    if nanos == 0:
        fraction = ""
    elif nanos % 1000:
        fraction = f".{nanos:09}"
    else:
        fraction = f".{nanos // 1000:06}"
    days, second = divmod(seconds, 86_400)
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}{fraction}"
    if schema.name == UNIT_TIME:
        return clock
    zone = "+00:00" if TIMEZONE in schema.parameters else ""
    return f"{_day(days)}T{clock}{zone}"


_CYCLE: Final = 146_097
"""Days in 400 years, after which the calendar repeats."""
_EPOCH: Final = date(1970, 1, 1).toordinal()


def _day(days: int) -> str:
    """Return the ISO date of a day counted from 1970, of any year."""
    cycles, ordinal = divmod(days + _EPOCH - 1, _CYCLE)
    shown = date.fromordinal(ordinal + 1)
    year = shown.year + 400 * cycles
    text = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    return f"{text}-{shown.month:02}-{shown.day:02}"
