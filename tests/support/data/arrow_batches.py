"""Generated record batches of Arrow with columns of every type, whole or sliced from a larger
one."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import reject
from hypothesis import strategies as st

from headgate.connector.schema import Field, Schema
from headgate_arrow import arrow_types, rows
from headgate_arrow.values import fault

ODD = st.sampled_from('"\\\b\f\n\r\t\0\x1f\x7f/\u2028\u00e9\uffff\U00010000\U0010ffff')
TEXTS = st.text(st.characters(codec="utf-8") | ODD, max_size=8) | st.sampled_from(
    ["", "plain", "\\u001f", "\\", '"', "null"]
)
FLOATS = (
    st.floats()
    | st.integers(-2000, 2000).map(lambda number: number / 8)
    | st.integers(-1074, 1023).map(lambda power: 2.0**power)
    | st.sampled_from([0.001, 1e7, 9999999.0, -0.0, 0.1])
)
NAMES = st.text(st.characters(codec="utf-8") | ODD, min_size=1, max_size=3)


def whole(bits: int) -> st.SearchStrategy[int]:
    most = (1 << bits - 1) - 1
    return st.integers(-most - 1, most) | st.integers(-3, 3) | st.sampled_from([most, -most - 1])


def single(value: float) -> float:
    try:
        return float(struct.unpack(">f", struct.pack(">f", value))[0])
    except OverflowError:
        return 0.0


def counted(kind: Any, most: int, least: int = 0) -> tuple[Any, st.SearchStrategy[Any]]:
    """Return a type of times and a strategy that makes its values from their numbers."""
    bits = pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind, st.integers(least, most).map(lambda one: pa.scalar(one, bits).cast(kind))


def decimals(kind: Any) -> tuple[Any, st.SearchStrategy[Decimal]]:
    most = 10**kind.precision - 1
    few = min(most, 300)
    numbers = st.integers(-most, most) | st.integers(-few, few) | st.sampled_from([most, -most])
    return kind, numbers.map(lambda number: Decimal((number < 0, digits(number), -kind.scale)))


def digits(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(number))))


DAY_MS = 86_400_000
SCALARS: Sequence[tuple[Any, st.SearchStrategy[Any]]] = (
    (pa.bool_(), st.booleans()),
    *((getattr(pa, f"int{bits}")(), whole(bits)) for bits in (8, 16, 32, 64)),
    *((getattr(pa, f"uint{bits}")(), st.integers(0, 2**bits - 1)) for bits in (8, 16, 32, 64)),
    (pa.float16(), st.floats(width=16)),
    (pa.float32(), FLOATS.map(single)),
    (pa.float64(), FLOATS),
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.string_view(), TEXTS),
    (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    (pa.binary(), st.binary(max_size=4)),
    (pa.large_binary(), st.binary(max_size=4)),
    (pa.binary_view(), st.binary(max_size=20)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    *(map(decimals, (pa.decimal128(38, 2), pa.decimal128(20, 20), pa.decimal128(5, -3)))),
    *(map(decimals, (pa.decimal128(1, 0), pa.decimal256(76, 30), pa.decimal64(18, 9)))),
    (pa.date32(), st.dates()),
    (pa.date64(), st.dates()),
    counted(pa.time32("s"), 86_399),
    counted(pa.time32("ms"), DAY_MS - 1),
    counted(pa.time64("us"), DAY_MS * 1000 - 1),
    counted(pa.time64("ns"), DAY_MS * 10**6 - 1),
    counted(pa.timestamp("s"), 10**15, -(10**15)),
    counted(pa.timestamp("ms", "UTC"), 253_402_300_799_999, -62_135_596_800_000),
    counted(pa.timestamp("us", "America/New_York"), 2**62, -(2**62)),
    counted(pa.timestamp("ns"), 2**63 - 1, -(2**63)),
    counted(pa.duration("ns"), 2**62, -(2**62)),
    (pa.null(), st.none()),
)
OUTERMOST = 2
INNER = [one for one in SCALARS if one[0] not in (pa.string_view(), pa.binary_view(), pa.null())]
"""Scalar types inside others. Arrow does little with views inside others, and casts no list of
nulls."""
KEYS = [one for one in INNER if one[0] != pa.float16()]
Typed = tuple[Any, st.SearchStrategy[Any]]


def nullable(values: st.SearchStrategy[Any], also: bool) -> st.SearchStrategy[Any]:
    return st.none() | values if also else values


@st.composite
def typed(draw: st.DrawFn, field_names: st.SearchStrategy[str], depth: int = OUTERMOST) -> Typed:
    way = draw(st.sampled_from(["scalar", "scalar", "list", "map", "struct"]))
    if depth == 0 or way == "scalar":
        return draw(st.sampled_from(SCALARS if depth == OUTERMOST else INNER))
    if way == "struct":
        names = draw(st.lists(field_names, unique=True, max_size=2))
        inner = [
            (name, *draw(typed(field_names, depth - 1)), draw(st.booleans())) for name in names
        ]
        fields = [field_of(name, kind, null) for name, kind, _, null in inner]
        values = {name: nullable(one, null) for name, _, one, null in inner}
        return pa.struct(fields), st.fixed_dictionaries(values)
    null = draw(st.booleans())
    kind, one = draw(typed(field_names, depth - 1))
    item = field_of("item", kind, null)
    if way == "map":
        key, keys = draw(st.sampled_from(KEYS))
        pairs = st.lists(st.tuples(keys, nullable(one, null)), max_size=3, unique_by=_same)
        return pa.map_(key, item.with_name("value")), pairs
    size = draw(st.sampled_from([-1, 0, 2]))
    bounds = (0, 3) if size < 0 else (size, size)
    values_of = st.lists(nullable(one, null), min_size=bounds[0], max_size=bounds[1])
    made = pa.large_list(item) if draw(st.booleans()) and size < 0 else pa.list_(item, size)
    return made, values_of


def field_of(name: str, kind: Any, null: bool) -> Any:
    return pa.field(name, kind, null or pa.types.is_null(kind))


def _same(pair: tuple[Any, Any]) -> object:
    return repr(pair[0]) if pair[0] != 0 else "0"


@st.composite
def batches(draw: st.DrawFn, field_names: st.SearchStrategy[str] = NAMES) -> Any:
    """A RecordBatch, often a slice of a larger one."""
    count = draw(st.integers(1, 5))
    names = draw(st.lists(field_names, unique=True, min_size=1, max_size=3))
    fields: list[Any] = []
    arrays: list[Any] = []
    for name in names:
        kind, values = draw(typed(field_names))
        null = draw(st.booleans())
        given_values = draw(st.lists(nullable(values, null), min_size=count, max_size=count))
        fields.append(field_of(name, kind, null))
        arrays.append(pa.array(given_values, kind))
    found = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    start = draw(st.integers(0, count - 1))
    return found.slice(start, draw(st.integers(1, count - start)))


@st.composite
def with_defaults(draw: st.DrawFn, schema: Schema, given_rows: list[Any]) -> Schema:
    """The schema, in which some fields have one of their values as default."""
    fields: list[Field] = []
    for field in schema.fields:
        known = [row[field.name] for row in given_rows if row[field.name] is not None]
        if known and draw(st.booleans()):
            field = Field(field.name, replace(field.schema, default=known[0]))
        fields.append(field)
    return replace(schema, fields=tuple(fields))


@st.composite
def rows_with_schema(draw: st.DrawFn, field_names: st.SearchStrategy[str] = NAMES) -> Any:
    """A RecordBatch whose values can all be Python values, its rows, and their schema, in which
    some fields have a default."""
    values = draw(batches(field_names))
    if fault(values) is not None:
        reject()
    given_rows = rows.values_of(values)
    schema = draw(with_defaults(arrow_types.struct_schema(values.schema), given_rows))
    return values, given_rows, schema
