"""Values that delta-rs or pyiceberg cannot write as they are. Needs pyarrow.

For dates and timestamps their statistics have a text or a datetime, of the years 1 to 9999 only.
pyiceberg 0.12 loses the null of a list or map of structs: it writes an empty one.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.connector.data_error import DataError
from headgate_connectors.formats.arrow_leaves import leaves

_DAYS: Final = (-719_162, 2_932_896)
"""The first and the last day of those years, counted from 1970."""
_DAY_US: Final = 86_400_000_000


def check_years(rows: Any, *, timestamps: bool) -> None:
    """
    Args:
        rows: pyarrow.Table, with timestamps in microseconds.
        timestamps: they have these bounds, too.

    Raises:
        DataError: a date is of another year than 1 to 9999; names the column.
    """
    first, last = _DAYS
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for part in (part for chunk in column.chunks for part in leaves(pa, chunk)):
            if pa.types.is_date32(part.type):
                found, unit = pc.min_max(part.cast(pa.int32())).as_py(), 1
            elif timestamps and pa.types.is_timestamp(part.type):
                found, unit = pc.min_max(part.cast(pa.int64())).as_py(), _DAY_US
            else:
                continue
            least, most = found["min"], found["max"]
            if least is not None and (least < first * unit or most >= (last + 1) * unit):
                raise DataError(
                    f"column {name} has a time outside the years 1 to 9999, which the table's "
                    f"library cannot write as {part.type}: drop the column, or cast it to a whole "
                    "number, by a transform (ReplaceField, Cast)"
                )


def check_nulls(rows: Any) -> None:
    """
    Raises:
        DataError: a list or map of structs is null; names the column.
    """
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if any(_loses_null(chunk) for chunk in column.chunks):
            raise DataError(
                f"column {name} has null for a list or map of structs, which pyiceberg writes as "
                "an empty one: give an empty one, or drop the column by a transform (ReplaceField)"
            )


def _loses_null(array: Any) -> bool:
    types, kind = pa.types, array.type
    if types.is_struct(kind):
        return any(map(_loses_null, array.filter(array.is_valid()).flatten()))
    if types.is_map(kind) and types.is_struct(kind.item_type):
        start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return array.null_count > 0 or _loses_null(array.items.slice(start, end - start))
    if types.is_list(kind) and types.is_struct(kind.value_type):
        return array.null_count > 0 or _loses_null(array.flatten())
    return False
