"""Translation between Connect schemas and Arrow types, by one table for both directions. It needs
pyarrow.

Arrow types that Connect's types do not distinguish are kept as the parameter ``arrow.type`` of the
schema. So a column comes out with the type it came in with. Times that Connect's types cannot hold
are those of `headgate.connector.times`.

Types without an equivalent are refused, by their column's name: unions, run-end encoded, month-day-
nano intervals, extension types, list views of times, and dictionaries inside dictionaries.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from headgate.connector import schema as s
from headgate.connector.data_error import DataError
from headgate.connector.schema import Field, Schema, SchemaType, logical_type
from headgate.connector.times import (
    DURATION,
    TIMEZONE,
    UNIT,
    UNIT_TIME,
    UNIT_TIMESTAMP,
    is_unit_time,
    time_schema,
)
from headgate_arrow.nested import decoded, inner_arrays, null_count

ARROW_TYPE: Final = "arrow.type"
"""Parameter of a schema with the Arrow type, if the schema alone would give another one."""
DICTIONARY: Final = "arrow.dictionary"
"""Parameter of a schema with the index type of a dictionary-encoded column, and ``ordered`` after
it if it is ordered."""

INSTANT: Final = pa.timestamp("ms", "UTC")
"""The only timestamp type whose values are a datetime in Python."""

_PLAIN: Final[Mapping[Any, Schema]] = {
    pa.bool_(): s.BOOLEAN,
    pa.int8(): s.INT8,
    pa.int16(): s.INT16,
    pa.int32(): s.INT32,
    pa.int64(): s.INT64,
    pa.float32(): s.FLOAT32,
    pa.float64(): s.FLOAT64,
    pa.string(): s.STRING,
    pa.binary(): s.BYTES,
    pa.date32(): s.DATE_SCHEMA,
    pa.time32("ms"): s.TIME_SCHEMA,
    INSTANT: s.TIMESTAMP_SCHEMA,
}
_MARKED: Final[Mapping[Any, Schema]] = {
    pa.uint8(): s.INT16,
    pa.uint16(): s.INT32,
    pa.uint32(): s.INT64,
    pa.uint64(): s.decimal_of(0, 20),
    pa.float16(): s.FLOAT32,
    pa.large_string(): s.STRING,
    pa.string_view(): s.STRING,
    pa.large_binary(): s.BYTES,
    pa.binary_view(): s.BYTES,
    pa.date64(): s.DATE_SCHEMA,
    pa.null(): s.STRING,
}
_BY_NAME: Final = {str(found): found for found in _MARKED}
_CARRIERS: Final[Mapping[Any, Any]] = {
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.int32(),
}
"""Types whose values are converted to Python's by way of another type, their carrier."""


NULL: Final = "a null where it takes none"
"""Fault of a null in a place that is not nullable."""


class NoFormError(Exception):
    """An Arrow type has no equivalent in Connect's data model, or a schema none in Arrow."""


def struct_schema(columns: Any) -> Schema:
    """Return the STRUCT schema of a pyarrow.Schema.

    Raises:
        NoFormError: a column's type has no equivalent. The message names the column.
    """
    fields = [Field(column.name, field_schema(column, column.name)) for column in columns]
    try:
        return Schema(SchemaType.STRUCT, fields=tuple(fields))
    except DataError as error:
        raise NoFormError(f"its columns: {error}") from error


def field_schema(column: Any, path: str) -> Schema:
    """Return the schema of a pyarrow.Field. `path` is its name in error messages."""
    schema = _schema(column.type, path)
    return schema.as_optional() if column.nullable else schema


def _schema(kind: Any, path: str) -> Schema:
    types = pa.types
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in _MARKED:
        return _marked(_MARKED[kind], ARROW_TYPE, str(kind))
    if types.is_decimal(kind):
        schema = s.decimal_of(kind.scale, kind.precision)
        plain = pa.decimal128 if kind.precision <= _DECIMAL128 else pa.decimal256
        if plain(kind.precision, kind.scale) == kind:
            return schema
        return _marked(schema, ARROW_TYPE, str(kind))
    if types.is_timestamp(kind):
        return time_schema(UNIT_TIMESTAMP, kind.unit, kind.tz)
    if types.is_time(kind):
        return time_schema(UNIT_TIME, kind.unit)
    if types.is_duration(kind):
        return time_schema(DURATION, kind.unit)
    if types.is_fixed_size_binary(kind):
        return _marked(s.BYTES, ARROW_TYPE, str(kind))
    if types.is_dictionary(kind) and not types.is_nested(kind.value_type):
        index = f"{kind.index_type}{' ordered' if kind.ordered else ''}"
        return _marked(_schema(kind.value_type, path), DICTIONARY, index)
    return _nested(kind, path)


def _nested(kind: Any, path: str) -> Schema:
    types = pa.types
    if types.is_struct(kind):
        columns = [kind.field(index) for index in range(kind.num_fields)]
        fields = [Field(one.name, field_schema(one, f"{path}.{one.name}")) for one in columns]
        try:
            return Schema(SchemaType.STRUCT, fields=tuple(fields))
        except DataError as error:
            raise NoFormError(f"column {path}: {error}") from error
    if types.is_map(kind):
        keys = field_schema(kind.key_field, f"{path}.key")
        if keys.type in (SchemaType.STRUCT, SchemaType.ARRAY, SchemaType.MAP):
            raise NoFormError(f"column {path} is of type {kind}: keys of a map must be scalars")
        return s.map_of(keys, field_schema(kind.item_field, f"{path}.value"))
    if types.is_list(kind):
        return s.array(field_schema(kind.value_field, f"{path}[]"))
    if types.is_large_list(kind):
        return _marked(s.array(field_schema(kind.value_field, f"{path}[]")), ARROW_TYPE, _LARGE)
    if types.is_fixed_size_list(kind):
        schema = s.array(field_schema(kind.value_field, f"{path}[]"))
        return _marked(schema, ARROW_TYPE, f"fixed_size_list[{kind.list_size}]")
    raise NoFormError(f"column {path} is of type {kind}, which has no form in Connect's types")


_LARGE: Final = "large_list"
_DECIMAL128: Final = 38
_DECIMAL256: Final = 76


def _marked(schema: Schema, name: str, text: str) -> Schema:
    return replace(schema, parameters={**schema.parameters, name: text})


# -- from Connect to Arrow --


def arrow_schema(schema: Schema) -> Any:
    """Return the pyarrow.Schema of a STRUCT.

    Raises:
        NoFormError: a field's schema has no Arrow type.
    """
    return pa.schema([arrow_field(found) for found in schema.fields])


def arrow_field(found: Field) -> Any:
    return pa.field(found.name, arrow_type(found.schema, found.name), found.schema.optional)


def arrow_type(schema: Schema, path: str) -> Any:
    """Return the Arrow type of a schema.

    Raises:
        NoFormError: the schema has no Arrow type. The message names the column by `path`.
    """
    kind = _undictionaried(schema, path)
    index = schema.parameters.get(DICTIONARY)
    if index is None:
        return kind
    name, _, ordered = index.partition(" ")
    return pa.dictionary(pa.type_for_alias(name), kind, bool(ordered))


def _undictionaried(schema: Schema, path: str) -> Any:
    mark = schema.parameters.get(ARROW_TYPE)
    if mark is not None and schema.type is not SchemaType.ARRAY:
        return _by_mark(mark, path)
    if logical_type(schema) == s.DECIMAL:
        # Arrow cannot read back a decimal whose scale exceeds its precision.
        unsaid = _DECIMAL128 if schema.scale <= _DECIMAL128 else _DECIMAL256
        precision = int(schema.parameters.get(s.PRECISION, unsaid))
        if not 1 <= precision <= _DECIMAL256:
            raise NoFormError(f"column {path} has {precision} digits, expected 1 to {_DECIMAL256}")
        kind = pa.decimal128 if precision <= _DECIMAL128 else pa.decimal256
        return kind(precision, schema.scale)
    if is_unit_time(schema):
        return _unit_type(schema, path)
    if schema.type is SchemaType.STRUCT:
        fields = [
            pa.field(one.name, arrow_type(one.schema, f"{path}.{one.name}"), one.schema.optional)
            for one in schema.fields
        ]
        return pa.struct(fields)
    if schema.type in (SchemaType.ARRAY, SchemaType.MAP):
        return _list_or_map(schema, path)
    plain = Schema(schema.type)
    if logical_type(schema) is not None:
        plain = replace(plain, name=schema.name, version=1)
    return _ARROW_OF[plain]


_ARROW_OF: Final = {schema: kind for kind, schema in _PLAIN.items()}


def _by_mark(mark: str, path: str) -> Any:
    found = _BY_NAME.get(mark)
    if found is not None:
        return found
    if match := re.fullmatch(r"fixed_size_binary\[(\d+)\]", mark):
        return pa.binary(int(match[1]))
    if match := re.fullmatch(r"(decimal(?:32|64|128|256))\((\d+), (-?\d+)\)", mark):
        return getattr(pa, match[1])(int(match[2]), int(match[3]))
    raise NoFormError(f"column {path} has the parameter {ARROW_TYPE} = {mark}, which is not known")


def _unit_type(schema: Schema, path: str) -> Any:
    unit = schema.parameters.get(UNIT, "")
    try:
        if schema.name == UNIT_TIMESTAMP:
            return pa.timestamp(unit, schema.parameters.get(TIMEZONE))
        if schema.name == DURATION:
            return pa.duration(unit)
        return pa.time64(unit) if unit in ("us", "ns") else pa.time32(unit)
    except ValueError as error:
        raise NoFormError(f"column {path} has unit {unit!r}: {error}") from error


def _list_or_map(schema: Schema, path: str) -> Any:
    values = schema.value_schema
    assert values is not None
    if schema.type is SchemaType.MAP:
        keys = schema.key_schema
        assert keys is not None
        item = pa.field("value", arrow_type(values, f"{path}.value"), values.optional)
        return pa.map_(pa.field("key", arrow_type(keys, f"{path}.key"), False), item)
    child = pa.field("item", arrow_type(values, f"{path}[]"), values.optional)
    mark = schema.parameters.get(ARROW_TYPE, "")
    if mark == _LARGE:
        return pa.large_list(child)
    if match := re.fullmatch(r"fixed_size_list\[(\d+)\]", mark):
        return pa.list_(child, int(match[1]))
    return pa.list_(child)


# -- values --


def carrier(kind: Any) -> Any:
    """Return the carrier of `kind`: the Arrow type by way of which its values are converted to
    Python's and back. Most times are integers there, so that nothing of them is lost."""
    types = pa.types
    if kind in _CARRIERS:
        return _CARRIERS[kind]
    if types.is_dictionary(kind):
        return carrier(kind.value_type)
    if kind in _PLAIN:
        return kind
    if types.is_timestamp(kind) or types.is_time64(kind) or types.is_duration(kind):
        return pa.int64()
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([field.with_type(carrier(field.type)) for field in fields])
    if types.is_map(kind):
        item = kind.item_field
        return pa.map_(
            kind.key_field.with_type(carrier(kind.key_type)),
            item.with_type(carrier(item.type)),
        )
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        child = kind.value_field.with_type(carrier(kind.value_type))
        if types.is_large_list(kind):
            return pa.large_list(child)
        if types.is_fixed_size_list(kind):
            # Null lists have null items inside. Arrow refuses to cast them to items that are not
            # nullable.
            return pa.list_(child.with_nullable(True), kind.list_size)
        return pa.list_(child)
    return kind


def carriers(columns: Any) -> Any:
    """Return the pyarrow.Schema with the carriers of `columns`."""
    return pa.schema([column.with_type(carrier(column.type)) for column in columns])


def rows_of(table: Any, by_way: Any) -> list[dict[str, Any]]:
    """Return the rows of a table as values of its `struct_schema`. `by_way` are its `carriers`.

    Raises:
        pyarrow.ArrowException, ValueError, OverflowError: a value has no form in Python.
        KeyError: a map has a key twice.
    """
    if table.schema != by_way:
        plain = decoded(table)
        table = plain.cast(by_way if plain is table else carriers(plain.schema))
    return table.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def table_of(rows: list[dict[str, Any]], columns: Any, by_way: Any) -> Any:
    """Return a pyarrow.Table of these `columns` from values. `by_way` are their `carriers`.

    Raises:
        pyarrow.ArrowException, ValueError, TypeError, OverflowError: a value does not fit.
    """
    arrays = [
        pa.array([row.get(column.name) for row in rows], way.type).cast(column.type)
        for column, way in zip(columns, by_way, strict=True)
    ]
    for array in arrays:
        _check_inner_nulls(array)
    return pa.Table.from_arrays(arrays, schema=columns)


def _check_inner_nulls(array: Any) -> None:
    """Check that lists, maps and structs have no nulls in places that are not nullable. Arrow
    itself finds only some.

    Raises:
        ValueError: there is such a null.
    """
    if isinstance(array, pa.ChunkedArray):
        for chunk in array.chunks:
            _check_inner_nulls(chunk)
    elif pa.types.is_nested(array.type):
        if has_wrong_nulls(array):
            raise ValueError(NULL)
        for one in inner_arrays(array):
            _check_inner_nulls(one)


def has_wrong_nulls(array: Any) -> bool:
    """Return whether structs, maps or lists have nulls in fields or items that are not nullable.
    For each null struct, `flatten` returns a null in each field, which does not count."""
    kind, types = array.type, pa.types
    inner = inner_arrays(array)
    if types.is_struct(kind):
        fields, own = [kind.field(at) for at in range(kind.num_fields)], array.null_count
    elif types.is_map(kind):
        fields, own = [kind.key_field, kind.item_field], 0
    else:
        fields, own = [kind.value_field], 0
    found = zip(fields, inner, strict=True)
    return any(null_count(one) > own and not field.nullable for field, one in found)


def scalar_of(value: Any, kind: Any) -> Any:
    """Return a pyarrow.Scalar of type `kind`. Raises as `table_of`."""
    return pa.array([value], carrier(kind)).cast(kind)[0]
