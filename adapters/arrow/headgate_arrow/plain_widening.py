"""Conversion of single values to a wider type, for rows that come one by one.

Arrow takes hundreds of microseconds for one row. This module gives the same results for the plain
types. Other types, and values that do not fit, are left to `headgate_arrow.widening`.
"""

import datetime
import decimal
import struct
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from headgate_arrow.arrow_types import INSTANT

Plain = Callable[[Any], Any]
"""Converts a value. Raises `NotPlainError` if it must be left to Arrow."""
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS: Final = datetime.timedelta(milliseconds=1)
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_LONG: Final = range(-(2**63), 2**63)


class NotPlainError(Exception):
    """The conversion of a value must be left to Arrow."""


def plain_widening(given: Any, wanted: Any) -> Plain | None:
    """Return the conversion from `given` to `wanted`, which `may_widen` allows. None: these types
    are left to Arrow."""
    types = pa.types
    if types.is_signed_integer(given):
        return _of_integer(given, wanted)
    if types.is_float32(given) and types.is_float64(wanted):
        return _from_float32
    if types.is_decimal(given) and types.is_decimal(wanted):
        return _decimal(given, wanted)
    if types.is_string(given) and types.is_large_string(wanted):
        return _text
    if types.is_timestamp(given) and types.is_timestamp(wanted) and wanted != INSTANT:
        return _time(given, wanted)
    return None


def _of_integer(given: Any, wanted: Any) -> Plain | None:
    known = range(-(2 ** (given.bit_width - 1)), 2 ** (given.bit_width - 1))

    def whole(value: Any) -> int:
        if type(value) is not int or value not in known:
            raise NotPlainError
        return value

    def exact(value: Any) -> float:
        found = float(whole(value))
        if int(found) != value:
            raise NotPlainError
        return found

    if pa.types.is_signed_integer(wanted):
        return whole
    if pa.types.is_float64(wanted):
        return exact
    if pa.types.is_decimal(wanted):
        scaled = _decimal(None, wanted)
        return lambda value: scaled(decimal.Decimal(whole(value)))
    return None


def _from_float32(value: Any) -> float:
    """Return the value rounded to a 32-bit float. An int, which may have no exact form, is left to
    Arrow."""
    if type(value) is not float:
        raise NotPlainError
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except (struct.error, OverflowError):
        raise NotPlainError from None


def _text(value: Any) -> str:
    if type(value) is not str:
        raise NotPlainError
    return value


def _decimal(given: Any, wanted: Any) -> Plain:
    unit = decimal.Decimal(1).scaleb(-wanted.scale)
    traps = [decimal.Inexact, decimal.InvalidOperation, decimal.Overflow]
    context = decimal.Context(prec=wanted.precision, traps=traps)

    def scaled(value: Any) -> decimal.Decimal:
        if type(value) is not decimal.Decimal or (value.is_zero() and value.is_signed()):
            raise NotPlainError
        if given is not None and not _is_of(value, given):
            raise NotPlainError
        try:
            return value.quantize(unit, context=context)
        except decimal.DecimalException:
            raise NotPlainError from None

    return scaled


def _is_of(value: decimal.Decimal, kind: Any) -> bool:
    """Return whether a column of type `kind` can hold a value."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return False
    return bool(-exponent <= kind.scale and len(digits) + exponent <= kind.precision - kind.scale)


def _time(given: Any, wanted: Any) -> Plain:
    factor = _PER_SECOND[wanted.unit] // _PER_SECOND[given.unit]

    def finer(value: Any) -> int:
        if given == INSTANT:
            if type(value) is not datetime.datetime or value.tzinfo is None:
                raise NotPlainError
            number, rest = divmod(value - _EPOCH, _MS)
            if rest:
                raise NotPlainError
        else:
            number = value
        if type(number) is not int or number not in _LONG or number * factor not in _LONG:
            raise NotPlainError
        return number * factor

    return finer
