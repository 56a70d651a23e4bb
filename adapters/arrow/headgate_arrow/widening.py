"""Conversion of values of one Arrow type to a wider one. Nothing is lost or rounded: a value that
the wider type cannot hold is refused.

The two types are compared first (`may_widen`). For some pairs, such as int32 and int64, every value
fits. For others each value is checked: a float64 holds only some values of int64, and nanoseconds
end in the year 2262.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from math import isinf
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate_arrow.arrow_types import NULL, has_wrong_nulls
from headgate_arrow.nested import inner_arrays
from headgate_arrow.values import years_fault

_UNITS: Final = ("s", "ms", "us", "ns")
_WRONG: Final = (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError)


class LossError(Exception):
    """The wider type cannot hold a value. The message says which."""


def may_widen(given: Any, wanted: Any) -> bool:
    """Return whether values of type `given` may be converted to `wanted`: all of them, or those
    that it can hold."""
    types = pa.types
    if given == wanted or types.is_null(given):
        return True
    if types.is_dictionary(given):
        return may_widen(given.value_type, wanted)
    if types.is_dictionary(wanted):
        return _has_words(wanted) and may_widen(given, wanted.value_type)
    if types.is_nested(given) or types.is_nested(wanted):
        return _nested(given, wanted)
    if types.is_integer(given):
        return _of_integer(given, wanted)
    if types.is_floating(given):
        return bool(types.is_floating(wanted) and wanted.bit_width > given.bit_width)
    if types.is_decimal(given):
        digits = given.precision - given.scale
        return bool(
            types.is_decimal(wanted)
            and wanted.scale >= given.scale
            and wanted.precision - wanted.scale >= digits
        )
    if _is_text(given):
        return _is_text(wanted)
    if _is_bytes(given):
        return _is_bytes(wanted) and not types.is_fixed_size_binary(wanted)
    if types.is_date(given):
        return bool(types.is_date(wanted))
    return _is_finer(given, wanted)


def widened(array: Any, wanted: Any) -> Any:
    """Convert an array to the type `wanted`, which `may_widen` allows.

    Raises:
        LossError: `wanted` cannot hold a value.
    """
    if array.type == wanted:
        return array
    try:
        return _widened(array, wanted)
    except _WRONG as error:
        raise LossError(str(error)) from error


def _of_integer(given: Any, wanted: Any) -> bool:
    types = pa.types
    if not types.is_integer(wanted):
        # Arrow silently converts large integers to an infinite float16.
        floats = types.is_floating(wanted) and (wanted.bit_width > 16 or given.bit_width == 8)
        return bool(floats or types.is_decimal(wanted))
    if types.is_signed_integer(given) and types.is_unsigned_integer(wanted):
        return False
    return bool(wanted.bit_width > given.bit_width)


def _is_text(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _has_words(kind: Any) -> bool:
    """Return whether Arrow can cast to such a dictionary type. It can if the values are texts or
    bytes."""
    types, values = pa.types, kind.value_type
    texts = types.is_string(values) or types.is_large_string(values)
    return bool(texts or types.is_binary(values) or types.is_large_binary(values))


def _is_bytes(kind: Any) -> bool:
    types = pa.types
    plain = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(plain or types.is_fixed_size_binary(kind))


def _is_finer(given: Any, wanted: Any) -> bool:
    """Return whether both are times of the same kind and zone, and the second has the same unit or
    a finer one."""
    types = pa.types
    for is_kind in (types.is_timestamp, types.is_time, types.is_duration):
        if is_kind(given) and is_kind(wanted):
            zones = (getattr(one, "tz", None) for one in (given, wanted))
            finer = _UNITS.index(wanted.unit) >= _UNITS.index(given.unit)
            return finer and len(set(zones)) == 1
    return False


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _nested(given: Any, wanted: Any) -> bool:
    types = pa.types
    if types.is_struct(given) and types.is_struct(wanted):
        own = {field.name: field for field in given}
        there = {field.name for field in wanted}
        return own.keys() <= there and all(
            may_widen(own[field.name].type, field.type) if field.name in own else field.nullable
            for field in wanted
        )
    if types.is_map(given) and types.is_map(wanted):
        return may_widen(given.key_type, wanted.key_type) and may_widen(
            given.item_type, wanted.item_type
        )
    if _is_list(given) and _is_list(wanted):
        fixed = types.is_fixed_size_list(wanted)  # a null list may hide items that are no values
        return not fixed and may_widen(given.value_type, wanted.value_type)
    return False


# -- values --


def _widened(array: Any, wanted: Any) -> Any:
    """Convert an array.

    Raises:
        Exception: one of `_WRONG`, if a value does not fit.
    """
    types = pa.types
    if array.type == wanted:
        return array
    if types.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if types.is_dictionary(array.type):
        return _widened(array.dictionary_decode(), wanted)
    if types.is_dictionary(wanted):
        return _widened(array, wanted.value_type).cast(wanted)
    if types.is_nested(wanted):
        return _by_parts(array, wanted)
    try:
        found = array.cast(wanted)
    except pa.ArrowException:
        if not types.is_integer(array.type):
            raise
        return _exact_numbers(array, wanted)
    if types.is_date64(array.type) and not found.cast(array.type).equals(array):
        raise ValueError("a date with a time of day")
    # A timestamp in seconds is an integer in Python, but one in milliseconds is a datetime. Rows
    # could not hold the latter beyond datetime's years.
    if reason := years_fault(found):
        raise ValueError(reason)
    return found


def _exact_numbers(array: Any, wanted: Any) -> Any:
    """Convert integers to floats or decimals, one by one. Arrow converts integers to floats only up
    to 2**53, and to decimals only if every value of the integer type would fit."""
    values = array.to_pylist()
    if not pa.types.is_floating(wanted):
        return pa.array([None if one is None else Decimal(one) for one in values], wanted)
    floats = pa.array([None if one is None else float(one) for one in values], pa.float64())
    found = floats.cast(wanted)
    for given, made in zip(values, found.cast(pa.float64()).to_pylist(), strict=True):
        if given is not None and (isinf(made) or int(made) != given):
            raise ValueError(f"{given} has no exact form as {wanted}, only near it {made!r}")
    return found


def _by_parts(array: Any, wanted: Any) -> Any:
    types, nulls = pa.types, array.is_null()
    mask = nulls if array.null_count else None
    if types.is_struct(wanted):
        own = dict(zip((field.name for field in array.type), inner_arrays(array), strict=True))
        fields = list(wanted)
        parts = [
            _widened(own[field.name], field.type)
            if field.name in own
            else pa.nulls(len(array), field.type)
            for field in fields
        ]
        made = pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    elif types.is_map(wanted):
        keys, items = inner_arrays(array)
        offsets = pc.subtract(array.offsets, array.offsets[0])
        parts = [_widened(keys, wanted.key_type), _widened(items, wanted.item_type)]
        made = pa.MapArray.from_arrays(offsets, *parts, type=wanted, mask=mask)
    else:
        (inner,) = inner_arrays(array)
        lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
        large = types.is_large_list(wanted)
        ends = pc.cumulative_sum(lengths)
        offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
        kind = pa.LargeListArray if large else pa.ListArray
        offsets = offsets if large else offsets.cast(pa.int32())
        made = kind.from_arrays(offsets, _widened(inner, wanted.value_type), wanted, mask=mask)
    if has_wrong_nulls(made):
        raise ValueError(NULL)
    return made


def parts_that_hold(count: int, holds: Callable[[int, int], bool]) -> Iterator[tuple[int, int]]:
    """Yield ranges (start, end) that cover all rows, in order: ranges whose rows all fit, and
    single rows that do not.

    Args:
        count: the number of rows.
        holds: returns whether the rows from `start` to before `end` all fit.
    """
    pending = [(0, count)]
    while pending:
        start, end = pending.pop()
        if start == end:
            continue
        if end - start == 1 or holds(start, end):
            yield start, end
        else:
            middle = (start + end) // 2
            pending += [(middle, end), (start, middle)]
