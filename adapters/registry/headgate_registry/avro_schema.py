"""Translation of Connect schemas into Avro's. Source: AvroData.fromConnectSchema (Confluent 7.x).

Differs: microseconds and nanoseconds of `headgate.connector.times` get Avro's logical type, beside
their Connect name. Two structs of one name with different fields are refused, by that name.
"""

from dataclasses import dataclass, field
from typing import Any, Final, cast

from headgate.connector import schema as s
from headgate.connector.data_error import DataError
from headgate.connector.schema import (
    DECIMAL,
    PRECISION,
    Schema,
    SchemaType,
    from_logical,
    logical_type,
)
from headgate.connector.times import TIMEZONE, UNIT, UNIT_TIME, UNIT_TIMESTAMP, is_unit_time
from headgate_registry import avro_names as names

_PLAIN: Final = {
    SchemaType.INT8: "int",
    SchemaType.INT16: "int",
    SchemaType.INT32: "int",
    SchemaType.INT64: "long",
    SchemaType.FLOAT32: "float",
    SchemaType.FLOAT64: "double",
    SchemaType.BOOLEAN: "boolean",
    SchemaType.STRING: "string",
    SchemaType.BYTES: "bytes",
}
LOGICAL: Final = {
    s.DATE: "date",
    s.TIME: "time-millis",
    s.TIMESTAMP: "timestamp-millis",
    s.DECIMAL: "decimal",
}
UNITS: Final = {"us": "micros", "ns": "nanos"}


def avro_of(schema: Schema, *, meta: bool = True, enums: bool = False) -> Any:
    """Return the Avro schema of a Connect schema, as parsed JSON.

    Args:
        meta: include the properties that only Connect reads.
        enums: make an enum of a STRING that was one.

    Raises:
        DataError: Avro cannot express the schema. The message names the field.
    """
    return _short(_Maker(meta, enums).made(schema, "value"), None)


def _short(node: Any, around: str | None) -> Any:
    """Return a node without namespaces that equal the one around the type, as Avro's Java library
    writes it."""
    if isinstance(node, str):
        namespace, _, name = node.rpartition(".")
        return name if namespace and namespace == around else node
    if isinstance(node, list):
        return [_short(one, around) for one in node]
    made = dict(node)
    if "name" in node:
        inner = node.get("namespace")
        if inner == around:
            made.pop("namespace", None)
        elif inner is None:
            made["namespace"] = ""
        around = inner
    if "fields" in node:
        made["fields"] = [{**one, "type": _short(one["type"], around)} for one in node["fields"]]
    for key in ("items", "values"):
        if key in node:
            made[key] = _short(node[key], around)
    return made


@dataclass(slots=True)
class _Maker:
    meta: bool
    enums: bool
    known: dict[str, Any] = field(default_factory=dict[str, Any])
    """Definitions by full name. A second use of a definition is written as its name alone."""
    structs: list[tuple[Schema, str]] = field(default_factory=list[tuple[Schema, str]])
    """Structs without a name, each with the name that it was given."""
    entries: list[tuple[Schema | None, Schema | None]] = field(
        default_factory=list[tuple[Schema | None, Schema | None]]
    )
    """(key schema, value schema) of maps without a name, in the order of their entries' numbers."""

    def made(self, schema: Schema, path: str) -> Any:
        found = self._required(schema, path)
        if not schema.optional or isinstance(found, list):
            return found
        return [found, "null"] if schema.default is not None else ["null", found]

    def _required(self, schema: Schema, path: str) -> Any:
        kind = schema.type
        if kind is SchemaType.STRUCT:
            return self._struct(schema, path)
        if kind is SchemaType.ARRAY:
            items = self.made(cast(Schema, schema.value_schema), f"{path}[]")
            return self._finished({"type": "array", "items": items}, schema, path)
        if kind is SchemaType.MAP:
            return self._map(schema, path)
        if kind is SchemaType.STRING and self.enums and names.ENUM in schema.parameters:
            return self._enum(schema, path)
        node: dict[str, Any] = {"type": _PLAIN[kind]}
        if kind is SchemaType.BYTES and (size := schema.parameters.get(names.FIXED_SIZE)):
            name, namespace = self._struct_name(schema, path)
            node = {"type": "fixed", "name": name, "namespace": namespace, "size": int(size)}
        if kind in (SchemaType.INT8, SchemaType.INT16):
            node[names.CONNECT_TYPE] = kind.value
        return self._finished(node, schema, path)

    def _struct(self, schema: Schema, path: str) -> Any:
        if schema.name == names.UNION:
            members = [self.made(one.schema.as_required(), path) for one in schema.fields]
            return ["null", *members] if schema.optional else members
        name, namespace = self._struct_name(schema, path)
        fields = [self._field(one.name, one.schema, f"{path}.{one.name}") for one in schema.fields]
        node = {"type": "record", "name": name, "namespace": namespace, "fields": fields}
        return self._finished(node, schema, path)

    def _field(self, name: str, schema: Schema, path: str) -> dict[str, Any]:
        made: dict[str, Any] = {
            "name": names.check_name(name, path),
            "type": self.made(schema, path),
        }
        if schema.default is not None:
            made["default"] = json_default(schema, schema.default, path)
        elif schema.optional:
            made["default"] = None
        return made

    def _map(self, schema: Schema, path: str) -> Any:
        keys, values = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
        if keys.type is SchemaType.STRING and not keys.optional:
            value = self.made(values, f"{path}[]")
            return self._finished({"type": "map", "values": value}, schema, path)
        name, namespace = self._entry_name(schema, path)
        fields = [
            self._field(names.KEY, keys, f"a key of {path}"),
            self._field(names.VALUE, values, f"{path}[]"),
        ]
        entry: dict[str, Any] = {
            "type": "record",
            "name": name,
            "namespace": namespace,
            "fields": fields,
        }
        if (name, namespace) != (names.MAP_ENTRY, names.NAMESPACE):
            entry[names.INTERNAL_TYPE] = names.MAP_ENTRY
        return self._finished({"type": "array", "items": self._once(entry, path)}, schema, path)

    def _enum(self, schema: Schema, path: str) -> Any:
        full = schema.parameters[names.ENUM]
        name, namespace = names.split_name(full, path)
        prefix = names.ENUM + "."
        symbols = [key.removeprefix(prefix) for key in schema.parameters if key.startswith(prefix)]
        node = {"type": "enum", "name": name, "namespace": namespace, "symbols": symbols}
        return self._finished(node, schema, path)

    def _struct_name(self, schema: Schema, path: str) -> tuple[str, str | None]:
        """Return the name and namespace of a struct. Equal structs without a name get the same
        name."""
        if schema.name is not None:
            return names.split_name(schema.name, path)
        like = schema.as_required()
        for known, name in self.structs:
            if known == like:
                return name, names.NAMESPACE
        count = len(self.structs) + 1
        name = names.DEFAULT_NAME if count == 1 else f"{names.DEFAULT_NAME}{count}"
        self.structs.append((like, name))
        return name, names.NAMESPACE

    def _entry_name(self, schema: Schema, path: str) -> tuple[str, str | None]:
        """Return the name and namespace of a map's entry.

        Equal entries of maps without a name get the same name. Java also gives it to different
        entries, and then cannot read the schema.
        """
        if schema.name is not None:
            return names.split_name(schema.name, path)
        like = schema.key_schema, schema.value_schema
        if like not in self.entries:
            self.entries.append(like)
        number = self.entries.index(like)
        return names.MAP_ENTRY + (str(number + 1) if number else ""), names.NAMESPACE

    def _finished(self, node: dict[str, Any], schema: Schema, path: str) -> Any:
        if logical_type(schema) == DECIMAL:
            node["scale"] = schema.scale
            node["precision"] = int(schema.parameters.get(PRECISION, names.PRECISION_DEFAULT))
        logical = LOGICAL.get(logical_type(schema) or "") or _unit_type(schema)
        if logical is not None:
            node["logicalType"] = logical
        if self.meta:
            self._add_meta(node, schema, path)
        if "name" in node:
            return self._once(node, path)
        return node["type"] if len(node) == 1 else node

    def _add_meta(self, node: dict[str, Any], schema: Schema, path: str) -> None:
        if schema.doc is not None:
            node[names.CONNECT_DOC] = schema.doc
        if schema.version is not None:
            node[names.CONNECT_VERSION] = schema.version
        if schema.parameters:
            node[names.CONNECT_PARAMETERS] = dict(schema.parameters)
        if schema.default is not None:
            node[names.CONNECT_DEFAULT] = json_default(schema, schema.default, path)
        if schema.name is not None:
            node[names.CONNECT_NAME] = schema.name

    def _once(self, node: dict[str, Any], path: str) -> Any:
        if node.get("namespace") is None:
            node.pop("namespace", None)
        full = names.full_name(node, None)
        known = self.known.setdefault(full, node)
        if known is node:
            return node
        if known != node:
            raise DataError(
                f"{path}: two schemas have the name {full} and differ, expected one for each name: "
                "give one of them another name"
            )
        return full


def _unit_type(schema: Schema) -> str | None:
    unit = UNITS.get(schema.parameters.get(UNIT, ""))
    if unit is None or not is_unit_time(schema):
        return None
    if schema.name == UNIT_TIME:
        return "time-micros" if unit == "micros" else None
    if schema.name == UNIT_TIMESTAMP:
        return f"timestamp-{unit}" if TIMEZONE in schema.parameters else f"local-timestamp-{unit}"
    return None


def json_default(schema: Schema, value: Any, path: str) -> Any:
    """Return a default in Avro's JSON, in which bytes are a text with one character for each byte.

    Raises:
        DataError: the default is a number that JSON does not have (NaN or an infinity).
    """
    kind, logical = schema.type, logical_type(schema)
    if value is None:
        return None
    if logical == DECIMAL:
        return decimal_bytes(from_logical(schema, value)).decode("latin-1")
    if logical is not None:
        return from_logical(schema, value)
    if kind is SchemaType.BYTES:
        return bytes(value).decode("latin-1")
    if kind is SchemaType.ARRAY:
        items = cast(Schema, schema.value_schema)
        return [json_default(items, one, path) for one in value]
    if kind is SchemaType.STRUCT:
        return {
            one.name: json_default(one.schema, value.get(one.name), path) for one in schema.fields
        }
    if kind is SchemaType.MAP:
        keys, values = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
        pairs = [
            (json_default(keys, a, path), json_default(values, b, path)) for a, b in value.items()
        ]
        if keys.type is SchemaType.STRING and not keys.optional:
            return dict(pairs)
        return [{names.KEY: a, names.VALUE: b} for a, b in pairs]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise DataError(f"{path}: the default {value} has no form in a schema of Avro")
    return value


def decimal_bytes(number: int) -> bytes:
    """Return the two's complement of `number` in as few bytes as possible, big-endian."""
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(length, "big", signed=True)
