"""The transform that drops and renames fields. Source: Connect's `ReplaceField` (4.3.1)."""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.connector.api import SinkRecord, SourceRecord, Value
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.schema import Field, Schema
from headgate.connector.transforms.base import PerSchema, SidedTransform
from headgate.connector.transforms.columns import ColumnPlan, Taken
from headgate.connector.transforms.structs import (
    REPLACE_NULL,
    Reader,
    built,
    define_replace_null,
    duplicate,
    require_map,
    require_struct,
)
from headgate.connector.validators import unique_values
from headgate.java.text import split


def parse_renames(name: str, value: Any) -> dict[str, str]:
    """Return new names by old names, from ``old:new`` pairs.

    Raises:
        ConfigError: A text is no pair.
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
    """Keeps or drops fields, and gives others a new name. A null stays null.

    Differs: two fields that get one name are refused without a schema too, where Java keeps one. A
    field keeps its own value if another field's new name equals its name and that other field is
    missing or dropped. (With a schema Java reads the other, or fails.)
    """

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
        self._updated = PerSchema(self._update)

    def plain(self, value: Value, record: SourceRecord | SinkRecord) -> Value:
        if value is None:
            return None
        renames = self._renames
        found = require_map(value, _PURPOSE)
        kept = [name for name in found if self._keeps(name)]
        result = {renames.get(name, name): found[name] for name in kept}
        if len(result) != len(kept):
            names = [renames.get(name, name) for name in kept]
            raise duplicate(next(name for name in names if names.count(name) > 1))
        return result

    def typed(
        self, schema: Schema, value: Value, record: SourceRecord | SinkRecord
    ) -> tuple[Schema, Value]:
        if value is None:
            return schema, None
        struct = require_struct(schema, value, _PURPOSE)
        updated, reader = self._updated(schema)
        return updated, reader.read(struct)

    def columns(self, schema: Schema, record: SourceRecord | SinkRecord) -> ColumnPlan | None:
        updated, _ = self._updated(schema)
        kept = [Taken((field.name,)) for field in schema.fields if self._keeps(field.name)]
        return ColumnPlan(updated, kept)

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def _update(self, schema: Schema) -> tuple[Schema, Reader]:
        kept = [field for field in schema.fields if self._keeps(field.name)]
        named = [(self._renames.get(field.name, field.name), field) for field in kept]
        updated = built(schema, [Field(name, field.schema) for name, field in named])
        return updated, Reader(named, self.settings[REPLACE_NULL])


_PURPOSE = "field replacement"
