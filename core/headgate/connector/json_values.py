"""Writing and reading of values with a schema as JSON, as Connect's JsonConverter does.

`writer` and `reader` make one function for a schema, which is then called for each value, so that
the schema is inspected once and not for each record. Source: JsonConverter.convertToJson,
convertToConnect (4.3.1). Differs: a payload that does not fit its schema is refused, where Java
reads 0, false or an empty text. A number that its type cannot hold is refused, where Java takes its
low bits. NaN and infinite numbers are read back; Java writes them, and reads them as 0.
"""

import base64
import decimal
import math
import struct
from collections.abc import Callable, Mapping
from enum import StrEnum
from json.encoder import encode_basestring
from typing import Any, Final, TypeAlias, cast

from headgate.connector.data_error import DataError
from headgate.connector.schema import (
    DECIMAL,
    LOGICAL_TYPES,
    Schema,
    SchemaType,
    from_logical,
    is_dict,
    is_list,
    kind_of,
    logical_type,
    to_logical,
    unscaled,
    validate,
)
from headgate.java.double import java_double
from headgate.java.numbers import java_float


class DecimalFormat(StrEnum):
    """Form of decimals. Source: DecimalFormat, KIP-481."""

    BASE64 = "BASE64"
    """Bytes of the unscaled number, in base64."""
    NUMERIC = "NUMERIC"
    """A JSON number."""


Write: TypeAlias = Callable[[Any], str]
Own: TypeAlias = Callable[[Schema], Write | None]
Read: TypeAlias = Callable[[Any], Any]


class Misfit(Exception):
    """A value does not fit its schema. `written` finds out where."""


def written(schema: Schema, write: Write, value: Any) -> str:
    """Return `value` as JSON text, written by `write`, the function for `schema`.

    Raises:
        DataError: The text names the field that does not fit.
    """
    try:
        return write(value)
    except (DataError, Misfit, OverflowError, AttributeError, TypeError) as error:
        if value is not None or schema.default is None:
            validate(schema, value)
        raise DataError(f"a value of {schema.type.upper()} has no form in JSON: {error}") from error


def _logical(schema: Schema) -> str | None:
    """Return the schema's logical type. As in Java its name decides, and its type must be the one
    that belongs to it."""
    wanted = LOGICAL_TYPES.get(schema.name or "")
    if wanted is not None and wanted is not schema.type:
        raise DataError(
            f"{schema.name} is of type {schema.type.upper()}, expected {wanted.upper()}"
        )
    return logical_type(schema)


# -- writing --


def writer(
    schema: Schema, numbers: DecimalFormat, use_defaults: bool, own: Own | None = None
) -> Write:
    """Return a function from a value to JSON text. It raises `Misfit`; see `written`.

    Args:
        use_defaults: Whether a null is written as the default of its schema.
        own: Returns another function for the values of some schemas, at any depth.
    """
    write = own(schema) if own is not None else None
    if write is None:
        write = _writer_of_some(schema, numbers, use_defaults, own)
    if schema.default is not None and use_defaults:
        null: str | None = write(schema.default)
    else:
        null = "null" if schema.optional else None

    def one(value: Any) -> str:
        if value is None:
            if null is None:
                raise Misfit("null value for field that is required and has no default value")
            return null
        return write(value)

    return one


def _writer_of_some(
    schema: Schema, numbers: DecimalFormat, use_defaults: bool, own: Own | None
) -> Write:
    kind, logical = schema.type, _logical(schema)
    if logical == DECIMAL:
        return _decimal_writer(schema, numbers)
    if logical is not None:
        return _by_number(schema)
    if kind is SchemaType.STRUCT:
        return _struct_writer(schema, numbers, use_defaults, own)
    if kind is SchemaType.MAP:
        return _map_writer(schema, numbers, use_defaults, own)
    if kind is SchemaType.ARRAY:
        item = writer(cast(Schema, schema.value_schema), numbers, use_defaults, own)

        def list_text(value: Any) -> str:
            if not isinstance(value, (list, tuple)):
                raise Misfit("no list")
            return "[" + ",".join([item(found) for found in cast("list[Any]", value)]) + "]"

        return list_text
    bits = _BITS.get(kind)
    return _integer_writer(bits) if bits is not None else _WRITERS[kind]


_BITS: Final = {
    SchemaType.INT8: 8,
    SchemaType.INT16: 16,
    SchemaType.INT32: 32,
    SchemaType.INT64: 64,
}


def _integer_writer(bits: int) -> Write:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def text(value: Any) -> str:
        if value.__class__ is not int and (not isinstance(value, int) or isinstance(value, bool)):
            raise Misfit("no int")
        if not low <= value <= high:
            raise Misfit("out of range")
        return int.__repr__(value)

    return text


def _double_text(value: Any) -> str:
    if value.__class__ is not float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Misfit("no float")
        if int(float(value)) != value:
            raise Misfit("too long")
        value = float(value)
    if not math.isfinite(value):
        return f'"{java_double(value)}"'
    return java_double(value)


def _single_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Misfit("no float")
    if isinstance(value, int) and int(float(value)) != value:
        raise Misfit("too long")
    text = java_float(nearest_single(float(value)))
    return text if math.isfinite(value) else f'"{text}"'


def _string_text(value: Any) -> str:
    return encode_basestring(value)  # raises TypeError unless it is a str


def _boolean_text(value: Any) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    raise Misfit("no bool")


def _bytes_text(value: Any) -> str:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise Misfit("no bytes")
    return f'"{base64.b64encode(cast(bytes, value)).decode()}"'


_WRITERS: Final[Mapping[SchemaType, Write]] = {
    SchemaType.FLOAT32: _single_text,
    SchemaType.FLOAT64: _double_text,
    SchemaType.STRING: _string_text,
    SchemaType.BOOLEAN: _boolean_text,
    SchemaType.BYTES: _bytes_text,
}


def _by_number(schema: Schema) -> Write:
    def text(value: Any) -> str:
        validate(schema, value)
        return str(from_logical(schema, value))

    return text


def _decimal_writer(schema: Schema, numbers: DecimalFormat) -> Write:
    scale = schema.scale

    def base64_text(value: Any) -> str:
        if not isinstance(value, decimal.Decimal):
            raise Misfit("no Decimal")
        number = unscaled(value, scale)
        length = (number if number >= 0 else ~number).bit_length() // 8 + 1
        return f'"{base64.b64encode(number.to_bytes(length, "big", signed=True)).decode()}"'

    def number_text(value: Any) -> str:
        if not isinstance(value, decimal.Decimal):
            raise Misfit("no Decimal")
        unscaled(value, scale)
        if value.is_zero():
            value = value.copy_abs()  # Java has no negative zero
        return str(value)

    return base64_text if numbers is DecimalFormat.BASE64 else number_text


def _map_writer(
    schema: Schema, numbers: DecimalFormat, use_defaults: bool, own: Own | None
) -> Write:
    """Return a writer of maps: an object if the keys are text, else a list of pairs."""
    keys, values = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
    value_text = writer(values, numbers, use_defaults, own)

    def object_text(value: Any) -> str:
        pairs = [
            f"{encode_basestring(key)}:{value_text(item)}"
            for key, item in cast("dict[str, Any]", value).items()
        ]
        return "{" + ",".join(pairs) + "}"

    if keys.type is SchemaType.STRING:
        return object_text
    key_text = writer(keys, numbers, use_defaults, own)

    def pairs_text(value: Any) -> str:
        pairs = [
            f"[{key_text(key)},{value_text(item)}]"
            for key, item in cast("dict[Any, Any]", value).items()
        ]
        return "[" + ",".join(pairs) + "]"

    return pairs_text


def _struct_writer(
    schema: Schema, numbers: DecimalFormat, use_defaults: bool, own: Own | None
) -> Write:
    fields: list[tuple[str, str, Write]] = []
    for found in schema.fields:
        write = writer(found.schema, numbers, use_defaults, own)
        fields.append((found.name, encode_basestring(found.name) + ":", write))
    names = frozenset(name for name, _, _ in fields)

    def text(value: Any) -> str:
        get = value.get
        made = [label + write(get(name)) for name, label, write in fields]
        if len(value) > len(made) or not names.issuperset(value):
            raise Misfit("more fields")
        return "{" + ",".join(made) + "}"

    return text


# -- reading --


def reader(schema: Schema, use_defaults: bool) -> Read:
    """Return a function from parsed JSON to a value. It raises `DataError`.

    Decimals that are written as numbers are exact if the JSON was parsed with
    ``parse_float=Decimal``; see `has_decimal`.

    Args:
        use_defaults: Whether a null gets the default of its schema.
    """
    read = _reader_of_some(schema, use_defaults)
    default, optional, kind = schema.default, schema.optional, schema.type.upper()
    if not use_defaults:
        default = None

    def one(value: Any) -> Any:
        if value is None:
            if default is not None:
                return default
            if optional:
                return None
            raise DataError(f"Invalid null value for required {kind} field")
        return read(value)

    return one


def has_decimal(schema: Schema) -> bool:
    if logical_type(schema) == DECIMAL:
        return True
    parts = [schema.key_schema, schema.value_schema, *[found.schema for found in schema.fields]]
    return any(part is not None and has_decimal(part) for part in parts)


def _wrong(kind: object, value: object) -> DataError:
    return DataError(f"Invalid type for {str(kind).upper()}: {kind_of(value)}")


def _reader_of_some(schema: Schema, use_defaults: bool) -> Read:
    kind, logical = schema.type, _logical(schema)
    if logical == DECIMAL:
        return _decimal_reader(schema)
    if kind is SchemaType.STRUCT:
        return _struct_reader(schema, use_defaults)
    if kind is SchemaType.MAP:
        return _map_reader(schema, use_defaults)
    if kind is SchemaType.ARRAY:
        item = reader(cast(Schema, schema.value_schema), use_defaults)

        def items(value: Any) -> Any:
            if not is_list(value):
                raise DataError(
                    f"Arrays should be encoded as JSON arrays, but found {kind_of(value)}"
                )
            return [item(found) for found in value]

        return items
    bits = _BITS.get(kind)
    if bits is None:
        return _READERS[kind]
    whole = _integer_reader(kind, bits)
    if logical is None:
        return whole
    return lambda value: to_logical(schema, whole(value))


def _integer_reader(kind: SchemaType, bits: int) -> Read:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def read(value: Any) -> Any:
        if value.__class__ is not int:
            raise _wrong(kind, value)
        if not low <= value <= high:
            raise DataError(f"{value} is no {kind.upper()}, expected {low} to {high}")
        return value

    return read


_LARGEST: Final = math.nextafter(math.inf, 0)
_ODD_FLOATS: Final = {text: float(text) for text in ("NaN", "Infinity", "-Infinity")}


def _float_reader(kind: SchemaType) -> Read:
    single = kind is SchemaType.FLOAT32

    def read(value: Any) -> Any:
        if value.__class__ is float and not single and -_LARGEST <= value <= _LARGEST:
            return value
        if isinstance(value, str) and value in _ODD_FLOATS:
            return _ODD_FLOATS[value]
        if isinstance(value, bool) or not isinstance(value, (int, float, decimal.Decimal)):
            raise _wrong("float" if single else "double", value)
        try:
            found = nearest_single(float(value)) if single else float(value)
        except OverflowError as error:
            raise DataError(f"{value} is too large for {kind.upper()}") from error
        if math.isinf(found):  # over 308 digits: an infinite number is a text in JSON
            raise DataError(f"a number is too large for {kind.upper()}")
        return found

    return read


def nearest_single(value: float) -> float:
    """Return the 32-bit float nearest to `value`. Raises OverflowError if `value` is too large for
    one."""
    return cast(float, _SINGLE.unpack(_SINGLE.pack(value))[0])


_SINGLE: Final = struct.Struct(">f")


def _string(value: Any) -> Any:
    if value.__class__ is not str:
        raise _wrong("string", value)
    return value


def _boolean(value: Any) -> Any:
    if value is not True and value is not False:
        raise _wrong("boolean", value)
    return value


def _bytes(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True)
    except (ValueError, TypeError) as error:
        raise DataError("Invalid bytes field") from error


_READERS: Final[Mapping[SchemaType, Read]] = {
    SchemaType.FLOAT32: _float_reader(SchemaType.FLOAT32),
    SchemaType.FLOAT64: _float_reader(SchemaType.FLOAT64),
    SchemaType.STRING: _string,
    SchemaType.BOOLEAN: _boolean,
    SchemaType.BYTES: _bytes,
}


def _decimal_reader(schema: Schema) -> Read:
    def read(value: Any) -> Any:
        if isinstance(value, str):
            data = _bytes(value)
            if not data:
                raise DataError("Invalid bytes for Decimal field: none, expected at least one")
            return to_logical(schema, int.from_bytes(data, "big", signed=True))
        if isinstance(value, decimal.Decimal):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return decimal.Decimal(value)
        raise DataError(
            "Invalid type for Decimal, underlying representation should be numeric or bytes but "
            f"was {kind_of(value)}"
        )

    return read


def _map_reader(schema: Schema, use_defaults: bool) -> Read:
    keys = cast(Schema, schema.key_schema)
    read_value = reader(cast(Schema, schema.value_schema), use_defaults)

    def from_object(value: Any) -> Any:
        if not is_dict(value):
            raise DataError(
                f"Maps with string fields should be encoded as JSON objects, found {kind_of(value)}"
            )
        pairs = value.items()
        return {key: read_value(item) for key, item in pairs}

    if keys.type is SchemaType.STRING:
        return from_object
    read_key = reader(keys, use_defaults)

    def from_pairs(value: Any) -> Any:
        if not is_list(value):
            raise DataError(
                "Maps with non-string fields should be encoded as JSON array of tuples, found "
                f"{kind_of(value)}"
            )
        result: dict[Any, Any] = {}
        for pair in value:
            if not is_list(pair) or len(pair) != 2:
                raise DataError(f"Found invalid map entry instead of array tuple: {kind_of(pair)}")
            key, item = pair
            name = read_key(key)
            if isinstance(name, (dict, list)):
                raise DataError(f"A map key of type {kind_of(cast(object, name))} has no form here")
            if name in result:
                raise DataError(f"A map has the key {name} twice, expected each once")
            result[name] = read_value(item)
        return result

    return from_pairs


def _struct_reader(schema: Schema, use_defaults: bool) -> Read:
    fields = [(found.name, reader(found.schema, use_defaults)) for found in schema.fields]

    def read(value: Any) -> Any:
        if not is_dict(value):
            raise DataError(
                f"Structs should be encoded as JSON objects, but found {kind_of(value)}"
            )
        get = value.get
        try:
            return {name: read_field(get(name)) for name, read_field in fields}
        except DataError:
            _name_field(fields, get)
            raise

    return read


def _name_field(fields: list[tuple[str, Read]], get: Callable[[str], Any]) -> None:
    """Raise the error of the first field that cannot be read, with the field's name."""
    for name, read_field in fields:
        try:
            read_field(get(name))
        except DataError as error:
            raise DataError(f"field {name}: {error}") from error
