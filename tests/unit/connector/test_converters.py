"""Converters, header converters and the JSON envelope."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.connector.api import DataError
from headgate.connector.config import ConfigError
from headgate.connector.converters import (
    CONVERTERS,
    HEADER_CONVERTERS,
    SimpleHeaderConverter,
    make_converter,
    make_header_converter,
    task_converters,
)


def needs_registry(name: str) -> bool:
    return any(kind in name for kind in ("Avro", "JsonSchema", "Protobuf"))


def converter(name: str, **config: str) -> Any:
    keys = {key.replace("_", "."): value for key, value in config.items()}
    return make_converter(name, keys, is_key=False)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ("é", "é".encode()),
        (None, None),
        (True, b"true"),
        (12, b"12"),
        (1e10, b"1.0E10"),
        ({"a": [1, None]}, b'{"a":[1,null]}'),
        (b"raw", b"raw"),
    ],
)
def test_text(value: Any, data: bytes | None) -> None:
    assert (
        converter("org.apache.kafka.connect.storage.StringConverter").from_connect("t", value)
        == data
    )


def test_text_that_is_none() -> None:
    with pytest.raises(DataError, match="Failed to deserialize string"):
        converter("StringConverter").to_connect("t", b"\xff")
    with pytest.raises(DataError, match="Failed to serialize to a string"):
        converter("StringConverter").from_connect("t", "\ud800")
    with pytest.raises(ConfigError, match=r"converter\.encoding"):
        converter("StringConverter", converter_encoding="latin1")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda x: st.lists(x, max_size=3)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), x, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(JSON, st.sampled_from(["true", "false"]))
def test_json_comes_back(value: Any, envelope: str) -> None:
    subject = converter("JsonConverter", schemas_enable=envelope)
    assert subject.to_connect("t", subject.from_connect("t", value)) == value


def test_json_bytes() -> None:
    plain = converter("org.apache.kafka.connect.json.JsonConverter", schemas_enable="false")
    assert plain.from_connect("t", {"é": [1, 1.5, b"\x00"]}) == '{"é":[1,1.5,"AA=="]}'.encode()
    assert plain.from_connect("t", None) is None
    assert plain.to_connect("t", b"") is None
    envelope = converter("JsonConverter")
    assert envelope.from_connect("t", {"a": 1}) == b'{"schema":null,"payload":{"a":1}}'
    assert envelope.from_connect("t", 1 << 63) == b'{"schema":null,"payload":%d}' % (1 << 63)
    line = b'{"schema":{"type":"string","optional":false},"payload":"a"}'
    assert envelope.from_connect("t", "a") == line
    assert envelope.from_connect("t", None) is None
    assert envelope.to_connect("t", b"") is None


@pytest.mark.parametrize("data", [b"{", b"NaN", b"\xff", b"1 2", b"[" * 100_000])
def test_json_that_is_none(data: bytes) -> None:
    with pytest.raises(DataError, match="failed due to serialization error"):
        converter("JsonConverter").to_connect("t", data)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_values_without_a_form_in_json(value: Any) -> None:
    with pytest.raises(DataError, match="failed due to serialization error"):
        converter("JsonConverter").from_connect("t", value)


SCHEMA = {
    "type": "struct",
    "fields": [
        {"field": "n", "type": "int32"},
        {"field": "raw", "type": "bytes", "optional": True},
        {"field": "word", "type": "string", "default": "none"},
        {"field": "list", "type": "array", "items": {"type": "double"}, "optional": True},
        {"field": "map", "type": "map", "keys": {"type": "int64"},
         "values": {"type": "boolean"}, "optional": True},
    ],
}  # fmt: skip


def opened(payload: Any, schema: Any = SCHEMA, **config: str) -> Any:
    data = json.dumps({"schema": schema, "payload": payload}).encode()
    return converter("JsonConverter", schemas_enable="true", **config).to_connect("t", data)


def test_an_envelope_is_read_by_its_schema() -> None:
    payload = {"n": 1, "raw": "AP8=", "word": None, "list": [1, 2.5], "map": [[1, True]]}
    assert opened(payload) == {
        "n": 1, "raw": b"\x00\xff", "word": "none", "list": [1, 2.5], "map": {1: True},
    }  # fmt: skip
    assert opened({"n": 1}) == {"n": 1, "raw": None, "word": "none", "list": None, "map": None}


@pytest.mark.parametrize(
    ("payload", "schema", "message"),
    [
        ({"word": "x"}, SCHEMA, "Invalid null value for required INT32 field"),
        ({"n": "1"}, SCHEMA, "Invalid type for INT32: str"),
        ({"n": True}, SCHEMA, "Invalid type for INT32: bool"),
        ([1], SCHEMA, "Structs should be encoded as JSON objects, but found list"),
        ({"n": 1, "raw": "%"}, SCHEMA, "Invalid bytes field"),
        ({"n": 1, "map": [[1]]}, SCHEMA, "Found invalid map entry"),
        ({"n": 1, "map": [[1, True], [1, False]]}, SCHEMA, "A map has the key 1 twice"),
        (1, {"type": "what"}, "Unknown schema type: what"),
        (1, {}, "Schema must contain 'type' field"),
        (1, 5, "Schema must be a JSON object"),
    ],
)
def test_envelopes_that_do_not_fit(payload: Any, schema: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        opened(payload, schema)


def test_defaults_may_be_left_out() -> None:
    with pytest.raises(DataError, match="Invalid null value for required STRING field"):
        opened({"n": 1, "word": None}, replace_null_with_default="false")
    with pytest.raises(DataError, match='requires "schema" and "payload" fields'):
        converter("JsonConverter", schemas_enable="true").to_connect("t", b'{"a":1}')


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("Integer", -2, b"\xff\xff\xff\xfe"),
        ("Long", 1, b"\x00" * 7 + b"\x01"),
        ("Short", 1, b"\x00\x01"),
        ("Double", 1.0, b"\x3f\xf0" + b"\x00" * 6),
        ("Float", 1.0, b"\x3f\x80\x00\x00"),
        ("Boolean", True, b"\x01"),
        ("ByteArray", b"x", b"x"),
    ],
)
def test_fixed_forms(name: str, value: Any, data: bytes) -> None:
    package = "org.apache.kafka.connect.converters."
    subject = converter(f"{package}{name}Converter")
    assert subject.from_connect("t", value) == data
    assert subject.to_connect("t", data) == value
    assert subject.from_connect("t", None) is None
    assert subject.to_connect("t", None) is None
    with pytest.raises(DataError):
        subject.from_connect("t", "text")
    if name != "ByteArray":
        with pytest.raises(DataError):
            subject.to_connect("t", b"\x07\x07\x07")


def test_a_number_out_of_range() -> None:
    with pytest.raises(DataError, match="Failed to serialize to a integer"):
        converter("IntegerConverter").from_connect("t", 1 << 31)


def test_names_of_classes() -> None:
    for name in CONVERTERS:
        if not needs_registry(name):
            make_converter(name, {}, is_key=True)
    with pytest.raises(ConfigError, match="Class nope could not be found") as refused:
        make_converter("nope", {}, is_key=True)
    assert "org.apache.kafka.connect.converters.BooleanConv" in str(refused.value)
    with pytest.raises(ConfigError, match=r"header\.converter: Class nope") as refused:
        make_header_converter("nope", {})
    assert "org.apache.kafka.connect.storage.SimpleHeaderConverter" in str(refused.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", b"plain"),
        (5, b"5"),
        (1.5, b"1.5"),
        (True, b"true"),
        (None, None),
        ([1, "a"], b'[1,"a"]'),
        ({"a": 1}, b'{"a":1}'),
        ("007", b"007"),
        ("-", b"-"),
        ("1e5", b"1e5"),
        ("[x", b"[x"),
        ("", b""),
    ],
)
def test_headers_to_text_and_back(value: Any, text: bytes | None) -> None:
    subject = SimpleHeaderConverter()
    assert subject.from_connect("t", (("h", value),)) == (("h", text),)
    assert subject.to_connect("t", (("h", text),)) == (("h", value),)


def test_the_text_null_in_a_header_is_read_as_a_null() -> None:
    assert SimpleHeaderConverter().to_connect("t", (("h", b"null"),)) == (("h", None),)


@pytest.mark.parametrize(
    "name", sorted(name for name in HEADER_CONVERTERS if not needs_registry(name))
)
def test_a_header_without_a_value_is_a_null_both_ways(name: str) -> None:
    """An empty value is another thing, where the converter has empty values."""
    subject = make_header_converter(name, {})
    assert subject.to_connect("t", (("h", None), ("", None))) == (("h", None), ("", None))
    assert subject.from_connect("t", (("h", None), ("", None))) == (("h", None), ("", None))


@pytest.mark.parametrize("class_name", ["SimpleHeaderConverter", "StringConverter"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (None, "the name of a header is None, expected text"),
        (b"h", "the name of a header is b'h', expected text"),
        (1, "the name of a header is 1, expected text"),
        ("\ud800", r"the name '\\ud800' of a header has no UTF-8"),
        ("a\0b", r"the name 'a\\x00b' of a header has a NUL"),
    ],
)
def test_a_header_whose_name_kafka_cannot_keep_is_a_data_error(
    class_name: str, name: Any, text: str
) -> None:
    """confluent_kafka writes None as ``None``, cuts at a NUL and dies of a lone surrogate."""
    subject = make_header_converter(class_name, {})
    with pytest.raises(DataError, match=text):
        subject.from_connect("t", ((name, "x"),))
    assert subject.from_connect("t", (("ü", "x"), ("", "x"))) == (("ü", b"x"), ("", b"x"))


def test_headers_that_are_no_text_stay_bytes() -> None:
    assert SimpleHeaderConverter().to_connect("t", (("h", b"\xff"),)) == (("h", b"\xff"),)


def test_a_task_takes_the_connectors_converters_before_the_workers() -> None:
    worker = {"key.converter": "Long", "value.converter": "JsonConverter",
              "value.converter.schemas.enable": "false"}  # fmt: skip
    found = task_converters({"key.converter": " StringConverter "}, worker)
    assert found.key.from_connect("t", 1) == b"1"
    assert found.value.from_connect("t", {}) == b"{}"
    # The worker's keys below a converter are not those of the connector's own.
    own = task_converters({"value.converter": "JsonConverter", "header.converter": "Long"}, worker)
    assert own.value.from_connect("t", {}) == b'{"schema":null,"payload":{}}'
    assert own.header.from_connect("t", (("h", 1),)) == (("h", b"\x00" * 7 + b"\x01"),)
