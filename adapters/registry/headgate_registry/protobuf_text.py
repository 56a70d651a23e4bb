"""Translation of Connect schemas into .proto files. Source: ProtobufData (Confluent 7.x).

Differs: Protobuf cannot express narrow integers, names, versions, parameters, defaults, and which
items may be null. For these, the message has the whole Connect schema as a parameter, `SCHEMA`.
This converter reads it and gets the schema as it was. Java's converter reads the rest.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

from headgate.connector import schema as s
from headgate.connector.data_error import DataError
from headgate.connector.json_schema import schema_text
from headgate.connector.json_values import DecimalFormat
from headgate.connector.schema import Schema, SchemaType, logical_type
from headgate.java.json import dumps
from headgate_registry.protoc import DECIMAL_FILE, META_FILE

SCHEMA: Final = "headgate.schema"
"""Parameter of a message, with its Connect schema in JsonConverter's form."""
DEFAULT_NAME: Final = "ConnectDefault"
_SCALARS: Final = {
    SchemaType.INT8: "int32",
    SchemaType.INT16: "int32",
    SchemaType.INT32: "int32",
    SchemaType.INT64: "int64",
    SchemaType.FLOAT32: "float",
    SchemaType.FLOAT64: "double",
    SchemaType.BOOLEAN: "bool",
    SchemaType.STRING: "string",
    SchemaType.BYTES: "bytes",
}
LOGICAL: Final = {
    s.DECIMAL: ("confluent.type.Decimal", DECIMAL_FILE),
    s.DATE: ("google.type.Date", "google/type/date.proto"),
    s.TIME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    s.TIMESTAMP: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}
"""(message, file that defines it) of each logical type."""
_KEYS: Final = (SchemaType.STRING, SchemaType.BOOLEAN, SchemaType.INT32, SchemaType.INT64)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def proto_of(schema: Schema, read_back: Callable[[str], Schema]) -> tuple[str, str]:
    """Return the .proto file of a STRUCT, and the full name of its message.

    Args:
        read_back: returns the Connect schema of a .proto file.

    Raises:
        DataError: Protobuf cannot express the schema. The message names the field.
    """
    if schema.type is not SchemaType.STRUCT:
        raise DataError(
            f"a value of type {schema.type.upper()}, expected a STRUCT: Protobuf has messages "
            "alone; use another converter for keys and plain values"
        )
    package, _, name = (schema.name or DEFAULT_NAME).rpartition(".")
    for part in (*(package.split(".") if package else ()), name):
        _check_name(part, "value")
    maker = _Maker()
    body = maker.fields(schema, "value", "  ")
    plain = _file(package, name, sorted(maker.imports), body)
    full = f"{package}.{name}" if package else name
    if _says_all(plain, schema, read_back):
        return plain, full
    kept = schema_text(schema, DecimalFormat.BASE64, False)
    option = (
        f"  option (confluent.message_meta) = {{ params: [{{ key: {_quoted(SCHEMA)}, "
        f"value: {_quoted(kept)} }}] }};\n"
    )
    return _file(package, name, sorted({*maker.imports, META_FILE}), option + body), full


def _says_all(text: str, schema: Schema, read_back: Callable[[str], Schema]) -> bool:
    try:
        return read_back(text) == schema
    except DataError:  # the schema has a decimal, whose scale is not in the text
        return False


def _file(package: str, name: str, imports: list[str], body: str) -> str:
    lines = ['syntax = "proto3";\n', f"package {package};\n" if package else "", "\n"]
    lines += [f'import "{one}";\n' for one in imports]
    return "".join(lines) + f"\nmessage {name} {{\n{body}}}\n"


def _quoted(text: str) -> str:
    """Return a literal in ASCII, with each other byte as an escape."""
    return (
        dumps(text).decode().encode("ascii", "backslashreplace").decode()
        if text.isascii()
        else ('"' + "".join(f"\\{byte:03o}" for byte in text.encode()) + '"')
    )


@dataclass(slots=True)
class _Maker:
    imports: set[str] = field(default_factory=set[str])

    def fields(self, schema: Schema, path: str, indent: str) -> str:
        lines: list[str] = []
        for number, one in enumerate(schema.fields, 1):
            where = f"{path}.{one.name}"
            _check_name(one.name, where)
            nested, kind = self._field(one.name, one.schema, where, indent)
            lines += [nested, f"{indent}{kind} {one.name} = {_tag(number)};\n"]
        return "".join(lines)

    def _field(self, name: str, schema: Schema, path: str, indent: str) -> tuple[str, str]:
        """Return the nested messages that a field needs, and its type with the keywords before
        it."""
        if schema.type is SchemaType.ARRAY:
            nested, kind = self._single(
                name, cast(Schema, schema.value_schema), f"{path}[]", indent
            )
            return nested, f"repeated {kind}"
        if schema.type is SchemaType.MAP:
            return self._map(name, schema, path, indent)
        nested, kind = self._single(name, schema, path, indent)
        message = schema.type is SchemaType.STRUCT or logical_type(schema) is not None
        return nested, f"optional {kind}" if schema.optional and not message else kind

    def _map(self, name: str, schema: Schema, path: str, indent: str) -> tuple[str, str]:
        keys, values = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
        if keys.type not in _KEYS or logical_type(keys) is not None or keys.optional:
            raise DataError(
                f"a key of {path} is of type {keys.type.upper()}, expected a required text, "
                "boolean, INT32 or INT64: Protobuf has no other keys"
            )
        nested, kind = self._single(name, values, f"{path}[]", indent)
        return nested, f"map<{_SCALARS[keys.type]}, {kind}>"

    def _single(self, name: str, schema: Schema, path: str, indent: str) -> tuple[str, str]:
        if schema.type in (SchemaType.ARRAY, SchemaType.MAP):
            raise DataError(
                f"{path} is a list or map within another one, which Protobuf has not: put it in a "
                "struct"
            )
        if schema.type is SchemaType.STRUCT:
            kind = f"{name}_message"
            body = self.fields(schema, path, indent + "  ")
            return f"{indent}message {kind} {{\n{body}{indent}}}\n", kind
        found = LOGICAL.get(logical_type(schema) or "")
        if found is None:
            return "", _SCALARS[schema.type]
        self.imports.add(found[1])
        return "", f".{found[0]}"


def _tag(number: int) -> int:
    """Return the tag of a field. Protobuf reserves the tags 19000 to 19999."""
    return number if number < 19_000 else number + 1000


def _check_name(name: str, path: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise DataError(
            f"{path}: the name {name!r} is none in Protobuf, expected letters, digits and _, a "
            "letter first; rename it, for one with the transform ReplaceField"
        )
