"""The envelope of Connect's JSON: ``{"schema": ..., "payload": ...}``, made by the type of a value
and opened by its schema.

Source: `JsonConverter`, `JsonSchema` (4.3.1). Differs: the result is plain data; logical types
(Decimal, Date, Time, Timestamp) stay in the type that carries them.
"""

import base64
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeGuard, cast

from headgate.connector.api import DataError, Value

_Schema: TypeAlias = dict[str, Any]


def envelope_start(value: Value) -> bytes:
    """What comes before the payload `value`; a closing brace comes after it."""
    kind = value.__class__
    if kind is int and not -(1 << 63) <= value < 1 << 63:
        return _WITHOUT_SCHEMA
    return _STARTS.get(kind, _WITHOUT_SCHEMA)


_WITHOUT_SCHEMA: Final = b'{"schema":null,"payload":'
_STARTS: Final[dict[type, bytes]] = {
    kind: b'{"schema":{"type":"%s","optional":false},"payload":' % name
    for kind, name in (
        (str, b"string"),
        (bool, b"boolean"),
        (int, b"int64"),
        (float, b"double"),
        (bytes, b"bytes"),
        (bytearray, b"bytes"),
    )
}


def open_envelope(envelope: Any, use_defaults: bool) -> Value:
    """The payload as its schema says.

    Args:
        envelope: parsed JSON.
        use_defaults: a null gets the default of its schema.

    Raises:
        DataError: no envelope, no schema that Connect knows, or a payload of another form.
    """
    if not isinstance(envelope, dict) or envelope.keys() != {"schema", "payload"}:
        raise DataError(
            'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not '
            "contain additional fields. If you are trying to deserialize plain JSON data, set "
            "schemas.enable=false in your converter configuration."
        )
    opened = cast(_Schema, envelope)
    return _read(opened["schema"], opened["payload"], use_defaults)


def kind_of(value: object) -> str:
    return type(value).__name__


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _read(schema: Any, value: Any, use_defaults: bool) -> Value:
    if schema is None:
        return value
    if not isinstance(schema, dict):
        raise DataError(f"Schema must be a JSON object, but found {kind_of(schema)}")
    known = cast(_Schema, schema)
    kind = known.get("type")
    if not isinstance(kind, str):
        raise DataError("Schema must contain 'type' field")
    read = _BY_TYPE.get(kind)
    if read is None:
        raise DataError(f"Unknown schema type: {kind}")
    if value is None:
        if use_defaults and known.get("default") is not None:
            value = known["default"]
        elif known.get("optional") is True:
            return None
        else:
            raise DataError(f"Invalid null value for required {kind.upper()} field")
    return read(known, value, use_defaults)


def _struct(schema: _Schema, value: Any, use_defaults: bool) -> Value:
    fields = schema.get("fields")
    if not _is_list(fields):
        raise DataError('Struct schema\'s "fields" argument is not an array.')
    if not isinstance(value, dict):
        raise DataError(f"Structs should be encoded as JSON objects, but found {kind_of(value)}")
    given = cast(dict[str, Any], value)
    result: dict[str, Value] = {}
    for field in fields:
        name = cast(_Schema, field).get("field") if isinstance(field, dict) else None
        if not isinstance(name, str):
            raise DataError("Struct schema's field name not specified properly")
        result[name] = _read(field, given.get(name), use_defaults)
    return result


def _array(schema: _Schema, value: Any, use_defaults: bool) -> Value:
    if not _is_list(value):
        raise DataError(f"Arrays should be encoded as JSON arrays, but found {kind_of(value)}")
    items = schema.get("items")
    return [_read(items, item, use_defaults) for item in value]


def _map(schema: _Schema, value: Any, use_defaults: bool) -> Value:
    """With text as keys an object, else a list of pairs."""
    keys, values = schema.get("keys"), schema.get("values")
    if isinstance(value, dict):
        pairs = cast(dict[str, Any], value).items()
        return {key: _read(values, item, use_defaults) for key, item in pairs}
    if not _is_list(value):
        raise DataError(f"Maps should be JSON objects or arrays of pairs, found {kind_of(value)}")
    result: dict[Any, Value] = {}
    for pair in value:
        if not _is_list(pair) or len(pair) != 2:
            raise DataError(f"Found invalid map entry instead of array tuple: {kind_of(pair)}")
        key, item = pair
        name = _read(keys, key, use_defaults)
        if isinstance(name, (dict, list)):
            raise DataError(f"A map key of type {kind_of(cast(object, name))} has no form here")
        result[name] = _read(values, item, use_defaults)
    return result


def _scalar(*types: type) -> Callable[[_Schema, Any, bool], Value]:
    def read(schema: _Schema, value: Any, use_defaults: bool) -> Value:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise DataError(f"Invalid type for {schema['type'].upper()}: {kind_of(value)}")
        return value

    return read


def _bytes(schema: _Schema, value: Any, use_defaults: bool) -> Value:
    try:
        return base64.b64decode(value, validate=True)
    except (ValueError, TypeError) as error:
        raise DataError("Invalid bytes field") from error


_BY_TYPE: Final[dict[str, Callable[[_Schema, Any, bool], Value]]] = {
    "boolean": _scalar(bool),
    "int8": _scalar(int),
    "int16": _scalar(int),
    "int32": _scalar(int),
    "int64": _scalar(int),
    "float": _scalar(int, float),
    "double": _scalar(int, float),
    "string": _scalar(str),
    "bytes": _bytes,
    "array": _array,
    "map": _map,
    "struct": _struct,
}
