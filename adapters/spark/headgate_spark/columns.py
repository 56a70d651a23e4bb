"""Kinds of columns, and how differing ones are united without losing a value.

    null < boolean                          < string
    null < integer < long                   < string
    null < integer < double                 < string

`integer` is a whole number within +-2**53, which a double holds exactly; `long` any of 64 bits.
Both are written as int64. So 1 and 1.5 make a double, 2**60 and 1.5 make a string, whole numbers
beyond 64 bits are strings. Where kinds conflict all values of the column become strings: strings
as they are, others as their JSON text. Objects and lists are written as their JSON text: their
shape changes from record to record, and a struct column that has to grow breaks its readers.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

NULL, BOOLEAN, INTEGER, LONG, DOUBLE, STRING = (
    "null", "boolean", "integer", "long", "double", "string",
)  # fmt: skip
EXACT = 2**53
"""Up to here a double holds whole numbers exactly."""
_INT64 = 2**63
_UNIONS = {
    frozenset((INTEGER, LONG)): LONG,
    frozenset((INTEGER, DOUBLE)): DOUBLE,
}


def unite(one: str, other: str) -> str:
    """The least kind that holds the values of both. Associative and commutative."""
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    return _UNIONS.get(frozenset((one, other)), STRING)


class Spelling:
    """One spelling for names that differ in case only: the first one. Spark, Hive and DuckDB refuse
    a table with both. Names that a folder has are left as they are."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = dict.fromkeys(known)
        self._by_lower: dict[str, str] = {}
        for name in self._known:
            self._by_lower.setdefault(name.lower(), name)

    def of(self, name: str) -> str:
        """The spelling that stands for `name`, its own if it is new."""
        if name in self._known:
            return name
        return self._by_lower.setdefault(name.lower(), name)


def unite_columns(
    parts: Iterable[Mapping[str, str]], spelling: Spelling | None = None
) -> dict[str, str]:
    """Columns of all parts, in order of first sight. Without `spelling` each name is a column."""
    united: dict[str, str] = {}
    for part in parts:
        for given, kind in part.items():
            name = given if spelling is None else spelling.of(given)
            united[name] = unite(united.get(name, NULL), kind)
    return united


def kind_of(values: Sequence[Any]) -> str:
    """The kind of a column of values as JSON gives them."""
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
    """A value of a column of strings."""
    if value is None or type(value) is str:
        return value
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # a whole number beyond 64 bits
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def to_arrow(values: Sequence[Any], kind: str) -> Any:
    """The column; `kind` holds all `values`."""
    import pyarrow as pa

    if kind == STRING:
        if not set(map(type, values)) <= {str, type(None)}:
            values = [as_text(value) for value in values]
        return pa.array(values, pa.string())
    if kind == DOUBLE:
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, arrow_type(kind))


def arrow_type(kind: str) -> Any:
    """A column that has only nulls is written as strings: few readers know a type of null, and
    any text can follow."""
    import pyarrow as pa

    types = {BOOLEAN: pa.bool_(), INTEGER: pa.int64(), LONG: pa.int64(), DOUBLE: pa.float64()}
    return types.get(kind, pa.string())
