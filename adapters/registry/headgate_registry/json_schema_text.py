"""Translation of Connect schemas into JSON Schema and back. Source: JsonSchemaData (Confluent 7.x).

Differs: properties that are not in the schema are refused, where Java drops them (see the
converter). A choice of several types, and a reference to another document, are refused. The error
names the path.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from headgate.connector import schema as s
from headgate.connector.data_error import DataError
from headgate.connector.json_values import DecimalFormat, Own, reader, writer
from headgate.connector.schema import DECIMAL, Field, Schema, SchemaType, is_dict, logical_type

TYPE: Final = "connect.type"
INDEX: Final = "connect.index"
VERSION: Final = "connect.version"
PARAMETERS: Final = "connect.parameters"
ENUM: Final = "io.confluent.connect.json.Enum"
KEY, VALUE = "key", "value"

_JSON: Final[Mapping[SchemaType, str]] = {
    SchemaType.INT8: "integer",
    SchemaType.INT16: "integer",
    SchemaType.INT32: "integer",
    SchemaType.INT64: "integer",
    SchemaType.FLOAT32: "number",
    SchemaType.FLOAT64: "number",
    SchemaType.BOOLEAN: "boolean",
    SchemaType.STRING: "string",
    SchemaType.BYTES: "string",
    SchemaType.ARRAY: "array",
    SchemaType.STRUCT: "object",
}
_PLAIN: Final[Mapping[str, Schema]] = {
    "integer": s.INT64,
    "number": s.FLOAT64,
    "boolean": s.BOOLEAN,
    "string": s.STRING,
}
_NULL: Final = {"type": "null"}


def has_text_keys(schema: Schema) -> bool:
    """Return whether a MAP is an object in JSON. Otherwise it is a list of objects with key and
    value."""
    keys = cast(Schema, schema.key_schema)
    return keys.type is SchemaType.STRING and not keys.optional


# -- from Connect --


def json_schema_of(schema: Schema, index: int | None = None) -> dict[str, Any]:
    """Return the JSON Schema of a Connect schema, as parsed JSON.

    Args:
        index: place of the field in its struct, if it is a field.
    """
    made = _required(schema)
    if schema.optional:
        made = {"oneOf": [_NULL, made]}
    if index is not None:
        made[INDEX] = index
    return made


def _required(schema: Schema) -> dict[str, Any]:
    kind = schema.type
    made: dict[str, Any]
    if kind is SchemaType.MAP:
        made = _map(schema)
    elif logical_type(schema) == DECIMAL:
        made = {"type": "number", TYPE: "bytes"}
    else:
        made = {"type": _JSON[kind]}
        if kind not in (*_ITSELF, SchemaType.STRUCT, SchemaType.ARRAY):
            made[TYPE] = kind.value
    if kind is SchemaType.ARRAY:
        made["items"] = json_schema_of(cast(Schema, schema.value_schema))
    if kind is SchemaType.STRUCT:
        made["properties"] = {
            one.name: json_schema_of(one.schema, place) for place, one in enumerate(schema.fields)
        }
    if schema.name is not None:
        made["title"] = schema.name
    if schema.version is not None:
        made[VERSION] = schema.version
    if schema.doc is not None:
        made["description"] = schema.doc
    if schema.parameters:
        made[PARAMETERS] = dict(schema.parameters)
    if schema.default is not None:
        write = writer(schema, DecimalFormat.BASE64, False, own_maps(DecimalFormat.BASE64))
        made["default"] = json.loads(write(schema.default))
    return made


_ITSELF: Final = (SchemaType.BOOLEAN, SchemaType.STRING)
"""Connect types that follow from JSON's type alone."""


def _map(schema: Schema) -> dict[str, Any]:
    keys, values = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
    if has_text_keys(schema):
        return {"type": "object", TYPE: "map", "additionalProperties": json_schema_of(values)}
    pair = {KEY: json_schema_of(keys, 0), VALUE: json_schema_of(values, 1)}
    return {"type": "array", TYPE: "map", "items": {"type": "object", "properties": pair}}


def own_maps(numbers: DecimalFormat, use_defaults: bool = False) -> Own:
    """Return the writer of maps whose keys are not texts, as JsonSchemaConverter writes them. It is
    for `json_values.writer`."""

    def own(schema: Schema) -> Any:
        if schema.type is not SchemaType.MAP or has_text_keys(schema):
            return None
        key_of = writer(cast(Schema, schema.key_schema), numbers, use_defaults, own)
        value_of = writer(cast(Schema, schema.value_schema), numbers, use_defaults, own)

        def write(value: Any) -> str:
            pairs = [
                f'{{"{KEY}":{key_of(key)},"{VALUE}":{value_of(one)}}}' for key, one in value.items()
            ]
            return "[" + ",".join(pairs) + "]"

        return write

    return own


# -- to Connect --


def connect_schema_of(document: Any, use_optional: bool = False) -> Schema:
    """Return the Connect schema of a JSON Schema.

    Args:
        document: the JSON Schema, as parsed JSON.
        use_optional: a property that is not in ``required`` is optional.

    Raises:
        DataError: Connect cannot express the schema. The message names the path.
    """
    return _Reader(document, use_optional).made(document, "value", ())


class _Reader:
    def __init__(self, document: Any, use_optional: bool) -> None:
        self._document = document
        self._use_optional = use_optional

    def made(self, node: Any, path: str, inside: tuple[str, ...]) -> Schema:
        if not is_dict(node):
            raise DataError(f"{path}: a schema is {node!r}, expected an object")
        if "$ref" in node:
            return self._reference(node, path, inside)
        for key in ("oneOf", "anyOf", "type"):
            choice = node.get(key)
            if isinstance(choice, list):
                return self._choice(node, key, choice, path, inside)
        if "allOf" in node:
            raise DataError(f"{path}: allOf has no form in Connect's schemas")
        return self._plain(node, path, inside)

    def _reference(self, node: dict[str, Any], path: str, inside: tuple[str, ...]) -> Schema:
        pointer = str(node["$ref"])
        if pointer in inside:
            raise DataError(f"{path}: {pointer} contains itself, which Connect's schemas cannot")
        if not pointer.startswith("#"):
            raise DataError(f"{path}: {pointer} is in another document; only #/... can be read")
        found = self._document
        for part in pointer[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not is_dict(found) or name not in found:
                raise DataError(f"{path}: {pointer} leads nowhere")
            found = found[name]
        return self.made(found, path, (*inside, pointer))

    def _choice(
        self,
        node: dict[str, Any],
        key: str,
        choice: list[Any],
        path: str,
        inside: tuple[str, ...],
    ) -> Schema:
        rest = [one for one in choice if one not in (_NULL, "null")]
        if len(rest) != 1:
            raise DataError(
                f"{path}: {key} of {len(rest)} types has no form here, expected one type or null"
            )
        if key == "type":
            inner = {**node, "type": rest[0]}
        else:
            inner = {**{k: v for k, v in node.items() if k not in (key, INDEX)}, **rest[0]}
        made = self.made(inner, path, inside)
        return made.as_optional() if len(rest) < len(choice) else made

    def _plain(self, node: dict[str, Any], path: str, inside: tuple[str, ...]) -> Schema:
        kind, connect = node.get("type"), node.get(TYPE)
        parameters = {str(k): str(v) for k, v in (node.get(PARAMETERS) or {}).items()}
        if connect == "map":
            schema = self._map(node, path, inside)
        elif kind == "array":
            if "items" not in node:
                raise DataError(f"{path}: an array without items has no form in Connect's schemas")
            schema = s.array(self.made(node["items"], f"{path}[]", inside))
        elif kind == "object" or (kind is None and "properties" in node):
            schema = self._struct(node, path, inside)
        elif kind in _PLAIN:
            try:
                schema = Schema(SchemaType(connect)) if connect else _PLAIN[str(kind)]
            except ValueError:
                raise DataError(f"{path}: {TYPE} is {connect!r}, a type of Connect's") from None
        elif "enum" in node and all(isinstance(one, str) for one in node["enum"]):
            schema = s.STRING
        else:
            raise DataError(f"{path}: the type {kind!r} has no form in Connect's schemas")
        if "enum" in node and schema.type is SchemaType.STRING and ENUM not in parameters:
            marks = {f"{ENUM}.{one}": str(one) for one in node["enum"]}
            parameters = {ENUM: str(node.get("title", "")), **marks, **parameters}
        title, version, doc = node.get("title"), node.get(VERSION), node.get("description")
        schema = replace(schema, name=title, version=version, doc=doc, parameters=parameters)
        default = node.get("default")
        if default is None:
            return schema
        return replace(schema, default=reader(schema, False)(pairs_of(schema)(default)))

    def _map(self, node: dict[str, Any], path: str, inside: tuple[str, ...]) -> Schema:
        if node.get("type") == "object":
            values = self.made(node.get("additionalProperties"), f"{path}[]", inside)
            return s.map_of(s.STRING, values)
        pair = (node.get("items") or {}).get("properties") or {}
        keys = self.made(pair.get(KEY), f"a key of {path}", inside)
        return s.map_of(keys, self.made(pair.get(VALUE), f"{path}[]", inside))

    def _struct(self, node: dict[str, Any], path: str, inside: tuple[str, ...]) -> Schema:
        given = list((node.get("properties") or {}).items())
        given.sort(key=lambda pair: pair[1].get(INDEX, len(given)) if is_dict(pair[1]) else 0)
        required = node.get("required") or ()
        fields: list[Field] = []
        for name, one in given:
            schema = self.made(one, f"{path}.{name}", inside)
            if self._use_optional and name not in required:
                schema = schema.as_optional()
            fields.append(Field(name, schema))
        return Schema(SchemaType.STRUCT, fields=tuple(fields))


def pairs_of(schema: Schema, path: str = "value") -> Any:
    """Return a function that converts parsed JSON to the form of Connect's own JSON, in which maps
    are lists of pairs.

    The function raises `DataError` for a property that the schema does not have. The message names
    the property.
    """
    if schema.type is SchemaType.STRUCT:
        fields = {one.name: pairs_of(one.schema, f"{path}.{one.name}") for one in schema.fields}

        def of_struct(value: Any) -> Any:
            if not is_dict(value):
                return value  # `json_values.reader` reports the fault
            for name in value:
                if name not in fields:
                    raise DataError(f"{path}.{name} is no property of the schema")
            return {name: fields[name](one) for name, one in value.items()}

        return of_struct
    if schema.type is SchemaType.ARRAY:
        item = pairs_of(cast(Schema, schema.value_schema), f"{path}[]")
        return lambda value: [item(one) for one in value] if isinstance(value, list) else value
    if schema.type is not SchemaType.MAP:
        return lambda value: value
    each = pairs_of(cast(Schema, schema.value_schema), f"{path}[]")
    if has_text_keys(schema):
        return lambda value: (
            {key: each(one) for key, one in value.items()} if is_dict(value) else value
        )
    as_pairs = cast(Schema, schema.key_schema).type is not SchemaType.STRING
    key_of = pairs_of(cast(Schema, schema.key_schema), f"a key of {path}")

    def of_map(value: Any) -> Any:
        if value is None:
            return None  # `json_values.reader` checks whether the schema allows it
        try:
            pairs = [[key_of(one[KEY]), each(one[VALUE])] for one in value]
        except (TypeError, KeyError) as error:
            raise DataError(f"{path} is no list of objects with key and value") from error
        if as_pairs:
            return pairs  # `json_values.reader` refuses a duplicate key
        found = dict(cast("list[tuple[Any, Any]]", pairs))
        if len(found) < len(pairs):
            raise DataError(f"{path} has a key twice, expected each once")
        return found

    return of_map
