"""The transform that flattens nested structs and maps. Source: Connect's `Flatten` (4.3.1)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from headgate.connector.api import DataError, SinkRecord, SourceRecord, Value
from headgate.connector.config import ConfigDef, Importance, Type
from headgate.connector.schema import Field, Schema, SchemaType
from headgate.connector.transforms.base import PerSchema, SidedTransform
from headgate.connector.transforms.classes import class_of, plain_type
from headgate.connector.transforms.columns import Column, ColumnPlan, Taken
from headgate.connector.transforms.structs import (
    Map,
    built,
    duplicate,
    fields_of,
    require_map,
    require_struct,
    required_null,
    with_default,
)


class Flatten(SidedTransform):
    """Fields of nested structs and maps become fields of the outermost, by the names on the way to
    them with `delimiter` in between. Arrays stay as they are; so do maps that are in them.

    Differs: two fields that get one name are refused without a schema too, where Java keeps one.
    """

    CONFIG = ConfigDef().define(
        "delimiter",
        Type.STRING,
        ".",
        importance=Importance.MEDIUM,
        documentation="Stands between the names on the way to a field.",
    )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._delimiter: str = self.settings["delimiter"]
        self._flat = PerSchema(self._plan)

    def plain(self, value: Value, record: SourceRecord | SinkRecord) -> Value:
        if value is None:
            return None
        result: Map = {}
        self._flatten(require_map(value, "flattening"), "", result)
        return result

    def _flatten(self, value: Map, prefix: str, result: Map) -> None:
        for key, item in value.items():
            name = f"{prefix}{self._delimiter}{key}" if prefix else key
            if isinstance(item, dict):
                self._flatten(cast(Map, item), name, result)
                continue
            if item is not None and plain_type(item) is None:
                raise DataError(
                    f"Flatten transformation was passed a value of type class {class_of(item)} "
                    "which is not supported by Connect's data API"
                )
            if name in result:
                raise duplicate(name)
            result[name] = item

    def typed(
        self, schema: Schema, value: Value, record: SourceRecord | SinkRecord
    ) -> tuple[Schema, Value]:
        if value is None:
            return schema, None
        struct = require_struct(schema, value, "flattening")
        flat, read = self._flat(schema)
        result: Map = {}
        read(struct, result)
        return flat, result

    def columns(self, schema: Schema, record: SourceRecord | SinkRecord) -> ColumnPlan | None:
        flat, _ = self._flat(schema)
        return ColumnPlan(flat, _leaves(schema, ()))

    def _plan(self, schema: Schema) -> tuple[Schema, "_Read"]:
        fields: list[Field] = []
        default = cast("Map | None", schema.default)
        read = self._level(schema, "", schema.optional, default, fields)
        return built(schema, fields), read

    def _level(
        self, schema: Schema, prefix: str, optional: bool, default: Map | None, into: list[Field]
    ) -> "_Read":
        """Add the fields of one struct to `into`; return the function that reads them.

        Args:
            optional: A struct around this one is optional.
            default: Value of this struct that comes from its own default or from one around it.
        """
        steps: list[_Read] = []
        for field in fields_of(schema):
            name = f"{prefix}{self._delimiter}{field.name}" if prefix else field.name
            inner = field.schema
            found = inner.default
            if found is None and default is not None:
                found = default.get(field.name)
            is_optional = optional or inner.optional
            if inner.type is SchemaType.STRUCT:
                read = self._level(inner, name, is_optional, cast("Map | None", found), into)
                steps.append(_nested(field.name, read))
            elif inner.type is SchemaType.MAP:
                raise DataError(
                    f"Flatten transformation does not support {inner.type.upper()} for record "
                    f"with schemas (for field {name})."
                )
            else:
                leaf = replace(inner, optional=is_optional, default=None)
                if found is not None:
                    leaf = with_default(leaf, found)
                flat = Field(name, leaf)
                into.append(flat)
                steps.append(_leaf(field, flat))

        def read_all(struct: Map, result: Map) -> None:
            for step in steps:
                step(struct, result)

        return read_all


def _leaves(schema: Schema, path: tuple[str, ...]) -> list[Column]:
    """Return the fields of a struct and of the structs in it, as `_level` finds them."""
    found: list[Column] = []
    for field in schema.fields:
        inner = (*path, field.name)
        if field.schema.type is SchemaType.STRUCT:
            found += _leaves(field.schema, inner)
        else:
            found.append(Taken(inner))
    return found


_Read = Callable[[Map, Map], None]


def _leaf(field: Field, flat: Field) -> _Read:
    name, into, default = field.name, flat.name, field.schema.default
    refused = None if flat.schema.optional else flat.schema

    def read(struct: Map, result: Map) -> None:
        value = struct.get(name)
        if value is None:
            value = default
            if value is None and refused is not None:
                raise required_null(into, refused)
        result[into] = value

    return read


def _nested(name: str, read: _Read) -> _Read:
    def read_nested(struct: Map, result: Map) -> None:
        # The struct's own default is not used, as in Java; the flat fields have it as theirs.
        value = struct.get(name)
        if value is not None:
            read(value, result)

    return read_nested
