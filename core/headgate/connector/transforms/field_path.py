"""Paths to fields, in the syntaxes V1 (one name) and V2 (names separated by dots).

Source: KIP-821, `SingleFieldPath`, `FieldSyntaxVersion` (4.3.1).
"""

from typing import Final, cast

from headgate.connector.api import DataError, Value
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.schema import Field, Schema, SchemaType
from headgate.connector.transforms.structs import Map, null_of, require_map, require_struct
from headgate.connector.validators import one_of_any_case

SYNTAX: Final = "field.syntax.version"
_NESTED: Final = "nested field access"


def define_syntax(config: ConfigDef) -> ConfigDef:
    """Return `config` with the key for the syntax added."""
    return config.define(
        SYNTAX,
        Type.STRING,
        "V1",
        one_of_any_case("V1", "V2"),
        Importance.HIGH,
        "V1: a field is named as it is, at the top of the struct or map. V2: dots lead to nested "
        "fields; a name that has dots itself stands between backticks, as in `foo.bar`.baz.",
    )


def parse_path(text: str, version: str) -> tuple[str, ...]:
    """Return the names on the path to the field.

    Raises:
        ConfigError: A backtick has no partner, or (V2) there is no name.
    """
    if version.upper() == "V1":
        return (text,)
    if not text:
        raise ConfigError("The path of a field is empty, expected one name at least")
    steps: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "`":
            step, at = _quoted(text, at)
        else:
            end = text.find(".", at)
            end = len(text) if end < 0 else end
            step, at = text[at:end], end + 1
        steps.append(step)
    if text.endswith("."):
        steps.append("")
    return tuple(steps)


def _quoted(text: str, opened: int) -> tuple[str, int]:
    """Return the name that begins with the backtick at `opened`, and the position of the next
    name."""
    name = ""
    start = at = opened + 1
    while True:
        at = text.find("`", at)
        escaped = at > 0 and text[at - 1] == "\\"
        last = at >= len(text) - 1
        if at < 0 or (last and escaped):
            raise ConfigError(
                f"Incomplete backtick pair in path: [{text}], consider adding a backslash before "
                f"backtick at position {opened} to escape it"
            )
        if last:
            return name + text[start:at], at + 1
        if text[at + 1] != ".":  # part of the name
            at += 1
        elif escaped:
            name += text[start : at - 1] + "`"
            at += 1
            start = at
        else:
            return name + text[start:at], at + 2


def value_in_map(path: tuple[str, ...], value: Map) -> Value:
    """Return the value at the end of `path`; None if a part of the path is missing. Raises
    DataError if a part is no map."""
    for step in path[:-1]:
        found = value.get(step)
        if found is None:
            return None
        value = require_map(found, _NESTED)
    return value.get(path[-1])


def field_in_schema(path: tuple[str, ...], schema: Schema) -> Field | None:
    """Return the field at the end of `path`; None if a part of the path is missing.

    Raises:
        DataError: A part of the path is no struct.
    """
    current = schema
    field: Field | None = None
    for step in path:
        if current.type is not SchemaType.STRUCT:
            raise DataError("Cannot look up fields on non-struct type")
        field = current.field(step)
        if field is None:
            return None
        current = field.schema
    return field


def value_in_struct(path: tuple[str, ...], schema: Schema, value: Map, use_defaults: bool) -> Value:
    """Return the value at the end of `path`, which `schema` has. Structs on the path that are null
    are replaced by their defaults, whatever `use_defaults` says about the last field."""
    for step in path[:-1]:
        field = cast(Field, schema.field(step))
        found = value.get(step)
        if found is None:
            found = field.schema.default
        if found is None:
            return None
        value = require_struct(field.schema, found, _NESTED)
        schema = field.schema
    last = cast(Field, schema.field(path[-1]))
    found = value.get(last.name)
    return null_of(last, use_defaults) if found is None else found
