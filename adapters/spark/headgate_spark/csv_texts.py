"""Values that Spark writes to CSV as a given text. Source: UnivocityGenerator, which calls Java's
`toString` of numbers and booleans."""

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def has_written_as(column: Any, text: str, plain_dates: bool) -> bool:
    """Return whether a value in a column of a pyarrow.Table is written as `text`, which is not
    empty.

    Args:
        plain_dates: dates are written as 2026-11-28. If not, they are not checked. Timestamps never
            are.
    """
    value = _value(column.type, text, plain_dates)
    if value is None:
        return False
    if isinstance(value, float) and value != value:
        return bool(pc.any(pc.is_nan(column)).as_py())
    return bool(pc.any(pc.equal(column, pa.scalar(value, column.type))).as_py())


def _value(kind: Any, text: str, plain_dates: bool) -> Any:
    """Return the value of a type whose form is `text`, or None if no value has it. For floats the
    only check of the form is that a number has a point."""
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return text
    if types.is_boolean(kind):
        return {"true": True, "false": False}.get(text)
    try:
        if types.is_integer(kind):
            whole = int(text)
            return pa.scalar(whole, kind).as_py() if str(whole) == text else None
        if types.is_floating(kind):
            if text not in ("NaN", "Infinity", "-Infinity") and "." not in text:
                return None
            return float(text)
        if types.is_decimal(kind):
            number = decimal.Decimal(text)
            # Java and Python both write as many digits after the point as the type has.
            same = number.is_finite() and number.as_tuple().exponent == -kind.scale
            return pa.scalar(number, kind).as_py() if same and str(number) == text else None
        if types.is_date(kind) and plain_dates:
            day = datetime.date.fromisoformat(text)
            return day if day.isoformat() == text else None
    except (ValueError, OverflowError, ArithmeticError, pa.ArrowException):
        pass
    return None
