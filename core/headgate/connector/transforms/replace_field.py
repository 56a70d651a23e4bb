"""The transform that drops and renames fields. Source: Connect's `ReplaceField` (4.3.1)."""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.connector.api import DataError, SinkRecord, SourceRecord, Value
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.schema import Field, Schema
from headgate.connector.transforms.base import PerSchema, SidedTransform
from headgate.connector.transforms.structs import (
    REPLACE_NULL,
    Reader,
    built,
    define_replace_null,
    require_map,
    require_struct,
)
from headgate.connector.validators import unique_values
from headgate.java.hash import in_map_order
from headgate.java.text import split


def parse_renames(name: str, value: Any) -> dict[str, str]:
    """Old and new names of ``old:new`` pairs.

    Raises:
        ConfigError: one that is no pair.
    """
    pairs: Sequence[str] = value
    renames: dict[str, str] = {}
    for pair in pairs:
        parts = split(pair, ":")
        if len(parts) != 2:
            raise ConfigError.of("renames", value, f"Invalid rename mapping: {pair}")
        renames[parts[0]] = parts[1]
    return renames


def _valid_renames(name: str, value: Any) -> None:
    if value is not None:
        parse_renames(name, value)


class ReplaceField(SidedTransform):
    """Keeps or drops fields, and gives others a new name. A null stays null."""

    CONFIG = define_replace_null(
        ConfigDef()
        .define(
            "exclude",
            Type.LIST,
            [],
            unique_values,
            Importance.MEDIUM,
            "Fields to drop; they are dropped though they are in include.",
        )
        .define(
            "include",
            Type.LIST,
            [],
            unique_values,
            Importance.MEDIUM,
            "Fields to keep; all, if it is empty.",
        )
        .define(
            "renames",
            Type.LIST,
            [],
            _valid_renames,
            Importance.MEDIUM,
            "Pairs of names: old:new.",
        )
    )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._exclude = frozenset(self.settings["exclude"])
        self._include = frozenset(self.settings["include"])
        self._renames = parse_renames("renames", self.settings["renames"])
        self._sources = {self._renames[old]: old for old in in_map_order(list(self._renames))}
        self._updated = PerSchema(self._update)

    def plain(self, value: Value, record: SourceRecord | SinkRecord) -> Value:
        if value is None:
            return None
        renames = self._renames
        found = require_map(value, _PURPOSE)
        return {renames.get(name, name): found[name] for name in found if self._keeps(name)}

    def typed(
        self, schema: Schema, value: Value, record: SourceRecord | SinkRecord
    ) -> tuple[Schema, Value]:
        if value is None:
            return schema, None
        struct = require_struct(schema, value, _PURPOSE)
        updated, reader = self._updated(schema)
        return updated, reader.read(struct)

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def _update(self, schema: Schema) -> tuple[Schema, Reader]:
        kept = [
            Field(self._renames.get(field.name, field.name), field.schema)
            for field in schema.fields
            if self._keeps(field.name)
        ]
        updated = built(schema, kept)
        sources: list[tuple[str, Field]] = []
        for field in updated.fields:
            name = self._sources.get(field.name, field.name)
            source = schema.field(name)
            if source is None:
                raise DataError(f"{name} is not a valid field name")
            sources.append((field.name, source))
        return updated, Reader(sources, self.settings[REPLACE_NULL])


_PURPOSE = "field replacement"
