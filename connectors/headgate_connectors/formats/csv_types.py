"""The column types of ``csv.types``, and parsers that make their values from texts.

A text that is not a value of the type is refused. Nothing is cut or guessed. Only floats are
rounded, to the nearest value of their type. A number that would become 0 or infinite is refused.
"""

import datetime
import decimal
import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo

from headgate.connector import schema as s
from headgate.connector.schema import Schema

Parse = Callable[[str], Any]
"""Function that returns the value of a text. It raises ValueError, whose message says what was
expected."""
_INTEGERS: Final = {
    "int8": (s.INT8, 8),
    "int16": (s.INT16, 16),
    "int32": (s.INT32, 32),
    "int64": (s.INT64, 64),
}
_WHOLE: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_NOT_ZERO: Final = re.compile(r"[+-]?[0.]*[1-9]")
_NO_NUMBER: Final = re.compile(r"NaN|[+-]?Infinity")
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,9})?)?", re.ASCII)
_TIMESTAMP: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_DECLARED: Final = re.compile(r"(.*):([^:()]*(?:\([^()]*\)\s*)?)", re.DOTALL)
"""Matches column and type. A colon within the type is in parentheses, such as that of
``+01:00``."""
KINDS: Final = (
    "string, boolean, int8, int16, int32, int64, float32, float64, decimal(P,S), date, time or "
    "timestamp"
)


def parse_types(text: str) -> dict[str, str]:
    """Return the types by column of a text such as ``id: int64, price: decimal(10,2)``.

    Raises:
        ValueError: the text cannot be parsed.
    """
    found = {name: kind.lower() for name, kind in split_types(text).items()}
    for kind in found.values():
        column(kind, None)
    return found


def split_types(text: str) -> dict[str, str]:
    """Split a text such as ``id: int64, price: decimal(10,2)`` into texts of types by column.

    Raises:
        ValueError: a part has no colon or no name, or a name comes twice.
    """
    found: dict[str, str] = {}
    for part in re.split(r",(?![^(]*\))", text):
        if not part.strip():
            continue
        pieces = _DECLARED.fullmatch(part)
        halves = pieces.groups() if pieces else part.rpartition(":")[::2]
        name, kind = (piece.strip() for piece in halves)
        if not name:
            raise ValueError(f"{part.strip()}, expected COLUMN: TYPE, such as id: int64")
        if name in found:
            raise ValueError(f"column {name} stands there twice, expected once")
        found[name] = kind
    return found


def column(kind: str, zone: ZoneInfo | None) -> tuple[Schema, Parse]:
    """Return the schema and the parser of a type by its name.

    Args:
        zone: time zone of timestamps without one. None: they are refused.

    Raises:
        ValueError: there is no such type.
    """
    if kind in _INTEGERS:
        schema, bits = _INTEGERS[kind]
        return schema, _integer(kind, bits)
    if (found := _DECIMAL.fullmatch(kind)) is not None:
        precision, scale = int(found[1]), int(found[2])
        if not 1 <= precision <= 38 or scale > precision:
            raise ValueError(f"{kind}, expected decimal(P,S) with P from 1 to 38 and S up to P")
        return s.decimal_of(scale, precision), _decimal(precision, scale)
    simple: Mapping[str, tuple[Schema, Parse]] = {
        "string": (s.STRING, str),
        "boolean": (s.BOOLEAN, _boolean),
        "float64": (s.FLOAT64, _float),
        "float32": (s.FLOAT32, _float32),
        "date": (s.DATE_SCHEMA, _date),
        "time": (s.TIME_SCHEMA, _time),
        "timestamp": (s.TIMESTAMP_SCHEMA, _timestamp(zone)),
    }
    if kind not in simple:
        raise ValueError(f"{kind or 'nothing'} is no type, expected {KINDS}")
    return simple[kind]


def _integer(kind: str, bits: int) -> Parse:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text) or len(text) > 40 or not low <= int(text) <= high:
            raise ValueError(f"expected {kind}, a whole number from {low} to {high}")
        return int(text)

    return parse


def _decimal(precision: int, scale: int) -> Parse:
    context = decimal.Context(
        prec=precision, traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow]
    )
    unit = decimal.Decimal(1).scaleb(-scale)

    def parse(text: str) -> decimal.Decimal:
        try:
            if not _NUMBER.fullmatch(text):
                raise decimal.InvalidOperation
            return decimal.Decimal(text).quantize(unit, context=context)
        except decimal.DecimalException:
            raise ValueError(
                f"expected decimal({precision},{scale}), at most {precision - scale} digits before "
                f"the point and {scale} after it"
            ) from None

    return parse


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected boolean, true or false")
    return text.lower() == "true"


def _float(text: str) -> float:
    if _NO_NUMBER.fullmatch(text):
        return float(text)
    if not _NUMBER.fullmatch(text) or _is_beyond(text, float(text)):
        raise ValueError("expected float64, such as 1.5, -2e10, NaN or Infinity")
    return float(text)


def _is_beyond(text: str, value: float) -> bool:
    """Return whether a number is too large for a float, or is not 0 and too small for one."""
    return math.isinf(value) or (value == 0 and _NOT_ZERO.match(text) is not None)


def _float32(text: str) -> float:
    try:
        whole = _float(text)
        found = float(struct.unpack("<f", struct.pack("<f", whole))[0])
        if whole and not found:
            raise ValueError
        return found
    except (ValueError, OverflowError):
        raise ValueError("expected float32, such as 1.5, -2e10, NaN or Infinity") from None


def _date(text: str) -> datetime.date:
    try:
        if not _DATE.fullmatch(text):
            raise ValueError
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise ValueError("expected date, such as 2026-11-26") from None


def _time(text: str) -> datetime.time:
    try:
        if not _TIME.fullmatch(text):
            raise ValueError
        return _exact(text)
    except ValueError:
        raise ValueError("expected time, such as 07:05 or 07:05:09.123") from None


def _exact(text: str) -> datetime.time:
    """Return a time of day. Raises ValueError if it has a fraction of a millisecond."""
    before, _, fraction = text.partition(".")
    if fraction[3:].strip("0"):
        raise ValueError
    return datetime.time.fromisoformat(f"{before}.{fraction[:3]:0<3}" if fraction else before)


def _timestamp(zone: ZoneInfo | None) -> Parse:
    def parse(text: str) -> datetime.datetime:
        found = _TIMESTAMP.fullmatch(text)
        try:
            if found is None:
                raise ValueError
            day, time = datetime.date.fromisoformat(found[1]), _exact(found[2])
            local = datetime.datetime.combine(day, time)
            if found[3] is not None:
                offset = datetime.datetime.strptime(found[3], "%z").tzinfo
                return local.replace(tzinfo=offset).astimezone(datetime.UTC)
        except (ValueError, OverflowError):
            raise ValueError(
                "expected timestamp, such as 2026-11-26T07:05:09.123Z, at most 3 digits after the "
                "point"
            ) from None
        if zone is None:
            raise ValueError(
                "expected a timestamp with its zone, such as ...Z or ...+01:00: set csv.timezone "
                "to say what times without one are"
            )
        return _in_zone(local, zone)

    return parse


def _in_zone(local: datetime.datetime, zone: ZoneInfo) -> datetime.datetime:
    try:
        first = local.replace(tzinfo=zone).astimezone(datetime.UTC)
        second = local.replace(tzinfo=zone, fold=1).astimezone(datetime.UTC)
    except OverflowError:
        raise ValueError(
            f"expected a timestamp in the years 1 to 9999 of UTC: this time of {zone.key} is beyond"
        ) from None
    if first != second:
        there = "comes twice" if first < second else "is not"
        raise ValueError(
            f"expected a timestamp with its zone: this time {there} in {zone.key}, where the "
            "clocks change"
        )
    return first
