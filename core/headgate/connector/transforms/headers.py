"""Transforms of headers. Source: Connect's `InsertHeader`, `DropHeaders`, `HeaderFrom` (4.3.1)."""

from collections.abc import Mapping
from typing import TypeAlias

from headgate.connector.api import DataError, Headers, SinkRecord, SourceRecord, Value
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.schema import Schema, SchemaAndValue, SchemaType
from headgate.connector.transforms.base import PerSchema, Record, RecordTransform, copied
from headgate.connector.transforms.columns import RowsAtOnce
from headgate.connector.transforms.structs import (
    REPLACE_NULL,
    Reader,
    built,
    define_replace_null,
    null_of,
    require_map,
    require_struct,
    schema_text,
)
from headgate.connector.transforms.value_text import parse_value
from headgate.connector.validators import non_empty_list, non_null, one_of, unique_names

HeaderSchemas: TypeAlias = tuple[Schema | None, ...]


class InsertHeader(RecordTransform):
    """Adds a header. Its value is read from the text: `12` is a number, `true` a boolean."""

    BY_TOPIC = True
    CONFIG = (
        ConfigDef()
        .define(
            "header",
            Type.STRING,
            validator=non_null,
            importance=Importance.HIGH,
            documentation="Name of the header.",
        )
        .define(
            "value.literal",
            Type.STRING,
            validator=non_null,
            importance=Importance.HIGH,
            documentation="Its value in every record: text, a number, true, false, a JSON list.",
        )
    )

    def rows_at_once(self) -> RowsAtOnce:
        return RowsAtOnce.ALIKE

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        schema, value = parse_value(self.settings["value.literal"])
        self._inserted: Headers = ((self.settings["header"], value),)
        self._inserted_schemas: HeaderSchemas = (schema,)
        # A text needs no schema, so the record's other headers need none either.
        self._is_text = schema is None or schema.type is SchemaType.STRING

    def apply(self, record: Record) -> Record | None:
        result = copied(record)
        headers: Headers = record.headers
        # If there were no headers, all records get the same tuple, which is converted once.
        result.headers = (*headers, *self._inserted) if headers else self._inserted
        if record.header_schemas or not self._is_text:
            before: HeaderSchemas = _all_schemas(headers, record.header_schemas)
            result.header_schemas = (*before, *self._inserted_schemas)
        return result


class DropHeaders(RecordTransform):
    """Removes all headers of these names."""

    BY_TOPIC = True
    CONFIG = ConfigDef().define(
        "headers",
        Type.LIST,
        validator=unique_names,
        importance=Importance.HIGH,
        documentation="Names of the headers to remove.",
    )

    def rows_at_once(self) -> RowsAtOnce:
        return RowsAtOnce.ALIKE

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._gone = frozenset(self.settings["headers"])

    def apply(self, record: Record) -> Record | None:
        gone = self._gone
        result = copied(record)
        result.headers = tuple([header for header in record.headers if header[0] not in gone])
        if record.header_schemas:
            pairs = zip(record.headers, record.header_schemas, strict=True)
            result.header_schemas = tuple([found for (key, _), found in pairs if key not in gone])
        return result


class _HeaderFrom(RecordTransform):
    """Base of `HeaderFrom$Key` and `HeaderFrom$Value`."""

    CONFIG = define_replace_null(
        ConfigDef()
        .define(
            "fields",
            Type.LIST,
            validator=non_empty_list,
            importance=Importance.HIGH,
            documentation="Fields whose values become headers.",
        )
        .define(
            "headers",
            Type.LIST,
            validator=non_empty_list,
            importance=Importance.HIGH,
            documentation="Names of the headers, in the order of the fields.",
        )
        .define(
            "operation",
            Type.STRING,
            validator=one_of("move", "copy"),
            importance=Importance.HIGH,
            documentation="move takes the fields out of the key or value, copy leaves them there.",
        )
    )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        fields, headers = self.settings["fields"], self.settings["headers"]
        if len(fields) != len(headers):
            raise ConfigError(
                "'fields' config must have the same number of elements as 'headers' config."
            )
        self._names: tuple[tuple[str, str], ...] = tuple(zip(fields, headers, strict=True))
        self._gone = frozenset(fields)
        self._moves: bool = self.settings["operation"] == "move"
        self._purpose = f"header {self.settings['operation']}"
        self._use_defaults: bool = self.settings[REPLACE_NULL]
        self._left = PerSchema(self._leave)

    def _plain(self, value: Value) -> tuple[Value, Headers]:
        found = require_map(value, self._purpose)
        headers = tuple([(header, found.get(field)) for field, header in self._names])
        if self._moves:
            found = {key: item for key, item in found.items() if key not in self._gone}
        return found, headers

    def _typed(self, schema: Schema, value: Value) -> tuple[SchemaAndValue, Headers, HeaderSchemas]:
        struct = require_struct(schema, value, self._purpose)
        result = SchemaAndValue(schema, struct)
        if self._moves:
            left, reader = self._left(schema)
            result = SchemaAndValue(left, reader.read(struct))
        headers: list[tuple[str, Value]] = []
        schemas: list[Schema] = []
        for name, header in self._names:
            field = schema.field(name)
            if field is None:
                # Java: a NullPointerException.
                raise DataError(f"HeaderFrom found no field {name} for the header {header}")
            found = struct.get(name)
            if found is None:
                found = null_of(field, self._use_defaults)
                if found is None and not field.schema.optional:
                    raise DataError(
                        "A null value requires an optional schema but was "
                        f"{schema_text(field.schema)}"
                    )
            headers.append((header, found))
            schemas.append(field.schema)
        return result, tuple(headers), tuple(schemas)

    def _leave(self, schema: Schema) -> tuple[Schema, Reader]:
        fields = [field for field in schema.fields if field.name not in self._gone]
        reader = Reader([(field.name, field) for field in fields], self._use_defaults)
        return built(schema, fields), reader


class HeaderFromKey(_HeaderFrom):
    """Copies or moves fields of the key into headers."""

    def rows_at_once(self) -> RowsAtOnce:
        return RowsAtOnce.ALIKE

    def apply(self, record: Record) -> Record | None:
        result = copied(record)
        if record.key_schema is None:
            result.key, headers = self._plain(record.key)
            _append(result, headers, ())
        else:
            found, headers, schemas = self._typed(record.key_schema, record.key)
            result.key_schema, result.key = found
            _append(result, headers, schemas)
        return result


class HeaderFromValue(_HeaderFrom):
    """Copies or moves fields of the value into headers."""

    def apply(self, record: Record) -> Record | None:
        result = copied(record)
        if record.value_schema is None:
            result.value, headers = self._plain(record.value)
            _append(result, headers, ())
        else:
            found, headers, schemas = self._typed(record.value_schema, record.value)
            result.value_schema, result.value = found
            _append(result, headers, schemas)
        return result


def _append(record: SourceRecord | SinkRecord, headers: Headers, schemas: HeaderSchemas) -> None:
    """Append `headers` to a record that was copied; `schemas` are empty if the headers have
    none."""
    if schemas or record.header_schemas:
        before = _all_schemas(record.headers, record.header_schemas)
        record.header_schemas = (*before, *_all_schemas(headers, schemas))
    record.headers = (*record.headers, *headers)


def _all_schemas(headers: Headers, schemas: HeaderSchemas) -> HeaderSchemas:
    """Return one schema for each header."""
    return schemas or (None,) * len(headers)
