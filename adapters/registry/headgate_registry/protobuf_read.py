"""Translation of Protobuf messages into Connect schemas and values. Source: ProtobufData (Confluent
7.x).

Differs: members of a oneof are optional fields, as with Java's ``flatten.unions``. An unsigned
number that INT64 cannot hold is refused. So are fields that are not in the schema, which Java
drops.
"""

import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from google.protobuf import message_factory

from headgate.connector import schema as s
from headgate.connector.data_error import DataError
from headgate.connector.json_schema import read_schema
from headgate.connector.schema import Field, Schema, SchemaType, logical_type, to_logical
from headgate_registry.protobuf_text import DEFAULT_NAME, LOGICAL, SCHEMA
from headgate_registry.protoc import MESSAGE_META, compiled

Decode = Callable[[Any], Any]
ENUM: Final = "io.confluent.connect.protobuf.Enum"
_LONG_MAX: Final = 2**63 - 1
_KINDS: Final[Mapping[int, Schema]] = {
    **dict.fromkeys((5, 17, 15), s.INT32),
    **dict.fromkeys((3, 18, 16, 13, 7, 4, 6), s.INT64),
    1: s.FLOAT64,
    2: s.FLOAT32,
    8: s.BOOLEAN,
    9: s.STRING,
    12: s.BYTES,
}
"""Connect schemas by the number of a type in descriptor.proto."""
_ENUM_TYPE: Final = 14
_MESSAGES: Final = {
    "google.type.Date": s.DATE_SCHEMA,
    "google.type.TimeOfDay": s.TIME_SCHEMA,
    "google.protobuf.Timestamp": s.TIMESTAMP_SCHEMA,
}


class Message:
    """A message type of a file: its class, its Connect schema, and the reader of its values."""

    def __init__(self, text: str, others: Mapping[str, str], path: list[int]) -> None:
        """
        Args:
            text: the .proto file.
            others: texts of files that it imports, by path.
            path: index of the message in the file, then of each nested message.

        Raises:
            DataError: this is no Protobuf schema, or Connect cannot express it.
        """
        data, pool = compiled(text, others)
        found = data
        names: list[str] = [data.package] if data.package else []
        for place in path:
            inner = found.message_type if found is data else found.nested_type
            if not 0 <= place < len(inner):
                raise DataError(f"the schema has no message {path}, which the value says it is")
            found = inner[place]
            names.append(found.name)
        self.descriptor = pool.FindMessageTypeByName(".".join(names))
        self.make: Any = message_factory.GetMessageClass(self.descriptor)
        kept = found.options.Extensions[MESSAGE_META].params.get(SCHEMA, "")
        if kept:
            self.schema = cast(Schema, read_schema(json.loads(kept))).as_required()
        else:
            self.schema = _schema(self.descriptor, "value", ())
        self._decode = _decoder(self.descriptor, self.schema, "value")

    def read(self, data: bytes) -> Any:
        message = self.make()
        try:
            message.ParseFromString(data)
        except Exception as error:  # DecodeError, and others of older versions
            raise DataError(
                f"these {len(data)} bytes are no {self.schema.name}: {error}"
            ) from error
        return self._decode(message)


def schema_of_text(text: str, others: Mapping[str, str] | None = None) -> Schema:
    """Return the Connect schema of a file's first message."""
    return Message(text, others or {}, [0]).schema


def _schema(descriptor: Any, path: str, inside: tuple[str, ...]) -> Schema:
    name = str(descriptor.full_name)
    if name in inside:
        raise DataError(f"{path}: {name} contains itself, which Connect's schemas cannot")
    fields = tuple(
        [
            Field(one.name, _field(one, f"{path}.{one.name}", (*inside, name)))
            for one in descriptor.fields
        ]
    )
    return Schema(SchemaType.STRUCT, name=None if name == DEFAULT_NAME else name, fields=fields)


def _field(one: Any, path: str, inside: tuple[str, ...]) -> Schema:
    if _is_map(one):
        key, value = (one.message_type.fields_by_name[name] for name in ("key", "value"))
        return s.map_of(_single(key, path, inside), _single(value, path, inside))
    single = _single(one, path, inside)
    if one.is_repeated:
        return s.array(single)
    return single.as_optional() if one.has_presence and not one.is_required else single


def _single(one: Any, path: str, inside: tuple[str, ...]) -> Schema:
    if one.message_type is not None:
        name = str(one.message_type.full_name)
        if name in _MESSAGES:
            return _MESSAGES[name]
        if name == LOGICAL[s.DECIMAL][0]:
            raise DataError(
                f"{path} is a {name}, whose scale is in each value; Connect has it in the schema"
            )
        return _schema(one.message_type, path, inside)
    if one.type == _ENUM_TYPE:
        names = [value.name for value in one.enum_type.values]
        marks = {ENUM: str(one.enum_type.full_name), **{f"{ENUM}.{name}": name for name in names}}
        return replace(s.STRING, parameters=marks)
    return _KINDS[one.type]


def _is_map(one: Any) -> bool:
    return bool(one.message_type is not None and one.message_type.GetOptions().map_entry)


def _decoder(descriptor: Any, schema: Schema, path: str) -> Decode:
    ways: list[tuple[str, bool, Decode]] = []
    for field in schema.fields:
        one = descriptor.fields_by_name.get(field.name)
        if one is None:
            raise DataError(f"{path}.{field.name} is no field of {descriptor.full_name}")
        presence = one.has_presence
        ways.append((field.name, presence, _value(one, field.schema, f"{path}.{field.name}")))

    def decode(message: Any) -> Any:
        if _unknown(message):
            raise DataError(f"{path} has fields that {descriptor.full_name} does not have")
        found: dict[str, Any] = {}
        for name, presence, way in ways:
            there = not presence or message.HasField(name)
            found[name] = way(getattr(message, name)) if there else None
        return found

    return decode


def _unknown(message: Any) -> bool:
    from google.protobuf.unknown_fields import UnknownFieldSet

    return len(UnknownFieldSet(message)) > 0


def _value(one: Any, schema: Schema, path: str) -> Decode:
    if _is_map(one):
        each = _one(one.message_type.fields_by_name["value"], schema.value_schema, f"{path}[]")
        return lambda value: {key: each(value[key]) for key in value}
    if one.is_repeated:
        item = _one(one, schema.value_schema, f"{path}[]")
        return lambda value: [item(found) for found in value]
    return _one(one, schema, path)


def _one(one: Any, schema: Schema | None, path: str) -> Decode:
    assert schema is not None  # the schema has the message's shape
    logical = logical_type(schema)
    if logical is not None:
        return _logical(schema, logical, path)
    if one.message_type is not None:
        return _decoder(one.message_type, schema, path)
    if one.type == _ENUM_TYPE:
        names = {value.number: value.name for value in one.enum_type.values}

        def symbol(value: int) -> str:
            if value not in names:
                raise DataError(f"{path} is {value}, which is no value of its enum")
            return str(names[value])

        return symbol
    if schema.type is SchemaType.INT64:

        def whole(value: int) -> int:
            if value > _LONG_MAX:
                raise DataError(f"{path} is {value}, expected at most {_LONG_MAX}")
            return value

        return whole
    return lambda value: value


def _logical(schema: Schema, logical: str, path: str) -> Decode:
    def decode(value: Any) -> Any:
        try:
            if logical == s.DECIMAL:
                number = int.from_bytes(value.value, "big", signed=True)
                if value.scale != schema.scale:
                    raise DataError(f"{path} has the scale {value.scale}, expected {schema.scale}")
                return to_logical(schema, number)
            if logical == s.DATE:
                return datetime.date(value.year, value.month, value.day)
            if logical == s.TIME:
                return datetime.time(
                    value.hours, value.minutes, value.seconds, _micros(value.nanos, path)
                )
            return to_logical(schema, value.seconds * 1000 + _micros(value.nanos, path) // 1000)
        except (ValueError, OverflowError) as error:
            raise DataError(f"{path} has no form as {schema.name}: {error}") from error

    return decode


def _micros(nanos: int, path: str) -> int:
    if nanos % 1_000_000:
        raise DataError(f"{path} has {nanos} nanoseconds, expected whole milliseconds")
    return nanos // 1000
