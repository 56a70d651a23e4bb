"""A check that all values in Arrow columns have a form in Python.

Arrow allows more than Python: times of day beyond 24 hours, dates beyond year 9999, text that is
not UTF-8, and maps with duplicate keys. pyarrow's conversion refuses some of these and changes
others silently. This check finds them before anything is converted.
"""

import math
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate_arrow import arrow_types
from headgate_arrow.arrow_types import NULL, has_wrong_nulls
from headgate_arrow.nested import inner_arrays, null_count

_DAYS: Final = (-719_162, 2_932_896)
"""First day of year 1 and last day of year 9999, counted from 1970."""
_DAY_MS: Final = 86_400_000
_WRONG: Final = (pa.ArrowException, ValueError, ArithmeticError, KeyError)


def fault(part: Any) -> str | None:
    """Return why a value of a Table or RecordBatch has no form in Python, with its column's name.
    None: all have one. It is cheap, except for maps, whose values are converted."""
    for field, column in zip(part.schema, part.columns, strict=True):
        reason = _column_fault(column)
        if reason is None and not field.nullable and any(map(null_count, _chunks(column))):
            reason = NULL
        if reason is not None:
            return f"column {field.name} of type {column.type}: {reason}"
    return None


def _column_fault(column: Any) -> str | None:
    for chunk in _chunks(column):
        try:
            reason = _array_fault(chunk)
        except _WRONG as error:
            reason = str(error)
        if reason is not None:
            return reason
    return None


def _chunks(column: Any) -> list[Any]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


def _array_fault(array: Any) -> str | None:
    """Return why a value of an array has no form in Python. None: all have one.

    A null struct or list hides the content of its fields, and so does a slice. So only the values
    that `flatten` returns are checked.

    Raises:
        Exception: one of `_WRONG`, from Arrow's validation or the conversion to Python.
    """
    kind, types = array.type, pa.types
    if types.is_nested(kind):
        array.validate()
        reasons = (_array_fault(one) for one in inner_arrays(array))
        reason = next((one for one in reasons if one is not None), None)
        if reason is None and has_wrong_nulls(array):
            reason = NULL
        if reason is None and types.is_map(kind):
            table = pa.table({"map": array})
            arrow_types.rows_of(table, arrow_types.carriers(table.schema))
            reason = _nan_fault(array)
        return reason
    if types.is_dictionary(kind):
        array.validate()
        reason = _beyond_words(array)
        if reason is not None:
            return reason
        try:
            reason = _array_fault(array.dictionary)
        except _WRONG:
            reason = ""
        # A slice has the whole dictionary, but only the values that are used count.
        return None if reason is None else _array_fault(array.dictionary_decode())
    array.validate(full=True)
    return years_fault(array)


def years_fault(array: Any) -> str | None:
    """Return which value of an array is beyond the years of Python's date and datetime. None: there
    is none, or the type is not converted to one of these. The type is not nested."""
    kind = array.type
    if pa.types.is_date32(kind):
        return _beyond(array.cast(pa.int32()), *_DAYS)
    if pa.types.is_date64(kind) or kind == arrow_types.INSTANT:
        first, last = _DAYS
        return _beyond(array.cast(pa.int64()), first * _DAY_MS, (last + 1) * _DAY_MS - 1)
    return None


def _beyond_words(array: Any) -> str | None:
    """Return which codes a dictionary array has, if one of them has no word. None: all have one."""
    found, count = pc.min_max(array.indices).as_py(), len(array.dictionary)
    if found["min"] is None or (found["min"] >= 0 and found["max"] < count):
        return None
    return f"the codes {found['min']} to {found['max']} of a dictionary of {count} words"


def _nan_fault(array: Any) -> str | None:
    """Return a fault if a map has NaN as a key twice. None: no map has.

    NaN never equals NaN, so a dict can have both keys. But they become one when the map is read
    from text.
    """
    if not pa.types.is_floating(array.type.key_type):
        return None
    keys, _ = inner_arrays(array)
    if pc.sum(pc.is_nan(keys)).as_py() in (None, 0, 1):
        return None
    for entries in array.cast(pa.map_(pa.float64(), array.type.item_type)).to_pylist():
        if sum(math.isnan(key) for key, _ in entries or ()) > 1:
            return "a map has NaN as a key twice"
    return None


def _beyond(numbers: Any, least: int, most: int) -> str | None:
    found = pc.min_max(numbers).as_py()
    if found["min"] is None or (found["min"] >= least and found["max"] <= most):
        return None
    wrong = found["min"] if found["min"] < least else found["max"]
    return f"{wrong} is beyond the years 1 to 9999"
