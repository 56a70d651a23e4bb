"""JsonSchemaConverter with a registry. Values are Connect's JSON."""

import decimal
import json
from collections.abc import Callable, Mapping
from typing import Any

from headgate.connector import registry_converters
from headgate.connector.data_error import DataError
from headgate.connector.json_values import DecimalFormat, has_decimal, reader, writer, written
from headgate.connector.schema import Schema, SchemaAndValue
from headgate.connector.schema_registry import JSON, RegisteredSchema
from headgate.java.json import dumps
from headgate_registry.base import FormatConverter, Read, Written
from headgate_registry.json_schema_text import (
    connect_schema_of,
    json_schema_of,
    own_maps,
    pairs_of,
)
from headgate_registry.schema_fit import why_not_under


class Working(FormatConverter, registry_converters.JsonSchemaConverter):
    """The converter. It writes and reads values as Confluent's JsonSchemaConverter does.

    Differs: a property that is not in the schema is refused, by name. Java drops it.
    """

    CONFIG = registry_converters.JsonSchemaConverter.CONFIG
    KIND = JSON

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        super().configure(config, is_key=is_key)
        self._numbers = DecimalFormat(self.parsed["decimal.format"].upper())
        self._use_optional: bool = self.parsed["use.optional.for.nonrequired"]

    def written(self, schema: Schema) -> Written:
        text = dumps(json_schema_of(schema)).decode()
        return Written(RegisteredSchema(JSON, text), schema.name, self._writer(schema))

    def written_as(self, schema: Schema, target: RegisteredSchema) -> Callable[[Any], bytes]:
        wanted = self._schema(target)
        reason = why_not_under(schema.as_required(), wanted)
        if reason is not None:
            raise DataError(f"the newest schema of the subject cannot hold the record: {reason}")
        return self._writer(wanted)

    def reader(self, found: RegisteredSchema) -> Read:
        schema = self._schema(found)
        read_value, prepare = reader(schema, False), pairs_of(schema)
        numbers: Any = decimal.Decimal if has_decimal(schema) else None

        def read(data: bytes) -> SchemaAndValue:
            try:
                parsed = json.loads(data.decode(), parse_float=numbers)
            except (ValueError, RecursionError) as error:
                raise DataError(f"these {len(data)} bytes are no JSON: {error}") from error
            return SchemaAndValue(schema, read_value(prepare(parsed)))

        return read

    def _schema(self, found: RegisteredSchema) -> Schema:
        try:
            document = json.loads(found.text)
        except ValueError as error:
            raise DataError(f"no JSON Schema: {error}") from error
        return connect_schema_of(document, self._use_optional)

    def _writer(self, schema: Schema) -> Callable[[Any], bytes]:
        write = writer(schema, self._numbers, True, own_maps(self._numbers, True))

        def made(value: Any) -> bytes:
            try:
                return written(schema, write, value).encode()
            except UnicodeEncodeError as error:
                raise DataError(f"a text has no UTF-8: {error}") from error

        return made
