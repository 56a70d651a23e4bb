"""Schemas and values come out of each converter with a registry as they went in."""

import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from support.data.typed_values import nulls_filled, typed_values
from support.data.valid_names import named
from support.depth import tries
from support.registry.memory import MemorySchemas, converter

from headgate.connector import schema as s
from headgate.connector.data_error import DataError
from headgate.connector.schema import Schema


@pytest.mark.parametrize("name", ["AvroConverter", "JsonSchemaConverter"])
def test_schema_and_value_come_back(name: str) -> None:
    counts = {"read": 0, "refused": 0}

    @settings(max_examples=tries(25, 3000), deadline=None, suppress_health_check=list(HealthCheck))
    @given(typed_values())
    def same(typed: tuple[Schema, Any]) -> None:
        schema, value = named(*typed)
        if value is None:
            return
        schemas = MemorySchemas()
        try:
            data = converter(name, schemas).from_connect("t", value, schema)
        except DataError:
            counts["refused"] += 1
            return
        read = converter(name, schemas).to_connect_data("t", data)
        assert read.schema == schema
        assert read.value == nulls_filled(schema, value, name == "JsonSchemaConverter")
        counts["read"] += 1

    same()
    assert counts["refused"] < counts["read"] / 4, counts


def test_a_map_without_text_keys_may_be_null() -> None:
    """JSON Schema has such a map as a list of pairs; an absent one is no list, and no fault."""
    pairs = s.map_of(s.INT8, s.STRING).as_optional()
    for schema, value in (
        (s.struct({"pairs": pairs}), {"pairs": None}),
        (s.array(pairs), [None, {1: "one"}]),
    ):
        schemas = MemorySchemas()
        data = converter("JsonSchemaConverter", schemas).from_connect("t", value, schema)
        read = converter("JsonSchemaConverter", schemas).to_connect_data("t", data)
        assert (read.schema, read.value) == (schema, value)


ROW = s.struct(
    {
        "small": s.INT8,
        "whole": s.INT64.as_optional(),
        "single": s.FLOAT32,
        "text": s.STRING.as_optional(),
        "raw": s.BYTES,
        "price": s.decimal_of(2, 10).as_optional(),
        "day": s.DATE_SCHEMA,
        "clock": s.TIME_SCHEMA.as_optional(),
        "at": s.TIMESTAMP_SCHEMA,
        "tags": s.array(s.STRING),
        "counts": s.map_of(s.STRING, s.INT32),
        "by_number": s.map_of(s.INT64, s.struct({"x": s.BOOLEAN})),
        "inner": s.struct({"a": s.INT16.as_optional()}).as_optional(),
    },
    name="shop.Row",
)


def row() -> dict[str, Any]:
    return {
        "small": -128,
        "whole": None,
        "single": 0.5,
        "text": "\u00e9\x00\U0001f600",
        "raw": b"\x00\xff",
        "price": Decimal("-12345678.90"),
        "day": datetime.date(1, 1, 1),
        "clock": datetime.time(23, 59, 59, 999000),
        "at": datetime.datetime(9999, 12, 31, 23, 59, 59, 999000, datetime.UTC),
        "tags": ["", "a"],
        "counts": {"k": 0},
        "by_number": {-(2**63): {"x": True}},
        "inner": {"a": None},
    }


@pytest.mark.parametrize("name", ["AvroConverter", "JsonSchemaConverter", "ProtobufConverter"])
def test_a_row_of_every_type_comes_back(name: str) -> None:
    schemas = MemorySchemas()
    data = converter(name, schemas).from_connect("t", row(), ROW)
    read = converter(name, schemas).to_connect_data("t", data)
    assert read.schema == ROW
    assert read.value == row()


@pytest.mark.parametrize("name", ["AvroConverter", "JsonSchemaConverter", "ProtobufConverter"])
def test_no_value_is_no_bytes(name: str) -> None:
    made = converter(name, MemorySchemas())
    assert made.from_connect("t", None, ROW) is None
    assert made.to_connect_data("t", None) == (None, None)


@pytest.mark.parametrize("name", ["AvroConverter", "JsonSchemaConverter"])
@pytest.mark.parametrize(
    ("value", "schema"),
    [("a", s.STRING), (True, s.BOOLEAN), (7, s.INT64), (1.5, s.FLOAT64), (b"x", s.BYTES)],
)
def test_a_plain_value_without_schema_gets_that_of_java_s_connectors(
    name: str, value: Any, schema: Schema
) -> None:
    schemas = MemorySchemas()
    data = converter(name, schemas).from_connect("t", value)
    assert converter(name, schemas).to_connect_data("t", data) == (schema, value)


REFUSED = [
    ("AvroConverter", s.struct({"my col": s.INT8}), {"my col": 1}, "value.my col"),
    (
        "AvroConverter",
        s.struct({"a": s.decimal_of(0)}),
        {"a": Decimal(10**70)},
        "expected at most 64",
    ),
    ("ProtobufConverter", s.STRING, "x", "expected a STRUCT"),
    ("ProtobufConverter", s.struct({"a": s.array(s.array(s.INT8))}), {"a": []}, "value.a"),
    ("ProtobufConverter", s.struct({"a": s.array(s.INT8.as_optional())}), {"a": [None]}, "a[0]"),
    ("ProtobufConverter", s.struct({"a": s.array(s.INT8).as_optional()}), {"a": None}, "value.a"),
    (
        "ProtobufConverter",
        s.struct({"a": s.map_of(s.BYTES, s.INT8)}),
        {"a": {}},
        "a key of value.a",
    ),
    ("AvroConverter", s.struct({"a": s.struct({"b": s.INT8})}), {"a": {"b": 300}}, "value.a.b"),
    ("JsonSchemaConverter", s.struct({"a": s.INT8}), {"a": "x"}, "value.a"),
]


@pytest.mark.parametrize(("name", "schema", "value", "told"), REFUSED)
def test_what_a_format_cannot_say_is_refused_by_its_path(
    name: str, schema: Schema, value: Any, told: str
) -> None:
    with pytest.raises(DataError) as found:
        converter(name, MemorySchemas()).from_connect("t", value, schema)
    assert told in str(found.value)


def test_two_structs_of_one_name_that_differ_are_refused() -> None:
    schema = s.struct({"a": s.struct({"x": s.INT8}, name="N"), "b": s.struct({}, name="N")})
    with pytest.raises(DataError, match="two schemas have the name N"):
        converter("AvroConverter", MemorySchemas()).from_connect(
            "t", {"a": {"x": 1}, "b": {}}, schema
        )
