"""Generated schemas with names that schema languages accept: letters, digits and _."""

from dataclasses import replace
from typing import Any, cast

from headgate.connector.schema import Field, Schema, SchemaType


def named(schema: Schema, value: Any) -> tuple[Schema, Any]:
    """Return the same schema and value, with valid names for structs and their fields."""
    made = _schema(schema)
    return made, _value(schema, value)


def _name(name: str) -> str:
    return "n" + name.encode().hex()


def _schema(schema: Schema) -> Schema:
    given: dict[str, Any] = {}
    if schema.type is SchemaType.STRUCT:
        given["fields"] = tuple(
            [Field(_name(one.name), _schema(one.schema)) for one in schema.fields]
        )
    for part in ("key_schema", "value_schema"):
        inner = cast("Schema | None", getattr(schema, part))
        if inner is not None:
            given[part] = _schema(inner)
    if schema.default is not None:
        given["default"] = _value(schema, schema.default)
    if schema.name is not None and schema.type in (SchemaType.STRUCT, SchemaType.MAP):
        given["name"] = _name(schema.name)
    if schema.version is not None:
        given["version"] = abs(schema.version) % 2**31  # Java's converters take -1 for none
    return replace(schema, **given)


def _value(schema: Schema, value: Any) -> Any:
    if value is None:
        return None
    if schema.type is SchemaType.STRUCT:
        return {
            _name(one.name): _value(one.schema, value[one.name])
            for one in schema.fields
            if one.name in value
        }
    if schema.type is SchemaType.ARRAY:
        return [_value(cast(Schema, schema.value_schema), one) for one in value]
    if schema.type is SchemaType.MAP:
        return {key: _value(cast(Schema, schema.value_schema), one) for key, one in value.items()}
    return value
