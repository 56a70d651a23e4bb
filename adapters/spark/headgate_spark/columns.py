"""Kinds of columns, and how differing kinds are united without losing a value.

    null < boolean                          < string
    null < integer < long                   < string
    null < integer < double                 < string
    null < float   < double                 < string
    null < a type of a schema               < string

An `integer` is a whole number from -2**53 to 2**53. A double holds each of them exactly. A `long`
is any whole number of 64 bits. Both are written as int64. So 1 and 1.5 make a double, 2**60 and 1.5
make a string, and whole numbers beyond 64 bits are strings.

If kinds conflict within a column's first batch, all its values become strings: strings as they are,
others as their JSON text. In later batches the column is pinned (`fits`). Objects and lists without
a schema are written as their JSON text. Their shape changes from record to record, and a struct
column that has to grow breaks its readers.

A value with a schema keeps its type if Spark reads that type from Parquet. These are decimals of up
to 38 digits, dates, timestamps of up to microseconds, binary, lists, maps and structs. The kind is
then the JSON text of the schema. Times of day, durations, nanoseconds and longer numbers are
strings.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from headgate.connector.json_schema import read_schema, schema_text
from headgate.connector.json_values import DecimalFormat
from headgate.connector.text_converters import json_text, text_of

NULL, BOOLEAN, INTEGER, LONG, FLOAT, DOUBLE, STRING = (
    "null", "boolean", "integer", "long", "float", "double", "string",
)  # fmt: skip
DECLARED = (BOOLEAN, LONG, DOUBLE, STRING)
"""Kinds that users may declare."""
EXACT = 2**53
"""Largest number up to which a double holds all whole numbers exactly."""
_INT64 = 2**63
_UNIONS = {
    frozenset((INTEGER, LONG)): LONG,
    frozenset((INTEGER, DOUBLE)): DOUBLE,
    frozenset((INTEGER, FLOAT)): DOUBLE,
    frozenset((FLOAT, DOUBLE)): DOUBLE,
}
_DECIMAL_DIGITS = 38
"""Most digits of Spark's decimals."""


def unite(one: str, other: str) -> str:
    """Return the least kind that holds the values of both. Associative and commutative."""
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    return _UNIONS.get(frozenset((one, other)), STRING)


def fits(kind: str, pinned: str) -> bool:
    """Return whether values of `kind` can be written to a column whose files have the kind
    `pinned`."""
    return pinned == NULL or type_name(unite(pinned, kind)) == type_name(pinned)


def unfit(columns: Mapping[str, str], pinned: Mapping[str, str]) -> list[str]:
    """Return the columns whose values do not fit the pinned kinds."""
    return [name for name, kind in columns.items() if not fits(kind, pinned.get(name, NULL))]


class Spelling:
    """Chooses one spelling, the first, for names that differ in case only. Spark, Hive and DuckDB
    refuse a table with both. Names that a folder has are left as they are."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = dict.fromkeys(known)
        self._by_lower: dict[str, str] = {}
        for name in self._known:
            self._by_lower.setdefault(name.lower(), name)

    def of(self, name: str) -> str:
        """Return the spelling that stands for `name`: its own if it is new."""
        if name in self._known:
            return name
        return self._by_lower.setdefault(name.lower(), name)


def unite_columns(
    parts: Iterable[Mapping[str, str]], spelling: Spelling | None = None
) -> dict[str, str]:
    """Return the columns of all parts, in order of first sight. Without `spelling` each name is a
    column."""
    united: dict[str, str] = {}
    for part in parts:
        for given, kind in part.items():
            name = given if spelling is None else spelling.of(given)
            united[name] = unite(united.get(name, NULL), kind)
    return united


def kind_of(values: Sequence[Any]) -> str:
    """Return the kind of a column of values as JSON gives them."""
    kind = NULL
    for found in set(map(type, values)):
        if found is int:
            kind = unite(kind, _kind_of_ints([v for v in values if type(v) is int]))
        else:
            kind = unite(kind, _KINDS.get(found, STRING))
    return kind


_KINDS = {type(None): NULL, bool: BOOLEAN, float: DOUBLE, str: STRING}


def _kind_of_ints(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    if low >= -EXACT and high <= EXACT:
        return INTEGER
    return LONG if low >= -_INT64 and high < _INT64 else STRING


def as_text(value: Any) -> str | None:
    """Return a value for a column of strings."""
    if value is None or type(value) is str:
        return value
    if type(value) is float and not math.isfinite(value):
        return text_of(None, value)  # orjson writes null for it
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # a whole number beyond 64 bits
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def to_arrow(values: Sequence[Any], kind: str) -> Any:
    """Return the column. `kind` must hold all `values`, which are JSON's."""
    import pyarrow as pa

    if kind == STRING:
        if not set(map(type, values)) <= {str, type(None)}:
            values = [as_text(value) for value in values]
        return pa.array(values, pa.string())
    if kind in (FLOAT, DOUBLE):
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, arrow_type(kind))


def arrow_type(kind: str) -> Any:
    """Return the Arrow type of a kind. A column that has only nulls is written as strings: few
    readers know a type of null, and any text can follow."""
    import pyarrow as pa

    if kind.startswith("{"):
        return _typed(kind)
    types = {BOOLEAN: pa.bool_(), INTEGER: pa.int64(), LONG: pa.int64(), FLOAT: pa.float32(),
             DOUBLE: pa.float64()}  # fmt: skip
    return types.get(kind, pa.string())


def type_name(kind: str) -> str:
    """Return Arrow's name for the type of the column, for messages."""
    return str(arrow_type(kind))


# -- types of schemas --


def written_type(kind: Any) -> Any:
    """Return the Arrow type with which values of the type `kind` are written. None: as text."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return written_type(kind.value_type)
    if types.is_signed_integer(kind) or types.is_uint8(kind) or types.is_uint16(kind) \
            or types.is_uint32(kind):  # fmt: skip
        return pa.int64()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_decimal(kind) and kind.precision <= _DECIMAL_DIGITS:
        kind = pa.decimal128(kind.precision, kind.scale)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    return kind if _spark_reads(kind) else None


def _spark_reads(kind: Any) -> bool:
    """Return whether Spark reads a column of this type from Parquet."""
    import pyarrow as pa

    types = pa.types
    if types.is_nested(kind):
        plain = types.is_struct(kind) or types.is_map(kind) or _is_list(kind)
        children = [kind.field(index).type for index in range(kind.num_fields)]
        return plain and bool(children) and all(map(_spark_reads, children))
    if types.is_decimal128(kind):
        return bool(kind.precision <= _DECIMAL_DIGITS and 0 <= kind.scale <= kind.precision)
    if types.is_timestamp(kind):
        return bool(kind.unit != "ns")
    return bool(
        types.is_signed_integer(kind) or types.is_float32(kind) or types.is_float64(kind)
        or types.is_boolean(kind) or types.is_date32(kind)
        or types.is_string(kind) or types.is_large_string(kind)
        or types.is_binary(kind) or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )  # fmt: skip


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def typed_kind(kind: Any) -> str:
    """Return the kind of columns of an Arrow type that `written_type` gives and JSON lacks."""
    import pyarrow as pa

    from headgate_arrow import arrow_types

    schema = arrow_types.field_schema(pa.field("", kind), "")
    return schema_text(schema, DecimalFormat.BASE64, False)


@lru_cache(maxsize=256)
def inner_clash(name: str, kind: str) -> str:
    """Return which fields within a column differ in case only. Empty: none."""
    if not kind.startswith("{"):
        return ""
    import pyarrow as pa

    from headgate_connectors.output.column_names import clash

    found = clash(pa.schema([pa.field(name, arrow_type(kind))]))
    return "" if found is None else f"{found[1]} differs from {found[0]} in case only"


@lru_cache(maxsize=256)
def _typed(kind: str) -> Any:
    from headgate_arrow import arrow_types

    schema = read_schema(json.loads(kind))
    assert schema is not None
    return arrow_types.arrow_type(schema, "")


def texts(array: Any) -> Any:
    """Return a column as strings: strings as they are, others as their JSON text."""
    import pyarrow as pa

    from headgate_arrow import arrow_types

    columns = pa.schema([pa.field("v", array.type)])
    schema = arrow_types.struct_schema(columns).fields[0].schema
    rows = arrow_types.rows_of(pa.table([array], schema=columns), arrow_types.carriers(columns))
    found = (row["v"] for row in rows)
    return pa.array(
        [None if value is None else _unquoted(json_text(schema, value)) for value in found],
        pa.string(),
    )


def _unquoted(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text
