"""Translation of Connect values into values for fastavro, under their own schema or another one.

Source: AvroData.fromConnectData. Differs: under another schema (`use.latest.version`), a record is
refused if a field would be left out or a logical type would change. The error names the field.
"""

from collections.abc import Callable
from typing import Any, Final, cast

from headgate.connector.data_error import DataError
from headgate.connector.schema import (
    DECIMAL,
    Schema,
    SchemaType,
    from_logical,
    logical_type,
    unscaled,
)
from headgate_registry import avro_names as names
from headgate_registry.avro_defaults import carried_default
from headgate_registry.avro_read import member_name
from headgate_registry.avro_schema import LOGICAL, decimal_bytes
from headgate_registry.avro_tree import INNER, Tree, is_branch

Encode = Callable[[Any], Any]

_TARGETS: Final = {
    SchemaType.INT8: ("int", "long"),
    SchemaType.INT16: ("int", "long"),
    SchemaType.INT32: ("int", "long"),
    SchemaType.INT64: ("long",),
    SchemaType.FLOAT32: ("float", "double"),
    SchemaType.FLOAT64: ("double",),
    SchemaType.BOOLEAN: ("boolean",),
    SchemaType.STRING: ("string", "enum"),
    SchemaType.BYTES: ("bytes", "fixed"),
    SchemaType.ARRAY: ("array",),
    SchemaType.MAP: ("map", "array"),
    SchemaType.STRUCT: ("record",),
}


class Encoders:
    """A factory of functions that translate values of a Connect schema into values that fastavro
    writes under an Avro schema."""

    def __init__(self, tree: Tree, *, keep_nulls: bool) -> None:
        """
        Args:
            keep_nulls: write a null as a null, even if its schema has a default.
        """
        self._tree = tree
        self._keep_nulls = keep_nulls

    def of(
        self, schema: Schema, node: Any, path: str = "value", *, of_struct: bool = False
    ) -> Encode:
        """Return the function for a Connect schema and a node of the Avro schema.

        Args:
            of_struct: the schema is that of a struct's field. A null there is its default, as in
                Java's Struct. A null in a list or map remains null.

        Raises:
            DataError: the node cannot hold every value of the schema. The message names the field.
        """
        node = self._tree.at(node)
        if isinstance(node, list):
            return self._into_union(schema, node, path, of_struct)
        write = self._required(schema, node, path)
        if self._takes_default(schema, of_struct):
            default = write(schema.default)
            return lambda value: default if value is None else write(value)
        if schema.optional:
            raise DataError(f"{path} may be null, expected a required one: so {_shown(node)} is")
        return write

    def _takes_default(self, schema: Schema, of_struct: bool) -> bool:
        if schema.default is None:
            return False
        return not schema.optional or (of_struct and not self._keep_nulls)

    def _into_union(self, schema: Schema, node: list[Any], path: str, of_struct: bool) -> Encode:
        if schema.type is SchemaType.STRUCT and schema.name == names.UNION:
            write = self._from_branches(schema, node, path)
        else:
            write = self._first_that_fits(schema, node, path)
        null: Any = None
        if self._takes_default(schema, of_struct):
            null = write(schema.default)
        elif schema.optional and "null" not in node:
            raise DataError(f"{path} may be null, which the schema's union does not have")
        return lambda value: null if value is None else write(value)

    def _first_that_fits(self, schema: Schema, node: list[Any], path: str) -> Encode:
        errors: list[DataError] = []
        for one in node:
            if one == "null":
                continue
            try:
                if is_branch(one):
                    return _wrapped(one, self._required(schema, one["fields"][0]["type"], path))
                return self._required(schema, one, path)
            except DataError as error:
                errors.append(error)
        raise errors[0] if errors else DataError(f"{path} has only nulls in the schema")

    def _from_branches(self, schema: Schema, node: list[Any], path: str) -> Encode:
        ways: dict[str, Encode] = {}
        known = {
            member_name(self._tree.at(one["fields"][0]["type"])): one
            for one in node
            if is_branch(one)
        }
        for one in schema.fields:
            branch = known.get(one.name)
            if branch is None:
                raise DataError(f"{path}.{one.name} is no type of the schema's union")
            inner = branch["fields"][0]["type"]
            ways[one.name] = _wrapped(
                branch, self._required(one.schema, inner, f"{path}.{one.name}")
            )

        def write(value: Any) -> Any:
            given = [(name, one) for name, one in value.items() if one is not None]
            if len(given) != 1:
                raise DataError(f"{path} has {len(given)} values for a union, expected one")
            name, one = given[0]
            return ways[name](one)

        return write

    def _required(self, schema: Schema, node: Any, path: str) -> Encode:
        node = self._tree.at(node)
        if isinstance(node, list):
            return self.of(schema, node, path)
        props: dict[str, Any] = node if isinstance(node, dict) else {"type": node}
        kind, logical = schema.type, logical_type(schema)
        if props["type"] not in _TARGETS[kind]:
            raise DataError(
                f"{path} is of type {kind.upper()}, but the schema has Avro's {_shown(node)} there"
            )
        if logical == DECIMAL:
            return _decimal(props, path)
        wanted = LOGICAL.get(logical or "")
        seen = props.get("logicalType")
        if (seen in LOGICAL.values() and seen != wanted) or (wanted and seen != wanted):
            raise DataError(
                f"{path} is {wanted or 'no logical type'}, but the schema has {seen} there"
            )
        if logical is not None:
            return lambda value: from_logical(schema, value)
        if kind is SchemaType.STRUCT:
            return self._struct(schema, props, path)
        if kind is SchemaType.ARRAY:
            each = self.of(cast(Schema, schema.value_schema), props["items"], f"{path}[]")
            return lambda value: [each(one) for one in value]
        if kind is SchemaType.MAP:
            return self._map(schema, props, path)
        if kind is SchemaType.BYTES:
            return bytes
        if props["type"] == "enum":
            return _symbol(props, path)
        return _same

    def _struct(self, schema: Schema, props: dict[str, Any], path: str) -> Encode:
        known = {one["name"] for one in props["fields"]}
        for found in schema.fields:
            if found.name not in known:
                raise DataError(f"{path}.{found.name} is no field of the schema {props['name']}")
        fields: list[tuple[str, Encode]] = []
        filled: dict[str, Any] = {}
        for one in props["fields"]:
            name, where = one["name"], f"{path}.{one['name']}"
            own = schema.field(name)
            if own is not None:
                fields.append((name, self.of(own.schema, one["type"], where, of_struct=True)))
            elif "default" in one:
                filled[name] = carried_default(self._tree, one["type"], one["default"], where)
            else:
                raise DataError(f"{where} has no default and is no field of the record")

        def write(value: Any) -> Any:
            get = value.get
            made = {name: encode(get(name)) for name, encode in fields}
            return {**made, **filled} if filled else made

        return write

    def _map(self, schema: Schema, props: dict[str, Any], path: str) -> Encode:
        keys, values = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
        if props["type"] == "map":
            if keys.type is not SchemaType.STRING or keys.optional:
                raise DataError(f"{path} has keys of type {keys.type.upper()}, expected text")
            each = self.of(values, props["values"], f"{path}[]")
            return lambda value: {key: each(one) for key, one in value.items()}
        entry = self._tree.at(props["items"])
        fields = entry.get("fields", ()) if isinstance(entry, dict) else ()
        found = {one["name"]: one["type"] for one in fields}
        if set(found) != {names.KEY, names.VALUE}:
            raise DataError(f"{path} is a map, but the schema has another list there")
        key_of = self.of(keys, found[names.KEY], f"a key of {path}")
        value_of = self.of(values, found[names.VALUE], f"{path}[]")
        return lambda value: [
            {names.KEY: key_of(key), names.VALUE: value_of(one)} for key, one in value.items()
        ]


def _wrapped(branch: Any, write: Encode) -> Encode:
    name = branch["name"]
    return lambda value: (name, {INNER: write(value)})


def _decimal(props: dict[str, Any], path: str) -> Encode:
    if props.get("logicalType") != "decimal":
        raise DataError(f"{path} is a Decimal, but the schema has no decimal there")
    scale = int(props.get("scale") or 0)
    precision = int(props.get("precision") or names.PRECISION_DEFAULT)
    limit = 10**precision
    size = props.get("size")

    def write(value: Any) -> Any:
        number = unscaled(value, scale, path)
        if not -limit < number < limit:
            raise DataError(
                f"{path} is {value}, expected at most {precision} digits: set the parameter "
                "connect.decimal.precision of its schema"
            )
        if size is None:
            return decimal_bytes(number)
        try:
            return number.to_bytes(size, "big", signed=True)
        except OverflowError:
            raise DataError(f"{path} is {value}, too long for {size} bytes") from None

    return write


def _symbol(props: dict[str, Any], path: str) -> Encode:
    symbols = frozenset(props["symbols"])

    def write(value: Any) -> Any:
        if value not in symbols:
            raise DataError(f"{path} is {value!r}, expected one of {', '.join(props['symbols'])}")
        return value

    return write


def _same(value: Any) -> Any:
    return value


def _shown(node: Any) -> str:
    return str(node if isinstance(node, str) else node.get("name") or node["type"])
