"""JsonSchemaConverter writes the documents of Java's JsonConverter, and a Java validator accepts
them under the schema that is registered for them.

Java's own converter is not in Maven Central. It writes values as JsonConverter does, except maps
whose keys are no texts.
"""

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.data.typed_values import nulls_filled, typed_values
from support.data.valid_names import named
from support.depth import everything, tries
from support.java.asking import JavaProgram
from support.registry.memory import MemorySchemas, converter

from headgate.connector.converters import make_converter
from headgate.connector.data_error import DataError
from headgate.connector.schema import DECIMAL, Schema, SchemaType, logical_type
from local_kafka.jars import FORMATS

HEAD = b"\0\0\0\0\1"
"""Stands before a document: the magic byte and the schema's id."""
ENVELOPE = make_converter("JsonConverter", {"replace.null.with.default": "false"}, is_key=False)


@pytest.fixture(scope="module")
def validator(java_program: Callable[..., "subprocess.Popen[str]"]) -> JavaProgram:
    return JavaProgram(java_program("JsonSchemas", more=FORMATS))


@pytest.fixture(scope="module")
def java(java_program: Callable[..., "subprocess.Popen[str]"]) -> JavaProgram:
    return JavaProgram(java_program("JsonConverterBytes"))


def with_pairs(schema: Schema, value: Any) -> Any:
    """A document of JsonConverter with its maps as JSON Schema has them."""
    keys, items = schema.key_schema, schema.value_schema
    if value is None:
        return None
    if schema.type is SchemaType.STRUCT:
        return {one.name: with_pairs(one.schema, value[one.name]) for one in schema.fields}
    if schema.type is SchemaType.ARRAY and items is not None:
        return [with_pairs(items, one) for one in value]
    if schema.type is not SchemaType.MAP or keys is None or items is None:
        return value
    if keys.type is SchemaType.STRING:
        return {key: with_pairs(items, one) for key, one in value.items()}
    return [{"key": with_pairs(keys, key), "value": with_pairs(items, one)} for key, one in value]


def broken(schema: Schema, document: Any, chance: random.Random) -> Any:
    """The document with a value of a wrong type at a random place, in JSON's terms."""
    keys, items = schema.key_schema, schema.value_schema
    inner: list[Callable[[], Any]] = []
    if document is not None and schema.type is SchemaType.STRUCT:
        inner = [
            lambda one=one: {**document, one.name: broken(one.schema, document[one.name], chance)}
            for one in schema.fields
        ]
    elif document and schema.type is SchemaType.ARRAY and items is not None:
        inner = [lambda: [broken(items, document[0], chance), *document[1:]]]
    elif document and schema.type is SchemaType.MAP and keys is not None and items is not None:
        if isinstance(document, dict):
            name, one = next(iter(document.items()))
            inner = [lambda: {**document, name: broken(items, one, chance)}]
        else:
            pair = document[0]
            inner = [
                lambda: [{**pair, "key": broken(keys, pair["key"], chance)}, *document[1:]],
                lambda: [{**pair, "value": broken(items, pair["value"], chance)}, *document[1:]],
            ]
    if inner and chance.random() < 0.8:
        return chance.choice(inner)()
    is_text = schema.type in (SchemaType.STRING, SchemaType.BYTES)
    return 7 if is_text and logical_type(schema) != DECIMAL else "seven"


def test_documents_are_java_s_and_valid_under_the_schema(
    java: JavaProgram, validator: JavaProgram
) -> None:
    counts: Counter[str] = Counter()

    @settings(
        max_examples=tries(60, 2000),
        derandomize=not everything(),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(typed_values(), st.randoms())
    def alike(typed: tuple[Schema, Any], chance: random.Random) -> None:
        schema, value = named(*typed)
        numbers = chance.choice(["NUMERIC", "BASE64"])
        if value is None:
            return
        memory = MemorySchemas()
        config = {"decimal.format": numbers}
        made = converter("JsonSchemaConverter", memory, config)
        try:
            data = made.from_connect("t", value, schema)
        except DataError as error:
            counts[f"refused: {error}"] += 1
            return
        assert data is not None and data.startswith(HEAD)
        envelope = ENVELOPE.from_connect("t", value, schema)
        assert envelope is not None
        plain = {**config, "schemas.enable": "false"}
        theirs = java.ask(do="again", config=plain, bytes=envelope.hex())
        assert not isinstance(theirs, dict), theirs
        document = json.loads(data[len(HEAD) :], parse_float=str)
        java_s = json.loads(bytes.fromhex(theirs[0]), parse_float=str)
        assert document == with_pairs(schema, java_s)

        text = json.dumps(with_pairs(schema, json.loads(bytes.fromhex(theirs[0]))))
        read = converter("JsonSchemaConverter", memory, config)
        if numbers == "BASE64":
            back = read.to_connect_data("t", HEAD + text.encode())
            assert (back.schema, back.value) == (schema, nulls_filled(schema, value, True))
        else:
            wrong = json.dumps(broken(schema, json.loads(data[len(HEAD) :]), chance))
            documents = [data[len(HEAD) :].decode(), wrong]
            good, bad = validator.ask(schema=memory.schemas[0].text, documents=documents)
            assert good == [], memory.schemas[0].text
            assert bad != [], (memory.schemas[0].text, wrong)
        counts[numbers] += 1

    alike()
    print(counts)
    assert min(counts["NUMERIC"], counts["BASE64"]) > tries(60, 2000) / 5, counts
