"""Translation of Connect values into Protobuf messages. Source: ProtobufData.fromConnectData."""

from collections.abc import Callable
from typing import Any, cast

from headgate.connector import schema as s
from headgate.connector.data_error import DataError
from headgate.connector.schema import Schema, SchemaType, from_logical, logical_type
from headgate_registry.avro_schema import decimal_bytes

Fill = Callable[[Any, Any], None]
"""Puts a value into a message."""


def filler(schema: Schema, descriptor: Any, path: str = "value") -> Fill:
    """Return a function that fills a message from a struct's value.

    Raises:
        DataError: the message does not have a field of the schema.
    """
    ways: list[tuple[str, Fill, Schema]] = []
    for one in schema.fields:
        found = descriptor.fields_by_name.get(one.name)
        if found is None:
            raise DataError(f"{path}.{one.name} is no field of {descriptor.full_name}")
        ways.append((one.name, _field(found, one.schema, f"{path}.{one.name}"), one.schema))

    def fill(message: Any, value: Any) -> None:
        for name, way, part in ways:
            item = value.get(name)
            if item is None:
                item = part.default
            if item is not None:
                way(message, item)
            elif part.type in (SchemaType.ARRAY, SchemaType.MAP):
                raise DataError(
                    f"{path}.{name} is null, expected a list or map: Protobuf cannot tell a null "
                    "from an empty one"
                )

    return fill


def _field(one: Any, schema: Schema, path: str) -> Fill:
    name: str = one.name
    if schema.type is SchemaType.ARRAY:
        return _repeated(one, cast(Schema, schema.value_schema), path)
    if schema.type is SchemaType.MAP:
        return _map(one, cast(Schema, schema.value_schema), path)
    into = _message(one, schema, path)
    if into is None:
        change = _scalar(schema)
        return lambda message, value: setattr(message, name, change(value))

    def fill(message: Any, value: Any) -> None:
        inner = getattr(message, name)
        inner.SetInParent()
        into(inner, value)

    return fill


def _repeated(one: Any, items: Schema, path: str) -> Fill:
    name: str = one.name
    into, change = _message(one, items, f"{path}[]"), _scalar(items)

    def fill(message: Any, value: Any) -> None:
        held = getattr(message, name)
        for place, item in enumerate(value):
            if item is None:
                raise DataError(f"{path}[{place}] is null, which a list in Protobuf cannot hold")
            if into is None:
                held.append(change(item))
            else:
                into(held.add(), item)

    return fill


def _map(one: Any, values: Schema, path: str) -> Fill:
    name: str = one.name
    into = _message(one.message_type.fields_by_name["value"], values, f"{path}[]")
    change = _scalar(values)

    def fill(message: Any, value: Any) -> None:
        held = getattr(message, name)
        for key, item in value.items():
            if item is None:
                raise DataError(f"{path}[{key!r}] is null, which a map in Protobuf cannot hold")
            if into is None:
                held[key] = change(item)
            else:
                into(held[key], item)

    return fill


def _message(one: Any, schema: Schema, path: str) -> Fill | None:
    """Return a function that fills a field's message. None: the field is a scalar."""
    logical = logical_type(schema)
    if logical == s.DECIMAL:
        scale = schema.scale

        def decimal(message: Any, value: Any) -> None:
            number = from_logical(schema, value)
            message.value = decimal_bytes(number)
            # The precision is that of this value, because Java rounds to it when it reads.
            message.precision, message.scale = len(str(abs(number))), scale

        return decimal
    if logical is not None:
        return {s.DATE: _date, s.TIME: _time, s.TIMESTAMP: _timestamp}[logical]
    if schema.type is SchemaType.STRUCT:
        return filler(schema, one.message_type, path)
    return None


def _date(message: Any, value: Any) -> None:
    message.year, message.month, message.day = value.year, value.month, value.day


def _time(message: Any, value: Any) -> None:
    message.hours, message.minutes, message.seconds = value.hour, value.minute, value.second
    message.nanos = value.microsecond * 1000


def _timestamp(message: Any, value: Any) -> None:
    number = from_logical(s.TIMESTAMP_SCHEMA, value)
    message.seconds, message.nanos = number // 1000, number % 1000 * 1_000_000


def _scalar(schema: Schema) -> Callable[[Any], Any]:
    return bytes if schema.type is SchemaType.BYTES else lambda value: value
