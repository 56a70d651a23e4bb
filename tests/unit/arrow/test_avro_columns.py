"""Rows of a batch are written as Avro by columns: numbers of each length, and batches that are left
to the rows."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from support.registry.memory import MemorySchemas, converter

from headgate.connector import schema as s
from headgate.connector.registry_converters import AvroConverter
from headgate.connector.schema import Field, Schema, SchemaType
from headgate.connector.schema_registry import AVRO, RegisteredSchema
from headgate_arrow import arrow_types, rows
from headgate_arrow.avro_columns import AvroColumns, NeedsRowsError
from headgate_registry import avro_names as names
from headgate_registry.base import FormatConverter


def by_columns(made: FormatConverter, batch: Any, schema: Schema) -> list[bytes]:
    assert isinstance(made, AvroConverter)
    return AvroColumns(schema, made.form("t", schema)).values(batch)


def check(array: Any) -> None:
    """Columns give what the converter gives for each row, whole and in part."""
    columns = pa.schema([pa.field("v", array.type, bool(array.null_count))])
    whole = pa.RecordBatch.from_arrays([array], schema=columns)
    for batch in (whole, whole.slice(1)):
        schema = arrow_types.struct_schema(batch.schema)
        made = converter("AvroConverter", MemorySchemas())
        expected = [made.from_connect("t", row, schema) for row in rows.values_of(batch)]
        assert by_columns(made, batch, schema) == expected


POWERS = [2**power + more for power in range(63) for more in (-1, 0)]


@pytest.mark.parametrize("nulls", [[], [None]])
def test_whole_numbers_of_each_length(nulls: list[None]) -> None:
    most = 2**63 - 1
    check(pa.array([*nulls, *POWERS, most, *[-one - 1 for one in POWERS], -most - 1, *nulls]))
    for bits in (3, 13, 14, 27, 28, 41, 42, 55, 56):  # that is the longest of its column
        check(pa.array([*nulls, 0, 2**bits - 1, *nulls]))


@pytest.mark.parametrize("kind", [pa.decimal128(38, 2), pa.decimal256(76, 0), pa.decimal64(18, 9)])
@pytest.mark.parametrize("nulls", [[], [None]])
def test_decimals_of_each_length(kind: Any, nulls: list[None]) -> None:
    limit = 10**kind.precision
    numbers = [one for power in POWERS for one in (power, -power - 1) if abs(one) < limit]
    values = [Decimal(one).scaleb(-kind.scale) for one in numbers]
    check(pa.array([*nulls, *values, *nulls], kind))
    for few in ([values[0]], values[:20], values[60:70], values[70:80]):
        check(pa.array([*nulls, *few, *nulls], kind))
    most = Decimal((0, (9,) * kind.precision, -kind.scale))
    check(pa.array([*nulls, most, values[5], most.copy_negate()], kind))


def test_numbers_of_64_bits_without_sign_are_decimals() -> None:
    for most in (2**64 - 1, 2**63, 2**63 - 1, 200):
        check(pa.array([None, 0, most, 127, 128], pa.uint64()))


def test_a_signalling_nan_is_written_as_python_writes_it() -> None:
    data = struct.pack("<4I", 0x7F800001, 0x7FC00001, 0xFFC00000, 0x3F800000)
    check(pa.Array.from_buffers(pa.float32(), 4, [None, pa.py_buffer(data)]))
    data = struct.pack("<2Q", 0x7FF0000000000001, 0xFFF8000000000001)
    check(pa.Array.from_buffers(pa.float64(), 2, [None, pa.py_buffer(data)]))


def test_empty_lists_texts_and_structs() -> None:
    check(pa.array([[], [], None], pa.list_(pa.string())))
    check(pa.array([None, [], [[]], [[], ["", None]]], pa.list_(pa.list_(pa.string()))))
    check(pa.array([None, [("", [])], []], pa.map_(pa.string(), pa.list_(pa.int8()))))
    check(pa.array([{}, None, {}], pa.struct([])))
    check(pa.array([{"a": {}}, None, {"a": None}], pa.struct([("a", pa.struct([]))])))
    check(pa.array([[], [], []], pa.list_(pa.decimal128(5, 2))))
    check(pa.array([None, None], pa.struct([pa.field("a", pa.list_(pa.int8()), False)])))


def field(schema: Schema, **more: Any) -> Schema:
    return Schema(SchemaType.STRUCT, fields=(Field("v", replace(schema, **more)),))


ENUM = {names.ENUM: "an.Enum", f"{names.ENUM}.a": "0", f"{names.ENUM}.b": "1"}
PAIR = Schema(
    SchemaType.STRUCT,
    name=names.UNION,
    fields=(Field("int", s.INT32.as_optional()), Field("string", s.STRING.as_optional())),
)
TO_ROWS: list[tuple[str, Schema, Sequence[Any], Mapping[str, str], str]] = [
    ("enum", field(s.STRING, parameters=ENUM), ["a", "b"], {"enhanced.avro.schema.support": "true"},
     "a string as Avro's enum"),
    ("fixed", field(s.BYTES, parameters={names.FIXED_SIZE: "2"}, name="a.F"), [b"ab", b"cd"], {},
     "a bytes as Avro's fixed"),
    ("union", field(PAIR), [{"int": 1, "string": None}, {"int": None, "string": "x"}], {},
     "a union of several types"),
    ("default", field(s.INT32.as_optional(), default=5), [None, 1], {}, "written as a default"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "schema", "values", "config", "reason"), TO_ROWS)
def test_what_columns_do_not_say_is_left_to_rows(
    what: str, schema: Schema, values: Sequence[Any], config: Mapping[str, str], reason: str
) -> None:
    made = converter("AvroConverter", MemorySchemas(), config)
    given = [{"v": value} for value in values]
    batch = rows.batch_of(given, schema)
    assert None not in [made.from_connect("t", row, schema) for row in given]
    with pytest.raises(NeedsRowsError, match=reason):
        by_columns(made, batch, schema)


def test_a_decimal_with_fewer_digits_in_its_schema_is_left_to_rows() -> None:
    schema = field(s.decimal_of(2, 3))
    batch = rows.batch_of([{"v": Decimal("1.23")}], schema)
    made = converter("AvroConverter", MemorySchemas())
    assert isinstance(made, AvroConverter)
    form = made.form("t", schema)
    wide = batch.cast(pa.schema([pa.field("v", pa.decimal128(9, 2), False)]))
    with pytest.raises(NeedsRowsError, match="9 digits, and the schema has 3"):
        AvroColumns(schema, form).values(wide)


def test_a_field_that_only_the_newest_schema_has_is_left_to_rows() -> None:
    schemas = MemorySchemas()
    wide = s.struct({"v": s.INT32, "more": s.INT32.as_optional()}, name="a.Row")
    converter("AvroConverter", schemas).from_connect("t", {"v": 1}, wide)
    newest = {"auto.register.schemas": "false", "use.latest.version": "true"}
    made = converter("AvroConverter", schemas, newest)
    schema = s.struct({"v": s.INT32}, name="a.Row")
    assert made.from_connect("t", {"v": 1}, schema) is not None
    with pytest.raises(NeedsRowsError, match="the field more, which the rows do not have"):
        by_columns(made, rows.batch_of([{"v": 1}], schema), schema)
    taken = rows.batch_of([{"v": 1, "more": None}], wide)
    expected = made.from_connect("t", {"v": 1, "more": None}, wide)
    assert by_columns(made, taken, wide) == [expected]


ENTRY = {"type": "record", "name": "a.Pair", "connect.internal.type": "MapEntry"}
KEY = {"name": "key", "type": ["null", "string"]}
VALUE = {"name": "value", "type": ["null", "string"]}


@pytest.mark.parametrize("fields", [[KEY, VALUE], [VALUE, KEY]])
def test_entries_of_a_map_stand_in_the_order_of_their_schema(fields: list[Any]) -> None:
    text = s.STRING.as_optional()
    schema = s.struct({"v": s.map_of(text, text)}, name="a.Row")
    items = {"type": "array", "items": {**ENTRY, "fields": fields}}
    row = {"type": "record", "name": "a.Row", "fields": [{"name": "v", "type": items}]}
    schemas = MemorySchemas()
    schemas.add("t-value", RegisteredSchema(AVRO, json.dumps(row)), 0)
    config = {"auto.register.schemas": "false", "use.latest.version": "true"}
    made = converter("AvroConverter", schemas, config)
    given = {"v": {"a": "b", "c": None}}
    expected = made.from_connect("t", given, schema)
    assert by_columns(made, rows.batch_of([given], schema), schema) == [expected]
