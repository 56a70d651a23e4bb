"""Schemas as Connect's JsonConverter writes them: ``{"type": "struct", "fields": [...]}``.

Source: JsonConverter.asJsonSchema, asConnectSchema (4.3.1).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeGuard, cast

from headgate.connector.data_error import DataError
from headgate.connector.json_values import DecimalFormat, reader, writer
from headgate.connector.schema import Field, Schema, SchemaType, kind_of
from headgate.java.json import dumps

_NAMES: Final[Mapping[SchemaType, str]] = {
    **{kind: kind.value for kind in SchemaType},
    SchemaType.FLOAT32: "float",
    SchemaType.FLOAT64: "double",
}
_TYPES: Final = {name: kind for kind, name in _NAMES.items()}


def schema_text(
    schema: Schema, numbers: DecimalFormat, use_defaults: bool, field_name: str | None = None
) -> str:
    """Return `schema` as JSON, with its members in Java's order.

    Args:
        numbers: Form of decimals in defaults.
        use_defaults: Whether a null in a default is written as the default of its own schema.
    """
    parts = [f'"type":{_text(_NAMES[schema.type])}']
    if schema.type is SchemaType.ARRAY:
        parts.append(
            f'"items":{schema_text(cast(Schema, schema.value_schema), numbers, use_defaults)}'
        )
    elif schema.type is SchemaType.MAP:
        parts.append(
            f'"keys":{schema_text(cast(Schema, schema.key_schema), numbers, use_defaults)}'
        )
        parts.append(
            f'"values":{schema_text(cast(Schema, schema.value_schema), numbers, use_defaults)}'
        )
    elif schema.type is SchemaType.STRUCT:
        fields = [
            schema_text(found.schema, numbers, use_defaults, found.name) for found in schema.fields
        ]
        parts.append(f'"fields":[{",".join(fields)}]')
    parts.append(f'"optional":{"true" if schema.optional else "false"}')
    if schema.name is not None:
        parts.append(f'"name":{_text(schema.name)}')
    if schema.version is not None:
        parts.append(f'"version":{schema.version}')
    if schema.doc is not None:
        parts.append(f'"doc":{_text(schema.doc)}')
    if schema.parameters:
        parts.append(f'"parameters":{_text(dict(schema.parameters))}')
    if schema.default is not None:
        parts.append(f'"default":{writer(schema, numbers, use_defaults)(schema.default)}')
    if field_name is not None:
        parts.append(f'"field":{_text(field_name)}')
    return "{" + ",".join(parts) + "}"


def _text(value: object) -> str:
    return dumps(value).decode()


def read_schema(document: Any, use_defaults: bool = False) -> Schema | None:
    """Return the schema that parsed JSON describes; None for a null.

    Args:
        use_defaults: Whether a null in a default becomes the default of its own schema.

    Raises:
        DataError: It is no schema that Connect knows.
    """
    if document is None:
        return None
    if not isinstance(document, dict):
        raise DataError(f"Schema must be a JSON object, but found {kind_of(document)}")
    known = cast(dict[str, Any], document)
    name = known.get("type")
    if not isinstance(name, str):
        raise DataError("Schema must contain 'type' field")
    kind = _TYPES.get(name)
    if kind is None:
        raise DataError(f"Unknown schema type: {name}")
    schema = _made(kind, known, use_defaults)
    default = known.get("default")
    if default is None:
        if "default" in known and not schema.optional:
            raise DataError(f"Invalid null value for required {kind.upper()} field: its default")
        return schema
    return replace(schema, default=reader(schema, use_defaults)(default))


def _made(kind: SchemaType, known: dict[str, Any], use_defaults: bool) -> Schema:
    keys = values = None
    fields: tuple[Field, ...] = ()
    if kind is SchemaType.ARRAY:
        values = _part(
            known, "items", "Array schema did not specify the element type", use_defaults
        )
    elif kind is SchemaType.MAP:
        keys = _part(known, "keys", "Map schema did not specify the key type", use_defaults)
        values = _part(known, "values", "Map schema did not specify the value type", use_defaults)
    elif kind is SchemaType.STRUCT:
        fields = _fields(known.get("fields"), use_defaults)
    name, version, doc = known.get("name"), known.get("version"), known.get("doc")
    return Schema(
        kind,
        known.get("optional") is True,
        None,
        name if isinstance(name, str) else None,
        version if isinstance(version, int) and not isinstance(version, bool) else None,
        doc if isinstance(doc, str) else None,
        _parameters(known.get("parameters")),
        fields,
        keys,
        values,
    )


def _part(known: dict[str, Any], member: str, message: str, use_defaults: bool) -> Schema:
    found = read_schema(known.get(member), use_defaults)
    if found is None:
        raise DataError(message)
    return found


def _fields(given: Any, use_defaults: bool) -> tuple[Field, ...]:
    if not _is_list(given):
        raise DataError('Struct schema\'s "fields" argument is not an array.')
    fields: list[Field] = []
    for found in given:
        name = cast(dict[str, Any], found).get("field") if isinstance(found, dict) else None
        if not isinstance(name, str):
            raise DataError("Struct schema's field name not specified properly")
        schema = read_schema(found, use_defaults)
        assert schema is not None  # it has a name
        fields.append(Field(name, schema))
    return tuple(fields)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _parameters(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        return {}
    parameters = cast(dict[str, Any], given)
    if not all(isinstance(value, str) for value in parameters.values()):
        raise DataError("Schema parameters must have string values.")
    return parameters
