"""Translation of Avro schemas, and of their values, into Connect's. Source:
AvroData.toConnectSchema.

Differs: microseconds and nanoseconds become the times of `headgate.connector.times`, where Java has
plain numbers. A schema does not get the registry's version, so it comes out as it went in. A schema
that contains itself is refused, by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headgate.connector import schema as s
from headgate.connector.data_error import DataError
from headgate.connector.schema import Field, Schema, SchemaType, logical_type, to_logical
from headgate.connector.times import UNIT_TIME, UNIT_TIMESTAMP, time_schema
from headgate_registry import avro_names as names
from headgate_registry.avro_defaults import carried_default
from headgate_registry.avro_tree import INNER, Tree, is_branch

Decode = Callable[[Any], Any]
"""Translates a value that fastavro has read into a Connect value."""

_PLAIN: Final[Mapping[str, Schema]] = {
    "boolean": s.BOOLEAN,
    "int": s.INT32,
    "long": s.INT64,
    "float": s.FLOAT32,
    "double": s.FLOAT64,
    "bytes": s.BYTES,
    "fixed": s.BYTES,
    "string": s.STRING,
}
_LOGICAL: Final[Mapping[tuple[str, str], Schema]] = {
    ("int", "date"): s.DATE_SCHEMA,
    ("int", "time-millis"): s.TIME_SCHEMA,
    ("long", "timestamp-millis"): s.TIMESTAMP_SCHEMA,
    ("long", "time-micros"): time_schema(UNIT_TIME, "us"),
    ("long", "timestamp-micros"): time_schema(UNIT_TIMESTAMP, "us", "UTC"),
    ("long", "timestamp-nanos"): time_schema(UNIT_TIMESTAMP, "ns", "UTC"),
    ("long", "local-timestamp-millis"): time_schema(UNIT_TIMESTAMP, "ms"),
    ("long", "local-timestamp-micros"): time_schema(UNIT_TIMESTAMP, "us"),
    ("long", "local-timestamp-nanos"): time_schema(UNIT_TIMESTAMP, "ns"),
}


@dataclass(frozen=True, slots=True)
class Reader:
    """A Connect schema, and the translation of its values. Without `decode`, values are as fastavro
    returns them."""

    schema: Schema
    decode: Decode | None


def reader_of(tree: Tree) -> Reader:
    """Return the reader of an Avro schema.

    Raises:
        DataError: Connect cannot express the schema. The message names the field.
    """
    return _Maker(tree).made(tree.root, "value")


@dataclass(slots=True)
class _Maker:
    tree: Tree
    inside: list[str] = field(default_factory=list[str])

    def made(self, node: Any, path: str, default: Any = None, doc: str | None = None) -> Reader:
        """Return the reader of a node.

        Args:
            default: default of the field, in Avro's JSON.
            doc: documentation of the field.
        """
        node = self.tree.at(node)
        if isinstance(node, list):
            return self._union(node, path, default, doc)
        props: dict[str, Any] = node if isinstance(node, dict) else {"type": node}
        kind = props["type"]
        if kind == "null":
            raise DataError(f"{path}: Connect has no type for values that are always null")
        name = props.get("name") if kind in ("record", "enum", "fixed") else None
        if name is not None:
            if name in self.inside:
                raise DataError(f"{path}: {name} contains itself, which Connect's schemas cannot")
            self.inside.append(name)
        try:
            found = self._plain(props, kind, path)
        finally:
            if name is not None:
                self.inside.pop()
        return self._finished(found, props, path, default, doc)

    def _plain(self, props: Mapping[str, Any], kind: str, path: str) -> Reader:
        if kind == "record":
            return self._record(props, path)
        if kind == "array":
            return self._array(props, path)
        if kind == "map":
            values = self.made(props["values"], f"{path}[]")
            return Reader(s.map_of(s.STRING, values.schema), _each_value(values.decode))
        if kind == "enum":
            marks = {f"{names.ENUM}.{one}": one for one in props["symbols"]}
            marks = {names.ENUM: str(props["name"]), **marks}
            return Reader(Schema(SchemaType.STRING, parameters=marks), None)
        logical = props.get("logicalType")
        if kind in ("bytes", "fixed") and logical == "decimal":
            return _decimal(props)
        if kind == "fixed":
            size = {names.FIXED_SIZE: str(props["size"])}
            return Reader(Schema(SchemaType.BYTES, parameters=size), None)
        narrow = props.get(names.CONNECT_TYPE)
        if kind == "int" and narrow in ("int8", "int16"):
            return Reader(Schema(SchemaType(narrow)), None)
        if kind not in _PLAIN:
            raise DataError(f"{path}: the type {kind!r} is none of Avro's")
        schema = _LOGICAL.get((kind, str(logical)), _PLAIN[kind])
        if names.CONNECT_NAME in props and logical_type(schema) is None:
            # A time of `headgate.connector.times`: `props` has its Connect name and parameters.
            schema = _PLAIN[kind]
        return Reader(schema, _carried(schema) if logical_type(schema) else None)

    def _record(self, props: Mapping[str, Any], path: str) -> Reader:
        fields: list[Field] = []
        decodes: list[tuple[str, Decode]] = []
        for one in props["fields"]:
            name = one["name"]
            made = self.made(one["type"], f"{path}.{name}", one.get("default"), one.get("doc"))
            fields.append(Field(name, made.schema))
            if made.decode is not None:
                decodes.append((name, made.decode))
        schema = Schema(SchemaType.STRUCT, fields=tuple(fields))
        if not decodes:
            return Reader(schema, None)

        def decode(value: Any) -> Any:
            for name, field_decode in decodes:
                try:
                    value[name] = field_decode(value[name])
                except DataError as error:
                    raise DataError(f"field {name}: {error}") from error
            return value

        return Reader(schema, decode)

    def _array(self, props: Mapping[str, Any], path: str) -> Reader:
        items = self.tree.at(props["items"])
        if _is_entry(items):
            return self._pairs(items, path)
        made = self.made(items, f"{path}[]")
        decode = made.decode
        if decode is None:
            return Reader(s.array(made.schema), None)
        each = decode
        return Reader(s.array(made.schema), lambda value: [each(one) for one in value])

    def _pairs(self, entry: Mapping[str, Any], path: str) -> Reader:
        key_node, value_node = (one["type"] for one in entry["fields"])
        keys = self.made(key_node, f"a key of {path}")
        values = self.made(value_node, f"{path}[]")
        key_decode, value_decode = keys.decode or _same, values.decode or _same

        def decode(value: Any) -> Any:
            try:
                found = {
                    key_decode(one[names.KEY]): value_decode(one[names.VALUE]) for one in value
                }
            except TypeError as error:
                raise DataError(f"{path}: a struct or list as key has no form here") from error
            if len(found) != len(value):
                raise DataError(f"{path}: a map has one key twice")
            return found

        made = s.map_of(keys.schema, values.schema)
        name = entry["name"].rpartition(".")[2]
        unnamed = entry["name"].startswith(names.NAMESPACE) and name.startswith(names.MAP_ENTRY)
        return Reader(made if unnamed else replace(made, name=entry["name"]), decode)

    def _union(self, node: list[Any], path: str, default: Any, doc: str | None) -> Reader:
        members = [one for one in node if one != "null"]
        optional = len(members) < len(node)
        if not members:
            raise DataError(f"{path}: Connect has no type for values that are always null")
        if len(members) == 1 and not is_branch(members[0]):
            made = self.made(members[0], path, default, doc)
            if not optional:
                return made
            return Reader(made.schema.as_optional(), _or_null(made.decode))
        return self._branches(members, optional, path, default, doc)

    def _branches(
        self, members: list[Any], optional: bool, path: str, default: Any, doc: str | None
    ) -> Reader:
        fields: list[Field] = []
        decodes: dict[str, tuple[str, Decode]] = {}
        for one in members:
            inner = one["fields"][0]["type"]
            name = member_name(self.tree.at(inner))
            made = self.made(inner, f"{path}.{name}")
            fields.append(Field(name, made.schema.as_optional()))
            decodes[one["name"]] = name, made.decode or _same

        def decode(value: Any) -> Any:
            if value is None:
                return None
            branch, found = value
            name, inner_decode = decodes[branch]
            return {name: inner_decode(found[INNER])}

        schema = Schema(
            SchemaType.STRUCT, optional, name=names.UNION, doc=doc, fields=tuple(fields)
        )
        if default is not None:
            wrapped = [*members, "null"] if optional else members
            found = decode(carried_default(self.tree, wrapped, default, path))
            schema = replace(schema, default=found)
        return Reader(schema, decode)

    def _finished(
        self, found: Reader, props: Mapping[str, Any], path: str, default: Any, doc: str | None
    ) -> Reader:
        schema = found.schema
        name = props.get(names.CONNECT_NAME, schema.name)
        full = str(props.get("name"))
        if name is None and props["type"] in ("record", "enum") and not names.is_default(full):
            name = full
        version = props.get(names.CONNECT_VERSION, schema.version)
        own = props.get(names.CONNECT_PARAMETERS) or {}
        made = replace(
            schema,
            name=name,
            version=version if isinstance(version, int) else None,
            doc=doc or props.get("doc") or props.get(names.CONNECT_DOC),
            parameters={**schema.parameters, **{key: str(text) for key, text in own.items()}},
        )
        if default is None:
            default = props.get(names.CONNECT_DEFAULT)
        if default is not None:
            carried = carried_default(self.tree, dict(props), default, path)
            value = found.decode(carried) if found.decode is not None else carried
            made = replace(made, default=value)
        return Reader(made, found.decode)


def member_name(node: Any) -> str:
    """Return the name of the field for a branch of a union."""
    if isinstance(node, str):
        return node
    return str(node.get("name") or node["type"]).rpartition(".")[2]


def _decimal(props: Mapping[str, Any]) -> Reader:
    precision = props.get("precision")
    kept = None if precision in (None, names.PRECISION_DEFAULT) else int(str(precision))
    schema = s.decimal_of(int(props.get("scale") or 0), kept)
    if props["type"] == "fixed":
        size = {names.FIXED_SIZE: str(props["size"])}
        schema = replace(schema, parameters={**schema.parameters, **size})

    def decode(value: Any) -> Any:
        return to_logical(schema, int.from_bytes(value, "big", signed=True))

    return Reader(schema, decode)


def _carried(schema: Schema) -> Decode:
    return lambda value: to_logical(schema, value)


def _each_value(decode: Decode | None) -> Decode | None:
    if decode is None:
        return None
    return lambda value: {key: decode(one) for key, one in value.items()}


def _or_null(decode: Decode | None) -> Decode | None:
    if decode is None:
        return None
    return lambda value: None if value is None else decode(value)


def _same(value: Any) -> Any:
    return value


def _is_entry(node: Any) -> bool:
    """Return whether a record is an entry of a map. Source: AvroData.isMapEntry."""
    if not isinstance(node, dict) or node["type"] != "record":
        return False
    if [one["name"] for one in node["fields"]] != [names.KEY, names.VALUE]:
        return False
    marked = node.get(names.INTERNAL_TYPE) == names.MAP_ENTRY
    return marked or node["name"] == f"{names.NAMESPACE}.{names.MAP_ENTRY}"
