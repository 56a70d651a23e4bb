"""Converts columns of texts to Arrow columns, with the values that the parsers of `csv_types` give.

Arrow casts a whole column if a pattern shows that it reads each text exactly as the parser does.
All other columns go through the parser, one text at a time.
"""

from collections.abc import Callable
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from headgate_connectors.formats.csv_inference import quick_pattern
from headgate_connectors.formats.csv_types import Parse

_NUMBER: Final = r"\A[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\z"
_NOT_ZERO: Final = r"\A[+-]?[0.]*[1-9]"
_CLOCK: Final = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,3})?)?"
_MOMENT: Final = rf"\A[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ]{_CLOCK}"
_INSTANT: Final = pa.timestamp("ms", "UTC")
_MS: Final = (-62_135_596_800_000, 253_402_300_799_999)
"""First and last millisecond of the years 1 to 9999."""
_DAYS: Final = (-719_162, 2_932_896)


class BadRowError(Exception):
    """The text in a row, counted from 0, is not a value of the column's type."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class _SlowError(Exception):
    """Arrow may read a text differently from the parser, so the parser must be used."""


class TextColumn:
    """Converts the texts of one column to values.

    Args:
        kind: name of the type, as `csv_types.column` takes it.
        parse: parser of the type.
        null: text that means null. None: no text does.
        zone: time zone of timestamps without one.
        target: Arrow type of the values.
        as_written: whether the parser comes from `csv_inference.as_written`.
    """

    def __init__(
        self,
        kind: str,
        parse: Parse,
        null: str | None,
        zone: ZoneInfo | None,
        target: Any,
        *,
        as_written: bool = False,
    ) -> None:
        self._parse, self._null, self._target = parse, null, target
        self._quick = _quick(kind, zone)
        self._exact = as_written and kind != "string"
        self._pattern = quick_pattern(kind) if self._exact else None

    def values(self, texts: Any) -> Any:
        """Return the array of the texts' values. Raises `BadRowError` for a text that has none."""
        if self._null is not None:
            nulls = pc.equal(texts, self._null)
            if pc.any(nulls).as_py():
                texts = pc.if_else(nulls, pa.scalar(None, texts.type), texts)
        try:
            if self._exact:
                if self._pattern is None:
                    raise _SlowError
                _need(texts, self._pattern)
            return self._quick(texts, self._target)
        except (_SlowError, pa.ArrowException):
            return self._one_by_one(texts)

    def _one_by_one(self, texts: Any) -> Any:
        values, parse = list[Any](), self._parse
        for row, text in enumerate(texts.to_pylist()):
            try:
                values.append(None if text is None else parse(text))
            except ValueError:
                raise BadRowError(row) from None
        return pa.array(values, self._target)


def _quick(kind: str, zone: ZoneInfo | None) -> Callable[[Any, Any], Any]:
    """Return a function that casts an array of texts to the type `kind`. It raises `_SlowError` or
    an Arrow exception if the parser must be used."""
    if kind.startswith("int"):
        return _integers
    if kind.startswith("decimal"):
        return _decimals
    if kind == "timestamp":
        return _utc if zone is not None and zone.key == "UTC" else _timestamps
    return {
        "string": lambda texts, _target: texts,
        "boolean": _booleans,
        "float64": _floats,
        "float32": _floats32,
        "date": _dates,
        "time": _times,
    }[kind]


def _need(texts: Any, pattern: str) -> None:
    if pc.all(pc.match_substring_regex(texts, pattern)).as_py() is False:
        raise _SlowError


def _need_range(numbers: Any, least: int, most: int) -> None:
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and not least <= found["min"] <= found["max"] <= most:
        raise _SlowError


def _integers(texts: Any, target: Any) -> Any:
    _need(texts, r"\A-?[0-9]+\z")  # Arrow takes 0x1F, too
    return texts.cast(target)


def _decimals(texts: Any, target: Any) -> Any:
    # If a text has more digits after the point than the type holds, Arrow drops them silently.
    _need(texts, rf"\A[+-]?[0-9]+(?:\.[0-9]{{1,{max(target.scale, 1)}}})?\z")
    return texts.cast(target)


def _booleans(texts: Any, _target: Any) -> Any:
    lower = pc.ascii_lower(texts)
    found = pc.equal(lower, "true")
    if pc.all(pc.or_(found, pc.equal(lower, "false"))).as_py() is False:
        raise _SlowError
    return found


def _floats(texts: Any, _target: Any) -> Any:
    _need(texts, _NUMBER)
    found = texts.cast(pa.float64())
    _need_exponents(texts, found)
    return found


def _need_exponents(texts: Any, found: Any) -> None:
    """Raise `_SlowError` if a finite number became infinite, or one that is not 0 became 0."""
    zeros = pc.equal(found, 0.0)
    if pc.any(pc.is_inf(found)).as_py():
        raise _SlowError
    if pc.any(zeros).as_py():
        wrong = pc.and_(zeros, pc.match_substring_regex(texts, _NOT_ZERO))
        if pc.any(wrong).as_py():
            raise _SlowError


def _floats32(texts: Any, target: Any) -> Any:
    found = _floats(texts, target).cast(target)
    _need_exponents(texts, found)
    return found


def _dates(texts: Any, target: Any) -> Any:
    _need(texts, r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z")
    found = texts.cast(target)
    _need_range(found.cast(pa.int32()), *_DAYS)
    return found


def _times(texts: Any, target: Any) -> Any:
    _need(texts, rf"\A{_CLOCK}\z")
    moments = pc.binary_join_element_wise("1970-01-01T", texts, "Z", "").cast(_INSTANT)
    return moments.cast(pa.int64()).cast(pa.int32()).cast(target)


def _timestamps(texts: Any, target: Any) -> Any:
    _need(texts, rf"{_MOMENT}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})\z")
    found = texts.cast(target)
    _need_range(found.cast(pa.int64()), *_MS)
    return found


def _utc(texts: Any, target: Any) -> Any:
    if pc.any(pc.match_substring_regex(texts, r"(?:Z|[+-][0-9]{2}:?[0-9]{2})\z")).as_py():
        return _timestamps(texts, target)  # which requires that all have a zone
    _need(texts, rf"{_MOMENT}\z")
    return _timestamps(pc.binary_join_element_wise(texts, "Z", ""), target)
