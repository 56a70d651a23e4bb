"""Structs and maps in transforms: checks of values, and copies of structs.

Source: Connect's `Requirements`, `SchemaUtil`, `SimpleConfig`; `Struct.get` and `Struct.put`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from headgate.connector.api import DataError, Value
from headgate.connector.config import ConfigDef, Importance, Type
from headgate.connector.schema import LOGICAL_TYPES, Field, Schema, SchemaType, logical_type
from headgate.connector.transforms.classes import class_of

Map: TypeAlias = dict[str, Any]

REPLACE_NULL: Final = "replace.null.with.default"


def define_replace_null(config: ConfigDef) -> ConfigDef:
    """Return `config` with the key that most transforms have added. Source: KIP-1040."""
    return config.define(
        REPLACE_NULL,
        Type.BOOLEAN,
        True,
        None,
        Importance.MEDIUM,
        "Whether a null field of a struct gets the default of its schema. If false, it stays null.",
    )


def require_map(value: Value, purpose: str) -> Map:
    """Return a value without a schema, which must be a dict. Raises DataError."""
    if isinstance(value, dict):
        return cast(Map, value)
    raise DataError(
        f"Only Map objects supported in absence of schema for [{purpose}], found: {class_of(value)}"
    )


def require_struct(schema: Schema, value: Value, purpose: str) -> Map:
    """Return a value with `schema`, which must be a struct and not null. Raises DataError."""
    if schema.type is SchemaType.STRUCT and isinstance(value, dict):
        return cast(Map, value)
    found = class_of(value, schema)
    raise DataError(f"Only Struct objects supported for [{purpose}], found: {found}")


def fields_of(schema: Schema) -> Sequence[Field]:
    """Return the fields of a struct. Raises DataError if `schema` is no struct. Source:
    ConnectSchema.fields."""
    if schema.type is not SchemaType.STRUCT:
        raise DataError("Cannot list fields on non-struct type")
    return schema.fields


def schema_text(schema: Schema) -> str:
    """Return the schema's text in errors. Source: ConnectSchema.toString."""
    name = "" if schema.name is None else f"{schema.name}:"
    return f"Schema{{{name}{schema.type.upper()}}}"


def required_null(name: str, schema: Schema) -> DataError:
    """Return the error for a null in a required field. Source: ConnectSchema.validateValue."""
    return DataError(
        f'Invalid value: null used for required field: "{name}", schema type: {schema.type.upper()}'
    )


def built(basics: Schema, fields: Iterable[Field]) -> Schema:
    """Return a struct schema of `fields`, with name, version, doc and parameters of `basics`. It is
    required and has no default, as in Java. Source: SchemaUtil.copySchemaBasics, SchemaBuilder.

    Raises:
        DataError: Two fields have the same name, or one has none.
    """
    seen: dict[str, Field] = {}
    for field in fields:
        if not field.name:
            raise DataError("fieldName cannot be null.")
        if field.name in seen:
            raise duplicate(field.name)
        seen[field.name] = field
    return Schema(
        SchemaType.STRUCT,
        name=basics.name,
        version=basics.version,
        doc=basics.doc,
        parameters=basics.parameters,
        fields=tuple(seen.values()),
    )


def with_default(schema: Schema, default: Value) -> Schema:
    """Return `schema` with this default, which must be valid for it. Source:
    SchemaBuilder.defaultValue.

    Raises:
        DataError: The default is not valid, or the schema has the name of a logical type but not
            its type.
    """
    if schema.name in LOGICAL_TYPES and logical_type(schema) is None:
        raise DataError(f"Invalid default value: {schema.type.upper()} is not {schema.name}")
    try:
        return replace(schema, default=default)
    except DataError as error:
        raise DataError(f"Invalid default value: {error}") from error


def duplicate(name: str) -> DataError:
    """Return the error for two fields of one name. Source: SchemaBuilder.field."""
    return DataError(f"Cannot create field because of field name duplication {name}")


NONE_MADE: Final[Mapping[str, Schema]] = MappingProxyType({})


class Reader:
    """Copies fields of structs with a schema, as Java does by `Struct.get` and `Struct.put`.

    Args:
        fields: Name in the new struct, and field that is read.
        use_defaults: Whether a null gets the default of its field's schema.
        made: Schemas in the new struct by name, where they differ from the fields' own.
    """

    def __init__(
        self,
        fields: Iterable[tuple[str, Field]],
        use_defaults: bool,
        made: Mapping[str, Schema] = NONE_MADE,
    ) -> None:
        self._fields = tuple(fields)
        self._names = tuple([(name, field.name) for name, field in self._fields])
        self._use_defaults = use_defaults
        self._made = made

    @classmethod
    def of(
        cls, schema: Schema, use_defaults: bool, made: Mapping[str, Schema] = NONE_MADE
    ) -> "Reader":
        """Return a reader of all fields under their own names. Raises DataError if `schema` is no
        struct."""
        return cls([(field.name, field) for field in fields_of(schema)], use_defaults, made)

    def read(self, struct: Map) -> Map:
        """Return a struct of the fields. Raises DataError for a null in a required field."""
        get = struct.get
        result = {name: get(source) for name, source in self._names}
        if None in result.values():
            self._fill(result)
        return result

    def _fill(self, result: Map) -> None:
        for name, field in self._fields:
            if result[name] is None:
                result[name] = null_of(field, self._use_defaults)
                made = self._made.get(name, field.schema)
                if result[name] is None and not made.optional:
                    raise required_null(name, made)


def null_of(field: Field, use_defaults: bool) -> Value:
    """Return the value that a null of this field is read as."""
    return field.schema.default if use_defaults else None
