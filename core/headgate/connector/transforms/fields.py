"""Transforms that take a field out, wrap a value in one, or make a key of some.

Source: Connect's `ExtractField`, `HoistField`, `ValueToKey` (4.3.1).
"""

from collections.abc import Mapping

from headgate.connector.api import DataError, SinkRecord, SourceRecord, Value
from headgate.connector.config import ConfigDef, Importance, Type
from headgate.connector.schema import Field, Schema, SchemaType
from headgate.connector.transforms.base import (
    PerSchema,
    Record,
    RecordTransform,
    SidedTransform,
    copied,
)
from headgate.connector.transforms.columns import ColumnPlan, Taken, Whole
from headgate.connector.transforms.field_path import (
    SYNTAX,
    define_syntax,
    field_in_schema,
    parse_path,
    value_in_map,
    value_in_struct,
)
from headgate.connector.transforms.structs import (
    REPLACE_NULL,
    Reader,
    define_replace_null,
    require_map,
    require_struct,
    required_null,
)
from headgate.connector.validators import unique_names


class ExtractField(SidedTransform):
    """Replaces a struct or map by one of its fields. A null stays null."""

    CONFIG = define_syntax(
        define_replace_null(
            ConfigDef().define("field", Type.STRING, documentation="The field to take out.")
        )
    )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._path = parse_path(self.settings["field"], self.settings[SYNTAX])
        self._use_defaults: bool = self.settings[REPLACE_NULL]
        self._field = PerSchema(self._find)

    def plain(self, value: Value, record: SourceRecord | SinkRecord) -> Value:
        if value is None:
            return None
        return value_in_map(self._path, require_map(value, "field extraction"))

    def typed(
        self, schema: Schema, value: Value, record: SourceRecord | SinkRecord
    ) -> tuple[Schema, Value]:
        struct = None if value is None else require_struct(schema, value, "field extraction")
        found = self._field(schema).schema
        if struct is None:
            return found, None
        return found, value_in_struct(self._path, schema, struct, self._use_defaults)

    def columns(self, schema: Schema, record: SourceRecord | SinkRecord) -> ColumnPlan | None:
        return ColumnPlan(self._field(schema).schema, [Taken(self._path)], extracts=True)

    def _find(self, schema: Schema) -> Field:
        field = field_in_schema(self._path, schema)
        if field is None:
            raise DataError(f"Unknown field: {self.settings['field']}")
        return field


class HoistField(SidedTransform):
    """Wraps the whole key or value in a struct or map with one field."""

    CONFIG = ConfigDef().define(
        "field", Type.STRING, documentation="Name of the only field of the struct or map."
    )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._name: str = self.settings["field"]
        self._wrapped = PerSchema(self._wrap)

    def plain(self, value: Value, record: SourceRecord | SinkRecord) -> Value:
        return {self._name: value}

    def typed(
        self, schema: Schema, value: Value, record: SourceRecord | SinkRecord
    ) -> tuple[Schema, Value]:
        wrapped = self._wrapped(schema)
        if value is None and not schema.optional:
            raise required_null(self._name, schema)
        return wrapped, {self._name: value}

    def columns(self, schema: Schema, record: SourceRecord | SinkRecord) -> ColumnPlan | None:
        return ColumnPlan(self._wrapped(schema), [Whole()])

    def _wrap(self, schema: Schema) -> Schema:
        if not self._name:
            raise DataError("fieldName cannot be null.")
        return Schema(SchemaType.STRUCT, fields=(Field(self._name, schema),))


class ValueToKey(RecordTransform):
    """Replaces the key by a struct or map of fields of the value."""

    CONFIG = define_replace_null(
        ConfigDef().define(
            "fields",
            Type.LIST,
            validator=unique_names,
            importance=Importance.HIGH,
            documentation="Fields of the value that make the key.",
        )
    )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._names: tuple[str, ...] = tuple(self.settings["fields"])
        self._keys = PerSchema(self._key)

    def apply(self, record: Record) -> Record | None:
        schema = record.value_schema
        if schema is None:
            value = require_map(record.value, _PURPOSE)
            key_schema, key = None, {name: value.get(name) for name in self._names}
        else:
            struct = require_struct(schema, record.value, _PURPOSE)
            key_schema, reader = self._keys(schema)
            key = reader.read(struct)
        result = copied(record)
        result.key_schema = key_schema
        result.key = key
        return result

    def _key(self, schema: Schema) -> tuple[Schema, Reader]:
        fields: list[Field] = []
        for name in self._names:
            field = schema.field(name)
            if field is None:
                raise DataError(f"Field does not exist: {name}")
            fields.append(field)
        reader = Reader([(field.name, field) for field in fields], self.settings[REPLACE_NULL])
        return Schema(SchemaType.STRUCT, fields=tuple(fields)), reader


_PURPOSE = "copying fields from value to key"
