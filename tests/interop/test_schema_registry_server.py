"""Our converters and Confluent's own deserializers for Python use a third party's registry."""

import json
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.grpc.pem import make_pem
from support.registry.gate import USER_INFO, gate
from support.registry.memory import converter
from support.registry.server import schema_registry  # noqa: F401

from headgate.connector import schema as s
from headgate.connector.schema_registry import (
    RegistryUnreachableError,
    SchemaRefusedError,
    UnknownSchemaError,
)
from headgate_registry.base import FormatConverter

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]
Make = Callable[..., FormatConverter]
ROW = s.struct(
    {
        "id": s.INT64,
        "name": s.STRING.as_optional(),
        "price": s.decimal_of(2),
        "tags": s.array(s.STRING),
    },
    name="shop.Row",
)


@pytest.fixture
def make(schema_registry: str) -> Make:  # noqa: F811
    def made(name: str, config: Mapping[str, str] | None = None) -> FormatConverter:
        given = {"schema.registry.url": schema_registry, **(config or {})}
        return converter(name, None, given)

    return made


def row() -> dict[str, Any]:
    from decimal import Decimal

    return {"id": 7, "name": None, "price": Decimal("-12.50"), "tags": ["a"]}


@pytest.mark.parametrize("name", ["AvroConverter", "JsonSchemaConverter", "ProtobufConverter"])
def test_what_one_process_writes_another_reads(make: Make, name: str) -> None:
    topic = f"plain-{name}"
    data = make(name).from_connect(topic, row(), ROW)
    read = make(name).to_connect_data(topic, data)
    assert (read.schema, read.value) == (ROW, row())
    again = make(name).from_connect(topic, row(), ROW)
    assert again == data  # the schema has one id


def test_confluents_deserializer_reads_our_avro(
    make: Make,
    schema_registry: str,  # noqa: F811
) -> None:
    data = make("AvroConverter").from_connect("avro", row(), ROW)
    client = SchemaRegistryClient({"url": schema_registry})
    read = AvroDeserializer(client)(data, SerializationContext("avro", MessageField.VALUE))
    assert read == row()


def test_confluents_deserializer_reads_our_json(
    make: Make,
    schema_registry: str,  # noqa: F811
) -> None:
    data = make("JsonSchemaConverter", {"decimal.format": "NUMERIC"}).from_connect(
        "json", row(), ROW
    )
    assert data is not None
    client = SchemaRegistryClient({"url": schema_registry})
    text = client.get_latest_version("json-value").schema.schema_str
    jsonschema.validate(json.loads(data[5:]), json.loads(text))
    read = JSONDeserializer(text)(data, SerializationContext("json", MessageField.VALUE))
    assert read == {"id": 7, "name": None, "price": -12.5, "tags": ["a"]}


def test_a_refused_schema_names_the_subject_and_the_reason(
    make: Make,
    schema_registry: str,  # noqa: F811
) -> None:
    made = make("AvroConverter")
    made.from_connect("strict", {"a": 1}, s.struct({"a": s.INT32}, name="R"))
    level = urllib.request.Request(
        f"{schema_registry}/config/strict-value",
        method="PUT",
        data=b'{"compatibility":"BACKWARD"}',
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(level).read()
    wider = s.struct({"a": s.INT32, "b": s.STRING}, name="R")
    with pytest.raises(SchemaRefusedError, match="subject strict-value"):
        made.from_connect("strict", {"a": 1, "b": "x"}, wider)


def test_an_unknown_id_is_named(make: Make) -> None:
    with pytest.raises(UnknownSchemaError, match="schema id 65535"):
        make("AvroConverter").to_connect_data("t", b"\0\0\0\xff\xffx")


@pytest.mark.parametrize("name", ["AvroConverter", "JsonSchemaConverter", "ProtobufConverter"])
def test_behind_tls_and_a_password(
    schema_registry: str,  # noqa: F811
    name: str,
    tmp_path: Path,
) -> None:
    """Another reads with its own client, without them."""
    pem = make_pem(tmp_path)
    both = tmp_path / "both.pem"
    both.write_text((pem / "client.key").read_text() + (pem / "client.pem").read_text())
    topic = f"gate-{name}"
    with gate(pem, schema_registry, client_ca="ca") as url:
        config = {
            "schema.registry.url": url,
            "schema.registry.ssl.truststore.location": str(pem / "ca.pem"),
            "schema.registry.ssl.keystore.location": str(both),
            "basic.auth.credentials.source": "USER_INFO",
            "basic.auth.user.info": USER_INFO,
        }
        data = converter(name, None, config).from_connect(topic, row(), ROW)
        assert converter(name, None, config).to_connect_data(topic, data).value == row()
        with pytest.raises(RegistryUnreachableError, match="refuses the user"):
            wrong = {**config, "basic.auth.user.info": "bob:wrong"}
            converter(name, None, wrong).to_connect_data(topic, data)
    plain = converter(name, None, {"schema.registry.url": schema_registry})
    read = plain.to_connect_data(topic, data)
    assert (read.schema, read.value) == (ROW, row())
