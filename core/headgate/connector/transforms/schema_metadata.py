"""The transform that names a schema. Source: Connect's `SetSchemaMetadata` (4.3.1)."""

from collections.abc import Mapping
from dataclasses import replace

from headgate.connector.api import DataError, SinkRecord, SourceRecord, Value
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.schema import Schema
from headgate.connector.transforms.base import PerSchema, SidedTransform
from headgate.connector.transforms.columns import ColumnPlan, taken
from headgate.connector.transforms.structs import REPLACE_NULL, Reader, define_replace_null


class SetSchemaMetadata(SidedTransform):
    """Gives the schema of a key or value a name, a version, or both. The schema must be a struct,
    as in Java."""

    CONFIG = define_replace_null(
        ConfigDef()
        .define("schema.name", Type.STRING, None, None, Importance.HIGH, "The new name.")
        .define("schema.version", Type.INT, None, None, Importance.HIGH, "The new version.")
    )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        if self.settings["schema.name"] is None and self.settings["schema.version"] is None:
            raise ConfigError("Neither schema name nor version configured")
        self._named = PerSchema(self._name)

    def plain(self, value: Value, record: SourceRecord | SinkRecord) -> Value:
        if value is not None:
            raise DataError("Schema required for [updating schema metadata]")
        return None

    def typed(
        self, schema: Schema, value: Value, record: SourceRecord | SinkRecord
    ) -> tuple[Schema, Value]:
        named, reader = self._named(schema)
        return named, None if value is None else reader.read(value)

    def columns(self, schema: Schema, record: SourceRecord | SinkRecord) -> ColumnPlan | None:
        named, _ = self._named(schema)
        return ColumnPlan(named, taken(schema))

    def _name(self, schema: Schema) -> tuple[Schema, Reader]:
        reader = Reader.of(schema, self.settings[REPLACE_NULL])
        name, version = self.settings["schema.name"], self.settings["schema.version"]
        named = replace(
            schema,
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )
        return named, reader
