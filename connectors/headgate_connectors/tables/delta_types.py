"""Which type stores an Arrow column in a Delta table, or in Spark, so that no value changes.

Each Arrow type is either stored as a Delta type that holds all of its values, or refused with the
column's name. delta-rs alone would store uint8 as int8, and cast a double to an existing int64.
Needs pyarrow.

| Arrow | stored as |
|---|---|
| bool, int8 to int64, float32, float64, date32, string, binary | itself |
| uint8, uint16, uint32, uint64 | int16, int32, int64, decimal(20, 0) |
| float16, date64, large and view types, fixed_size_binary, null | float32, date32, string, binary |
| decimal up to 38 digits | decimal128 of the same digits |
| timestamp with a zone | timestamp[us, UTC]: the same instant; its zone is not kept |
| timestamp without a zone | timestamp[us], Delta's timestamp_ntz |
| struct, list, map of these | the same; every field may be null |

Refused are time, duration, a decimal with more digits or a negative scale, and a struct without
fields. A timestamp whose nanoseconds do not fit into microseconds is refused when such a value
comes.
"""

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from headgate.connector.data_error import DataError

_AS_THEY_ARE: Final = frozenset(
    {
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.date32(),
        pa.string(),
        pa.binary(),
    }
)
_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.null(): pa.string(),
}
DELTA: Final = "Delta"
_MOST_DIGITS: Final = 38
_FORBIDDEN: Final = " ,;{}()\n\t="
"""Characters that Delta forbids in column names of a table without column mapping."""


def stored_type(kind: Any, path: str, where: str = DELTA) -> Any:
    """Return the Arrow type with which the table stores a column of type `kind`.

    Args:
        path: name of the column in errors.
        where: name of the format in errors.

    Raises:
        DataError: Delta has no type that holds all values of `kind`.
    """
    types = pa.types
    if kind in _AS_THEY_ARE:
        return kind
    if kind in _WIDER:
        return _WIDER[kind]
    if types.is_dictionary(kind):
        return stored_type(kind.value_type, path, where)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_decimal(kind) and kind.precision <= _MOST_DIGITS and kind.scale >= 0:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    return _nested(kind, path, where)


def _nested(kind: Any, path: str, where: str) -> Any:
    types = pa.types
    if types.is_struct(kind) and kind.num_fields:
        fields = [kind.field(index) for index in range(kind.num_fields)]
        check_names((field.name for field in fields), f"{path}.", where)
        return pa.struct(
            [(one.name, stored_type(one.type, f"{path}.{one.name}", where)) for one in fields]
        )
    if types.is_map(kind):
        return pa.map_(
            stored_type(kind.key_type, f"{path}.key", where),
            stored_type(kind.item_type, f"{path}.value", where),
        )
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(stored_type(kind.value_type, f"{path}[]", where))
    raise DataError(
        f"column {path} is of type {kind}, which {where} has no type for: cast it, or drop it by a "
        "transform (ReplaceField)"
    )


def stored_schema(columns: Any, where: str = DELTA) -> Any:
    """Return a pyarrow.Schema with the types that the table stores. All columns are nullable.

    Raises:
        DataError: as `stored_type`, or a name is not allowed by Delta.
    """
    check_names(columns.names, "", where)
    return pa.schema([(one.name, stored_type(one.type, one.name, where)) for one in columns])


def check_names(names: Iterable[str], prefix: str, where: str) -> None:
    """Check column names, or the names of a struct's fields.

    Raises:
        DataError: Delta does not allow a name, or two names differ in case only.
    """
    seen: dict[str, str] = {}
    for name in names:
        if not name or any(mark in _FORBIDDEN for mark in name):
            raise DataError(
                f"column {prefix}{name!r}: {where} allows no empty name and none with one of "
                f"{_FORBIDDEN!r}: rename it by a transform (ReplaceField)"
            )
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise DataError(
                f"columns {prefix}{other} and {prefix}{name} differ in case alone, which {where} "
                "takes for one column: rename one by a transform (ReplaceField)"
            )
