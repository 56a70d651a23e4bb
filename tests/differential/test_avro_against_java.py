"""AvroConverter's schemas and bytes are those of Java's AvroData, both ways."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from support.data.typed_values import typed_values
from support.data.valid_names import named
from support.depth import everything, tries
from support.java.asking import JavaProgram
from support.registry.memory import MemorySchemas, converter

from headgate.connector.converters import make_converter
from headgate.connector.data_error import DataError
from headgate.connector.schema import Field, Schema, SchemaType
from headgate.connector.schema_registry import RegisteredSchema
from local_kafka.jars import AVRO

ENVELOPE = make_converter("JsonConverter", {"replace.null.with.default": "false"}, is_key=False)


@pytest.fixture(scope="module")
def java(java_program: Callable[..., "subprocess.Popen[str]"]) -> JavaProgram:
    return JavaProgram(java_program("AvroConverterBytes", more=AVRO))


def ours(schema: Schema, value: Any) -> tuple[Any, bytes] | DataError:
    memory = MemorySchemas()
    try:
        data = converter("AvroConverter", memory).from_connect("t", value, schema)
    except DataError as error:
        return error
    assert data is not None
    return json.loads(memory.schemas[0].text), data[5:]


def default_that_java_loses(schema: Schema) -> bool:
    """Java loses the default of a list that has a null in it, or bytes that have a default of their
    own. It writes the default of a map as pairs, which it does not read again."""
    parts = [schema.key_schema, schema.value_schema, *[one.schema for one in schema.fields]]
    own = schema.default is not None and schema.type in (SchemaType.ARRAY, SchemaType.MAP)
    return own or any(part is not None and default_that_java_loses(part) for part in parts)


def entries(schema: Schema) -> list[tuple[Schema, Schema]]:
    """Unlike entries of the maps without a name whose keys are no texts. Java calls all of them
    MapEntry: with two of them it writes a schema that means something else than its bytes."""
    found: list[tuple[Schema, Schema]] = []
    keys, values = schema.key_schema, schema.value_schema
    for part in (keys, values, *[one.schema for one in schema.fields]):
        found += [one for one in (entries(part) if part is not None else []) if one not in found]
    if schema.type is SchemaType.MAP and schema.name is None:
        assert keys is not None and values is not None
        texts = keys.type is SchemaType.STRING and not keys.optional
        if not texts and (keys, values) not in found:
            found.append((keys, values))
    return found


def test_schemas_and_bytes_are_java_s(java: JavaProgram) -> None:
    """Where both can write a schema, they write the same one. Where we refuse one, Java refuses it
    too, or the documentation names the difference."""
    counts = {"same": 0, "refused": 0, "ours alone": 0}

    # Rare differences of defaults are looked for by `make test-all`.
    @settings(
        max_examples=tries(60, 2000),
        derandomize=not everything(),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(typed_values())
    def alike(typed: tuple[Schema, Any]) -> None:
        schema, value = named(*typed)
        if value is None or default_that_java_loses(schema) or len(entries(schema)) > 1:
            return
        envelope = ENVELOPE.from_connect("t", value, schema)
        assert envelope is not None
        theirs = java.ask(do="write", config={}, bytes=envelope.hex())
        mine = ours(schema, value)
        if "refused" in theirs:
            counts["refused" if isinstance(mine, DataError) else "ours alone"] += 1
            return
        if isinstance(mine, DataError) and "one for each name" in str(mine):
            counts["refused"] += 1  # Java writes the first of them in place of the others
            return
        assert not isinstance(mine, DataError), (str(mine), theirs)
        assert mine[0] == json.loads(theirs["schema"])
        assert mine[1].hex() == theirs["bytes"]
        counts["same"] += 1
        back = java.ask(do="read", config={}, schema=json.dumps(mine[0]), bytes=theirs["bytes"])
        memory = MemorySchemas()
        memory.add("t-value", RegisteredSchema("AVRO", theirs["schema"]), 0)
        read = converter("AvroConverter", memory).to_connect_data("t", b"\0\0\0\0\1" + mine[1])
        again = ENVELOPE.from_connect("t", read.value, read.schema)
        assert again is not None
        assert json.loads(again) == json.loads(bytes.fromhex(back["bytes"]))

    alike()
    assert counts["same"] > tries(60, 2000) / 4, counts
    print(counts)


INT, LONG, TEXT = (Schema(kind) for kind in (SchemaType.INT32, SchemaType.INT64, SchemaType.STRING))


def a_map(keys: Schema, values: Schema) -> Schema:
    return Schema(SchemaType.MAP, key_schema=keys, value_schema=values)


def test_like_maps_share_the_name_of_their_entry_as_with_java(java: JavaProgram) -> None:
    fields = (Field("a", a_map(INT, TEXT)), Field("b", a_map(INT, TEXT)))
    schema = Schema(SchemaType.STRUCT, fields=fields)
    value = {"a": {1: "x"}, "b": {2: "y"}}
    envelope = ENVELOPE.from_connect("t", value, schema)
    assert envelope is not None
    theirs = java.ask(do="write", config={}, bytes=envelope.hex())
    found = ours(schema, value)
    assert not isinstance(found, DataError)
    assert found[0] == json.loads(theirs["schema"])
    assert found[1].hex() == theirs["bytes"]


def test_the_entry_of_a_map_in_a_map_has_a_name_of_its_own_where_java_loses_it(
    java: JavaProgram,
) -> None:
    schema, value = a_map(INT, a_map(LONG, TEXT)), {1: {2: "x"}}
    envelope = ENVELOPE.from_connect("t", value, schema)
    assert envelope is not None
    theirs = java.ask(do="write", config={}, bytes=envelope.hex())
    inner = json.loads(theirs["schema"])["items"]["fields"][1]["type"]["items"]
    assert inner == "MapEntry"  # itself: what is in it is told nowhere
    found = ours(schema, value)
    assert not isinstance(found, DataError)
    assert found[1].hex() == theirs["bytes"]
    assert found[0]["items"]["fields"][1]["type"]["items"]["name"] == "MapEntry2"
    back = java.ask(do="read", config={}, schema=json.dumps(found[0]), bytes=found[1].hex())
    assert bytes.fromhex(back["bytes"]) == envelope
