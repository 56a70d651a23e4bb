"""Generated Connect schemas, with values of them."""

import datetime
import decimal
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from headgate.connector import schema as s
from headgate.connector.schema import Schema, SchemaType

UTC = datetime.UTC
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


EIGHTHS = st.integers(-(10**6), 10**6).map(lambda number: number / 8)
"""Floats that every Java writes alike; before Java 19 it did not always write the shortest text."""


def _whole_ms(at: Any) -> Any:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


SCALARS: list[tuple[Schema, st.SearchStrategy[Any]]] = [
    (s.INT8, integers(8)),
    (s.INT16, integers(16)),
    (s.INT32, integers(32)),
    (s.INT64, integers(64)),
    (s.FLOAT32, EIGHTHS),
    (s.FLOAT64, EIGHTHS),
    (s.BOOLEAN, st.booleans()),
    (s.STRING, TEXT),
    (s.BYTES, st.binary(max_size=8)),
    (s.DATE_SCHEMA, st.dates()),
    (s.TIME_SCHEMA, st.times().map(_whole_ms)),
    (s.TIMESTAMP_SCHEMA, st.datetimes(timezones=st.just(UTC)).map(_whole_ms)),
]


def decimals(scale: int) -> st.SearchStrategy[decimal.Decimal]:
    schema = s.decimal_of(scale)
    return st.integers(-(10**40), 10**40).map(lambda number: s.to_logical(schema, number))


@st.composite
def _leaf(draw: st.DrawFn) -> tuple[Schema, st.SearchStrategy[Any]]:
    if draw(st.integers(0, 5)) == 0:
        scale = draw(st.integers(-3, 40))
        return s.decimal_of(scale), decimals(scale)
    return draw(st.sampled_from(SCALARS))


@st.composite
def _wrapped(
    draw: st.DrawFn, inner: st.SearchStrategy[tuple[Schema, st.SearchStrategy[Any]]]
) -> tuple[Schema, st.SearchStrategy[Any]]:
    """A schema of a list, map or struct around `inner`, and a strategy for its values."""
    kind = draw(st.sampled_from(["array", "map", "struct"]))
    schema, values = draw(inner)
    if kind == "array":
        return s.array(schema), st.lists(values, max_size=3)
    if kind == "map":
        keys, key_values = draw(
            st.sampled_from([one for one in SCALARS if "FLOAT" not in one[0].type.upper()])
        )
        return s.map_of(keys, schema), st.dictionaries(key_values, values, max_size=1)
    parts = {
        name: draw(inner) for name in draw(st.lists(NAMES, unique=True, min_size=0, max_size=3))
    }
    struct = s.struct({name: part for name, (part, _) in parts.items()}, name=draw(_NAME))
    return struct, st.fixed_dictionaries({name: given for name, (_, given) in parts.items()})


_NAME = st.none() | NAMES


@st.composite
def _described(
    draw: st.DrawFn, inner: st.SearchStrategy[tuple[Schema, st.SearchStrategy[Any]]]
) -> tuple[Schema, st.SearchStrategy[Any]]:
    """The schema of `inner`, sometimes optional, with a default, or with the name, version, doc and
    parameters of a Connect schema."""
    schema, values = draw(inner)
    if schema.name is None and schema.type is not SchemaType.STRUCT and draw(st.booleans()):
        schema = replace(
            schema,
            name=draw(_NAME),
            version=draw(st.none() | integers(32)),
            doc=draw(_NAME),
            parameters=draw(st.dictionaries(NAMES, TEXT, max_size=2)),
        )
    if draw(st.integers(0, 3)) == 0 and schema.type not in (SchemaType.STRUCT, SchemaType.MAP):
        schema = replace(schema, default=draw(values))
    if draw(st.booleans()):
        return schema.as_optional(), st.none() | values
    return schema, values


TYPED = st.recursive(_described(_leaf()), lambda inner: _described(_wrapped(inner)), max_leaves=5)


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[Schema, Any]:
    """A schema, and a value that fits it."""
    schema, values = draw(TYPED)
    return schema, draw(values)


def nulls_filled(schema: Schema, value: Any, everywhere: bool, of_struct: bool = False) -> Any:
    """Return the value with its null struct fields replaced by the defaults of their schemas, as
    Java's Struct has it.

    With `everywhere`, nulls in lists and maps are replaced, too. A missing field of a struct counts
    as a null.
    """
    if value is None and (everywhere or of_struct):
        value = schema.default
    if value is None:
        return None
    if schema.type is SchemaType.STRUCT:
        return {
            one.name: nulls_filled(one.schema, value.get(one.name), everywhere, True)
            for one in schema.fields
        }
    part = schema.value_schema
    if schema.type is SchemaType.ARRAY and part is not None:
        return [nulls_filled(part, one, everywhere) for one in value]
    if schema.type is SchemaType.MAP and part is not None:
        return {key: nulls_filled(part, one, everywhere) for key, one in value.items()}
    return value
