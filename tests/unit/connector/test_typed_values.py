"""Converters with schemas read back what they write, equal by value and by type."""

import datetime
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.data.typed_values import typed_values

from headgate.connector import DataError, Schema, SchemaType, validate
from headgate.connector import schema as s
from headgate.connector.converters import make_converter
from headgate.connector.json_values import nearest_single
from headgate.connector.text_converters import text_of
from headgate.connector.times import DURATION, UNIT_TIME, UNIT_TIMESTAMP, time_schema, time_text
from headgate.java.numbers import java_float

CONVERTERS: list[tuple[str, dict[str, str]]] = [
    ("TypedConverter", {}),
    ("JsonConverter", {"replace.null.with.default": "false"}),
    ("JsonConverter", {"replace.null.with.default": "false", "decimal.format": "NUMERIC"}),
]


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: types_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [types_of(item) for item in value]
    return type(value)


@pytest.mark.parametrize(("name", "config"), CONVERTERS, ids=str)
@given(typed_values())
def test_a_typed_value_comes_back(
    name: str, config: dict[str, str], typed: tuple[Schema, Any]
) -> None:
    schema, value = typed
    validate(schema, value)
    converter = make_converter(name, config, is_key=False)
    data = converter.from_connect("t", value, schema)
    if data is None:  # a null, which the typed form writes as a tombstone
        assert value is None
        return
    read = converter.to_connect_data("t", data)
    assert read == (schema, value)
    assert types_of(read.value) == types_of(value)
    again = make_converter(name, config, is_key=False).to_connect_data("t", data)
    assert again == read


@given(typed_values(), st.data())
def test_a_converter_keeps_schemas_apart(first: tuple[Schema, Any], data: st.DataObject) -> None:
    """One converter gets records of different schemas in one topic."""
    values = [first, data.draw(typed_values()), first]
    for name in ("TypedConverter", "JsonConverter"):
        converter = make_converter(name, {"replace.null.with.default": "false"}, is_key=False)
        written = [converter.from_connect("t", value, schema) for schema, value in values]
        for data_, (schema, value) in zip(written, values, strict=True):
            if data_ is not None:
                assert converter.to_connect_data("t", data_) == (schema, value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 0.1])
@pytest.mark.parametrize("name", ["TypedConverter", "JsonConverter"])
def test_odd_floats_come_back(name: str, value: float) -> None:
    converter = make_converter(name, {}, is_key=False)
    data = converter.from_connect("t", value, s.FLOAT64)
    assert repr(converter.to_connect("t", data)) == repr(value)


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 400])
def test_a_number_that_no_float_holds_is_refused(kind: str, number: str) -> None:
    """Once such a number became infinite, which in JSON is a text."""
    decimal = f'{{"field":"d","type":"bytes","optional":true,"name":"{s.DECIMAL}"'
    for more in ("", f',{decimal},"parameters":{{"scale":"0"}}}}'):  # parsed to the digit
        data = (
            f'{{"schema":{{"type":"struct","fields":[{{"field":"f","type":"{kind}"}}{more}]}},'
            f'"payload":{{"f":{number}}}}}'
        )
        with pytest.raises(DataError, match=r"field f: .* too large for FLOAT"):
            make_converter("JsonConverter", {}, is_key=False).to_connect("t", data.encode())


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_text_of_a_float32_is_the_shortest_that_reads_back(value: float) -> None:
    text = java_float(value)
    assert nearest_single(float(text)) == value
    digits = text.lstrip("-").partition("E")[0].replace(".", "").strip("0")
    for count in range(len(digits) - 1):
        if len(digits) > 2:
            try:
                assert nearest_single(float(f"{value:.{count}e}")) != value
            except OverflowError:
                continue


def test_a_value_that_does_not_fit_names_its_field() -> None:
    schema = s.struct({"a": s.array(s.struct({"b": s.INT8}))})
    for name in ("TypedConverter", "JsonConverter", "StringConverter"):
        converter = make_converter(name, {}, is_key=False)
        with pytest.raises(DataError, match=r"value\.a\[1\]\.b is 300, expected -128 to 127"):
            converter.from_connect("t", {"a": [{"b": 1}, {"b": 300}]}, schema)
    bad = b'{"schema":%s,"payload":{"a":[{"b":1},{"b":"x"}]}}'
    text = (
        b'{"type":"struct","fields":[{"field":"a","type":"array","items":'
        b'{"type":"struct","fields":[{"field":"b","type":"int8"}]}}]}'
    )
    with pytest.raises(DataError, match=r"field a: field b: Invalid type for INT8: str"):
        make_converter("JsonConverter", {}, is_key=False).to_connect("t", bad % text)


def test_a_value_without_a_schema_names_the_place_that_has_no_form() -> None:
    with pytest.raises(DataError, match=r"type Decimal has no form .* at value\.a\[1\]"):
        make_converter("JsonConverter", {}, is_key=False).from_connect(
            "t", {"a": [1, s.to_logical(s.decimal_of(2), 150)]}
        )


@pytest.mark.parametrize("value", [object(), {1, 2}, Schema(SchemaType.INT8), ValueError("x")])
def test_text_refuses_what_has_none(value: Any) -> None:
    """Seen in a sink's file: <object object at 0x7fb2a32c53d0>."""
    for name in ("StringConverter", "TypedConverter"):
        converter = make_converter(name, {}, is_key=False)
        with pytest.raises(DataError, match="has no form in text"):
            converter.from_connect("t", value)
        with pytest.raises(DataError, match="has no form in JSON"):
            converter.from_connect("t", {"a": value})


def test_text_of_numbers_and_times() -> None:
    converter = make_converter("StringConverter", {}, is_key=False)
    assert converter.from_connect("t", s.to_logical(s.decimal_of(2), 150)) == b"1.50"
    assert converter.from_connect("t", datetime.date(2024, 2, 29)) == b"2024-02-29"
    assert converter.from_connect("t", {"at": datetime.time(1, 2)}) == b'{"at":"01:02:00"}'
    assert text_of(s.decimal_of(2), s.to_logical(s.decimal_of(2), 150)) == "1.50"


def test_bytes_that_look_typed_stay_bytes() -> None:
    converter = make_converter("TypedConverter", {}, is_key=False)
    assert converter.from_connect("t", "text") == b"text"
    for value in (b"\xff", b"\xff\x01\x00\x00\x00\x00"):
        data = converter.from_connect("t", value)
        assert data is not None and data != value
        assert converter.to_connect_data("t", data) == (s.BYTES, value)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\xff\x02\x00\x00\x00\x01{}",
        b"\xff\x01\x00\x00\x00\x09{}1",
        b"\xff\x01\x00\x00\x00\x02{}1",
        b"\xff\x01\x00\x00\x00\x04null1",
        b'\xff\x01\x00\x00\x00\x0f{"type":"int8"}',
        b'\xff\x01\x00\x00\x00\x0f{"type":"int8"}300',
    ],
)
def test_damaged_typed_values_are_refused(data: bytes) -> None:
    with pytest.raises(DataError):
        make_converter("TypedConverter", {}, is_key=False).to_connect("t", data)


@pytest.mark.parametrize(
    ("name", "unit", "zone", "value", "text"),
    [
        (UNIT_TIMESTAMP, "ns", None, 1_000_000_001, "1970-01-01T00:00:01.000000001"),
        (UNIT_TIMESTAMP, "us", "Europe/Berlin", 1_500_000, "1970-01-01T00:00:01.500000+00:00"),
        (UNIT_TIMESTAMP, "s", None, 253_402_300_800, "+10000-01-01T00:00:00"),
        (UNIT_TIMESTAMP, "s", None, -62_135_596_801, "0000-12-31T23:59:59"),
        (UNIT_TIMESTAMP, "ms", None, -1, "1969-12-31T23:59:59.999000"),
        (UNIT_TIME, "ns", None, 789, "00:00:00.000000789"),
        (DURATION, "ms", None, -1_500, "-1.5"),
        (DURATION, "ns", None, 90_000_000_000, "90.0"),
    ],
)
def test_times_of_other_units_as_text(
    name: str, unit: str, zone: str | None, value: int, text: str
) -> None:
    assert time_text(time_schema(name, unit, zone), value) == text


@given(st.datetimes())
def test_text_of_a_timestamp_is_that_of_python(at: datetime.datetime) -> None:
    micros = (at - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    assert time_text(time_schema(UNIT_TIMESTAMP, "us"), micros) == at.isoformat()
