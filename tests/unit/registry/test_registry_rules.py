"""Ids, subjects and refusals of a registry. Each error says what is wrong, where, and what to
do."""

import struct
from dataclasses import replace
from typing import Any

import pytest
from support.registry.memory import MemorySchemas, converter

from headgate.connector import schema as s
from headgate.connector.config import ConfigError
from headgate.connector.data_error import DataError
from headgate.connector.schema import Schema
from headgate.connector.schema_registry import (
    RegistryUnreachableError,
    SchemaRefusedError,
    UnknownSchemaError,
)

FORMATS = ["AvroConverter", "JsonSchemaConverter", "ProtobufConverter"]
ONE = s.struct({"a": s.INT32}, name="x.R")


def test_a_value_has_a_zero_and_the_id_of_its_schema_in_front() -> None:
    schemas = MemorySchemas()
    data = converter("AvroConverter", schemas).from_connect("t", {"a": 3}, ONE)
    assert data == struct.pack(">bI", 0, 1) + b"\x06"
    assert list(schemas.subjects) == ["t-value"]


def test_protobuf_has_the_path_of_its_message_behind_the_id() -> None:
    data = converter("ProtobufConverter", MemorySchemas()).from_connect("t", {"a": 3}, ONE)
    assert data == struct.pack(">bI", 0, 1) + b"\0" + b"\x08\x03"


@pytest.mark.parametrize(
    ("strategy", "is_key", "subject"),
    [
        ("io.confluent.kafka.serializers.subject.TopicNameStrategy", True, "t-key"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", False, "x.R"),
        ("TopicRecordNameStrategy", True, "t-x.R"),
    ],
)
@pytest.mark.parametrize("name", FORMATS)
def test_subjects(name: str, strategy: str, is_key: bool, subject: str) -> None:
    schemas = MemorySchemas()
    config = {f"{'key' if is_key else 'value'}.subject.name.strategy": strategy}
    converter(name, schemas, config, is_key=is_key).from_connect("t", {"a": 1}, ONE)
    assert list(schemas.subjects) == [subject]


def test_a_strategy_by_record_refuses_a_value_that_is_none() -> None:
    config = {"value.subject.name.strategy": "RecordNameStrategy"}
    with pytest.raises(DataError, match="the value of topic t is no record with a name"):
        converter("AvroConverter", MemorySchemas(), config).from_connect("t", "x", s.STRING)


CHANGES: list[tuple[Schema, str]] = [
    (s.struct({"a": s.INT32, "b": s.STRING}, name="x.R"), "value.b is new and has no default"),
    (s.struct({"a": s.STRING}, name="x.R"), "value.a was"),
    (s.struct({"a": s.INT32}, name="x.Q"), "name"),
]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("schema", "told"), CHANGES)
def test_a_schema_that_cannot_read_the_last_one_is_refused(
    name: str, schema: Schema, told: str
) -> None:
    made = converter(name, MemorySchemas())
    made.from_connect("t", {"a": 1}, ONE)
    value = {"a": "x"} if "was" in told else {"a": 1, "b": ""} if "new" in told else {"a": 1}
    with pytest.raises(SchemaRefusedError) as found:
        made.from_connect("t", value, schema)
    assert "subject t-value" in str(found.value)
    assert told in str(found.value)


@pytest.mark.parametrize("name", FORMATS)
def test_a_new_optional_field_is_taken(name: str) -> None:
    schemas = MemorySchemas()
    made = converter(name, schemas)
    made.from_connect("t", {"a": 1}, ONE)
    wider = s.struct({"a": s.INT32, "b": s.STRING.as_optional()}, name="x.R")
    data = made.from_connect("t", {"a": 1, "b": "x"}, wider)
    assert [one.version for one in schemas.versions("t-value")] == [1, 2]
    assert made.to_connect_data("t", data).value == {"a": 1, "b": "x"}


def test_an_avro_field_that_becomes_wider_is_taken_and_another_scale_is_not() -> None:
    made = converter("AvroConverter", MemorySchemas())
    made.from_connect("t", {"a": 1}, ONE)
    made.from_connect("t", {"a": 1}, s.struct({"a": s.INT64}, name="x.R"))
    made.from_connect("d", {"a": None}, s.struct({"a": s.decimal_of(1).as_optional()}, name="x.R"))
    with pytest.raises(
        SchemaRefusedError, match="decimal of scale 1 and is now decimal of scale 2"
    ):
        made.from_connect(
            "d", {"a": None}, s.struct({"a": s.decimal_of(2).as_optional()}, name="x.R")
        )


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x01\0\0\0\x01x", "Unknown magic byte! It is 0x01"),
        (b"\0\0\0", "3 bytes, expected at least 5"),
        (b"\0\0\0\x01\xff", "no schema of id 511"),
    ],
)
def test_bytes_of_another_converter_are_refused(name: str, data: bytes, told: str) -> None:
    with pytest.raises(DataError) as found:
        converter(name, MemorySchemas()).to_connect_data("t", data)
    assert told in str(found.value)


@pytest.mark.parametrize("name", FORMATS)
def test_a_value_that_is_cut_short_or_too_long_is_refused(name: str) -> None:
    made = converter(name, MemorySchemas())
    row = s.struct({"a": s.STRING, "b": s.INT64}, name="x.R")
    data = made.from_connect("t", {"a": "long enough", "b": 1}, row)
    assert data is not None
    for wrong in (data[:-4], data + b"\x01"):
        with pytest.raises(DataError, match="schema id 1"):
            made.to_connect_data("t", wrong)


def test_a_schema_of_another_type_names_it() -> None:
    schemas = MemorySchemas()
    data = converter("AvroConverter", schemas).from_connect("t", {"a": 1}, ONE)
    with pytest.raises(DataError, match="schema id 1 is of type AVRO, expected JSON"):
        converter("JsonSchemaConverter", schemas).to_connect_data("t", data)


@pytest.mark.parametrize("name", FORMATS)
def test_without_registering_an_unknown_schema_is_refused(name: str) -> None:
    config = {"auto.register.schemas": "false"}
    with pytest.raises(UnknownSchemaError, match=r"auto\.register\.schemas is false"):
        converter(name, MemorySchemas(), config).from_connect("t", {"a": 1}, ONE)


@pytest.mark.parametrize("name", FORMATS)
def test_values_are_written_with_the_newest_schema_where_that_holds_them(name: str) -> None:
    schemas = MemorySchemas()
    more = s.struct({"a": s.INT32, "b": replace(s.STRING, default="new")}, name="x.R")
    converter(name, schemas).from_connect("t", {"a": 1, "b": "x"}, more)
    config = {"auto.register.schemas": "false", "use.latest.version": "true"}
    made = converter(name, schemas, config)
    data = made.from_connect("t", {"a": 7}, ONE)
    read = made.to_connect_data("t", data)
    assert read == (more, {"a": 7, "b": "new"})
    for schema, value, told in (
        (s.struct({"a": s.INT32, "lost": s.INT8}, name="x.R"), {"a": 1, "lost": 1}, "value.lost"),
        (s.struct({"a": s.STRING}, name="x.R"), {"a": "x"}, "value.a"),
        (s.struct({"a": s.INT32.as_optional()}, name="x.R"), {"a": None}, "value.a may be null"),
    ):
        with pytest.raises(DataError) as found:
            made.from_connect("t", value, schema)
        assert told in str(found.value)


CONFIGS: list[tuple[dict[str, str], str]] = [
    ({}, "schema.registry.url: is missing; name a registry"),
    ({"schema.registry.url": "embedded:"}, "is the registry that headgate up has"),
    ({"schema.registry.url": "localhost:8081"}, "expected http://host:port"),
    ({"schema.registry.url": "http://u:secret@", "x": ""}, "expected http://host:port"),
    ({"schema.registry.url": "http://h", "use.latest.version": "true"}, "auto.register.schemas"),
    (
        {"schema.registry.url": "http://h", "basic.auth.credentials.source": "USER_INFO"},
        "basic.auth.user.info",
    ),
    (
        {"schema.registry.url": "http://h", "schema.registry.ssl.truststore.type": "JKS"},
        "schema.registry.ssl.truststore.type",
    ),
    (
        {"schema.registry.url": "https://h", "schema.registry.ssl.truststore.location": "/no/file"},
        "there is no such file, expected one in PEM",
    ),
    ({"schema.registry.url": "http://h", "value.subject.name.strategy": "Mine"}, "must be one of"),
]


@pytest.mark.parametrize(("config", "told"), CONFIGS)
def test_configs_that_cannot_work_say_so(config: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as found:
        converter("AvroConverter", None, config)
    assert told in str(found.value)
    assert "secret" not in str(found.value)


@pytest.mark.parametrize(
    "config",
    [
        {"schema.registry.url": "http://user:pass-word@127.0.0.1:9"},
        {
            "schema.registry.url": "http://127.0.0.1:9",
            "basic.auth.credentials.source": "USER_INFO",
            "basic.auth.user.info": "user:pass-word",
        },
    ],
)
def test_a_registry_that_is_down_is_no_fault_of_the_record(
    config: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    made = converter("AvroConverter", None, {**config, "max.retries": "0"})
    calls: list[Any] = [
        lambda: made.from_connect("t", {"a": 1}, ONE),
        lambda: made.to_connect_data("t", b"\0\0\0\0\1x"),
    ]
    for call in calls:
        with pytest.raises(RegistryUnreachableError) as found:
            call()
        text = str(found.value)
        assert "http://127.0.0.1:9 does not answer" in text
        assert "no record is lost" in text
        assert "pass-word" not in text + caplog.text
