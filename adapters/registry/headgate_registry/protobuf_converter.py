"""ProtobufConverter with a registry. protoc compiles the files, and Google's library encodes and
decodes the messages."""

from collections.abc import Callable, Mapping
from typing import Any

from headgate.connector import registry_converters
from headgate.connector.data_error import DataError
from headgate.connector.schema import Schema, SchemaAndValue
from headgate.connector.schema_registry import PROTOBUF, RegisteredSchema
from headgate_registry.base import FormatConverter, Read, Written
from headgate_registry.protobuf_read import Message, schema_of_text
from headgate_registry.protobuf_text import proto_of
from headgate_registry.protobuf_wire import FIRST, path_of
from headgate_registry.protobuf_write import filler
from headgate_registry.references import texts
from headgate_registry.schema_fit import why_not_under


class Working(FormatConverter, registry_converters.ProtobufConverter):
    """The converter. It writes and reads values as Confluent's ProtobufConverter does."""

    CONFIG = registry_converters.ProtobufConverter.CONFIG
    KIND = PROTOBUF

    def written(self, schema: Schema) -> Written:
        required = schema.as_required()
        text, name = proto_of(required, schema_of_text)
        write = _writer(required, Message(text, {}, [0]))
        return Written(RegisteredSchema(PROTOBUF, text), name, write)

    def written_as(self, schema: Schema, target: RegisteredSchema) -> Callable[[Any], bytes]:
        message = Message(target.text, self._others(target), [0])
        reason = why_not_under(schema.as_required(), message.schema)
        if reason is not None:
            raise DataError(f"the newest schema of the subject cannot hold the record: {reason}")
        return _writer(message.schema, message)

    def reader(self, found: RegisteredSchema) -> Read:
        others = self._others(found)
        known: dict[tuple[int, ...], Message] = {}

        def read(data: bytes) -> SchemaAndValue:
            path, at = path_of(data)
            message = known.get(tuple(path))
            if message is None:
                message = known[tuple(path)] = Message(found.text, others, path)
            return SchemaAndValue(message.schema, message.read(data[at:]))

        return read

    def _others(self, found: RegisteredSchema) -> Mapping[str, str]:
        return texts(self._checked_registry, found)


def _writer(schema: Schema, message: Message) -> Callable[[Any], bytes]:
    fill = filler(schema, message.descriptor)

    def write(value: Any) -> bytes:
        made = message.make()
        try:
            fill(made, value)
            data: bytes = made.SerializeToString(deterministic=True)
        except (TypeError, ValueError) as error:  # a text without UTF-8
            raise DataError(f"the value has no form in Protobuf: {error}") from error
        return FIRST + data

    return write
