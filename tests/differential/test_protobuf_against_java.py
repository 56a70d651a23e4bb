"""ProtobufConverter's messages are those of Java's own Protobuf, both ways.

Java has the registered schema alone. It finds each field's value in our bytes, and writes the same
bytes for these values. (Java's converter itself is not in Maven Central.)
"""

import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from support.data.typed_values import nulls_filled, typed_values
from support.data.valid_names import named
from support.depth import everything, tries
from support.java.asking import JavaProgram
from support.registry.memory import MemorySchemas, converter

from headgate.connector import schema as s
from headgate.connector.data_error import DataError
from headgate.connector.schema import Schema, SchemaType, from_logical, logical_type
from headgate_registry.protoc import _compiled
from local_kafka.jars import FORMATS

HEAD = b"\0\0\0\0\1\0"
"""Stands before a message: the magic byte, the schema's id, and that it is the file's first."""

NOT_IN_PROTOBUF: Final = (
    "is a list or map within another one",
    "is null, which a list in Protobuf cannot hold",
    "is null, which a map in Protobuf cannot hold",
    "Protobuf cannot tell a null from an empty one",
    "Protobuf has no other keys",
)


@pytest.fixture(scope="module")
def java(java_program: Callable[..., "subprocess.Popen[str]"]) -> JavaProgram:
    return JavaProgram(java_program("ProtobufMessages", more=FORMATS))


def fields(schema: Schema, value: Any) -> Any:
    """A value as ProtobufMessages tells it."""
    if value is None:
        return None
    if schema.type is SchemaType.STRUCT:
        return {one.name: fields(one.schema, value[one.name]) for one in schema.fields}
    keys, items = schema.key_schema, schema.value_schema
    if schema.type is SchemaType.ARRAY and items is not None:
        return [fields(items, one) for one in value]
    if schema.type is SchemaType.MAP and keys is not None and items is not None:
        pairs = value.items()
        return [{"key": fields(keys, key), "value": fields(items, one)} for key, one in pairs]
    match logical_type(schema):
        case s.DECIMAL:
            number = from_logical(schema, value)
            data = number.to_bytes(
                (number if number >= 0 else ~number).bit_length() // 8 + 1, signed=True
            )
            digits = len(str(abs(number)))
            return {"value": data.hex(), "precision": digits, "scale": schema.scale}
        case s.DATE:
            return {"year": value.year, "month": value.month, "day": value.day}
        case s.TIME:
            parts = {"hours": value.hour, "minutes": value.minute, "seconds": value.second}
            return {**parts, "nanos": value.microsecond * 1000}
        case s.TIMESTAMP:
            seconds, milliseconds = divmod(from_logical(schema, value), 1000)
            return {"seconds": seconds, "nanos": milliseconds * 1_000_000}
    return value.hex() if isinstance(value, bytes) else value


def compare(java: JavaProgram, schema: Schema, value: Any) -> bool:
    """Return whether ours wrote the value. Raises AssertionError if Java reads or writes it in
    another way, or if we refuse what Protobuf could hold."""
    memory = MemorySchemas()
    try:
        data = converter("ProtobufConverter", memory).from_connect("t", value, schema)
    except DataError as error:
        assert any(reason in str(error) for reason in NOT_IN_PROTOBUF), error
        return False
    assert data is not None and data.startswith(HEAD)
    whole = nulls_filled(schema, value, False)
    files = _compiled(memory.schemas[0].text, ()).hex()
    expected = fields(schema, whole)
    read = java.ask(do="read", files=files, bytes=data[len(HEAD) :].hex())
    assert read == {"value": expected}, memory.schemas[0].text
    written = java.ask(do="write", files=files, value=expected)
    assert written == {"bytes": data[len(HEAD) :].hex()}
    theirs = HEAD + bytes.fromhex(written["bytes"])
    back = converter("ProtobufConverter", memory).to_connect_data("t", theirs)
    assert (back.schema, back.value) == (schema.as_required(), whole)
    return True


def test_java_reads_and_writes_the_same_messages(java: JavaProgram) -> None:
    counts: Counter[bool] = Counter()

    @settings(
        max_examples=tries(30, 500),
        derandomize=not everything(),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(typed_values())
    def alike(typed: tuple[Schema, Any]) -> None:
        schema, value = named(*typed)
        if schema.type is not SchemaType.STRUCT or value is None:
            schema, value = s.struct({"field": schema}), {"field": value}
        counts[compare(java, schema, value)] += 1

    alike()
    print(counts)
    assert counts[True] > tries(30, 500) / 4, counts


@pytest.mark.parametrize("digits", [1, 9, 10, 11, 30])
def test_java_rounds_no_decimal(java: JavaProgram, digits: int) -> None:
    """Java's reader rounds to the precision that stands beside the value: it is the value's own,
    also where that has more digits than the schema's parameter says."""
    schema = s.struct({"price": s.decimal_of(2, 10)})
    assert compare(java, schema, {"price": s.to_logical(s.decimal_of(2), -(10**digits - 1))})
