"""Converters that keep text readable: `StringConverter` writes everything as text, and
`TypedConverter` writes text as it is and other values with their schema."""

import base64
import datetime
import decimal
import json
import struct
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, cast

from headgate.connector.api import Value
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type, java_text
from headgate.connector.data_error import DataError
from headgate.connector.envelope import EnvelopeWriter, PayloadReader
from headgate.connector.json_converter import place_without_form
from headgate.connector.json_schema import read_schema
from headgate.connector.json_values import DecimalFormat, Misfit, Write, writer, written
from headgate.connector.schema import (
    BYTES,
    DECIMAL,
    STRING,
    Schema,
    SchemaAndValue,
    SchemaType,
    is_dict,
    kind_of,
    logical_type,
    validate,
)
from headgate.connector.times import DURATION, is_unit_time, time_text
from headgate.java.json import dumps


class StringConverter:
    """Text as UTF-8. Numbers and booleans become the text that Java makes of them.

    Source: StringConverter (4.3.1). Differs:

    - A dict or list becomes JSON text, where Java writes its `toString`. In it, dates and times are
    ISO 8601 and instants are in UTC; decimals are text, bytes base64, maps lists of pairs; NaN and
    infinite numbers are text.
    - A decimal is written by its digits, and dates and times in ISO 8601, where Java writes
    `Date.toString`.
    - A value of another class is refused, where Java writes its `toString` (``Object@1b6d3586``).
    - Bytes are taken as text if they are UTF-8. UTF-8 is the only encoding.
    """

    CONFIG: Final = ConfigDef().define(
        "converter.encoding",
        Type.STRING,
        "UTF-8",
        None,
        Importance.HIGH,
        "The name of the character set of encoded strings; only UTF-8.",
    )

    def __init__(self) -> None:
        self._known: OrderedDict[Schema, Write] = OrderedDict()
        self._last: Schema | None = None
        self._write: Write | None = None

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        """Configure the converter.

        Raises:
            ConfigError: The encoding is not UTF-8.
        """
        encoding = config.get("converter.encoding", "UTF-8")
        if encoding.strip().upper() not in ("UTF-8", "UTF8"):
            raise ConfigError.of("converter.encoding", encoding, "only UTF-8 is supported")

    def from_connect(self, topic: str, value: Value, schema: Schema | None = None) -> bytes | None:
        if value.__class__ is str:
            try:
                return value.encode()
            except UnicodeEncodeError as error:
                raise DataError(f"Failed to serialize to a string: {error}") from error
        if value is None:
            return None
        if schema is not None:
            return self._with_schema(schema, value)
        if isinstance(value, (dict, list, tuple)):
            return _json_text(cast(Value, value))
        return _scalar_text(value)

    def _with_schema(self, schema: Schema, value: Value) -> bytes:
        if schema.type in _PARTS:
            if schema is not self._last:
                self._last, self._write = schema, self._writer(schema)
            text = written(schema, cast(Write, self._write), value)
            try:
                return text.encode()
            except UnicodeEncodeError as error:
                raise DataError(f"Failed to serialize to a string: {error}") from error
        validate(schema, value)
        if is_unit_time(schema):
            return time_text(schema, value).encode()
        return _scalar_text(value)

    def _writer(self, schema: Schema) -> Write:
        found = self._known.get(schema)
        if found is None:
            found = self._known[schema] = writer(schema, DecimalFormat.BASE64, False, _leaf)
            if len(self._known) > _SCHEMAS_MAX:
                self._known.popitem(last=False)
        return found

    def to_connect(self, topic: str, data: bytes | None) -> Value:
        if data is None:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"Failed to deserialize string: {error}") from error

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        return SchemaAndValue(_OPTIONAL_STRING, self.to_connect(topic, data))


_OPTIONAL_STRING: Final = STRING.as_optional()
_PARTS: Final = (SchemaType.STRUCT, SchemaType.ARRAY, SchemaType.MAP)
_SCHEMAS_MAX: Final = 1000


def text_of(schema: Schema | None, value: Value) -> str:
    """Return the text that `StringConverter` makes of a value. Raises `DataError`."""
    data = _TEXT.from_connect("", value, schema)
    return "" if data is None else data.decode(errors="replace")


def json_text(schema: Schema | None, value: Value) -> str:
    """Return a value as JSON for people, in the forms of `StringConverter`. Raises `DataError`."""
    items = None if schema is None else Schema(SchemaType.ARRAY, value_schema=schema)
    return text_of(items, [value])[1:-1]


_TEXT: Final = StringConverter()


def _scalar_text(value: Value) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(cast("bytes", value))
    if isinstance(value, (bool, int, float, decimal.Decimal)):
        return java_text(value).encode()
    if isinstance(value, (datetime.date, datetime.time)):  # a datetime is a date
        return value.isoformat().encode()
    if isinstance(value, str):
        return str.__str__(value).encode()
    raise DataError(
        f"Failed to serialize to a string: a value of type {kind_of(value)} has no form in text; "
        "expected str, a number, bool, bytes, date, time, datetime, dict or list"
    )


def _json_text(value: Value) -> bytes:
    try:
        return dumps(value, _other)
    except (ValueError, TypeError, RecursionError) as error:
        try:
            place = place_without_form(value, _other)
        except RecursionError:
            place = ""
        where = f" at {place}" if place else ""
        raise DataError(f"Failed to serialize to a string: {error}{where}") from error


def _other(value: object) -> str:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    raise TypeError(f"a value of type {kind_of(value)} has no form in JSON")


def _leaf(schema: Schema) -> Write | None:
    """Return how values of this schema are written in JSON for people; None: as by the JSON
    converter."""
    logical = logical_type(schema)
    if logical == DECIMAL:
        return _checked(schema, lambda value: f'"{value}"')
    if logical is not None:
        return _checked(schema, lambda value: f'"{value.isoformat()}"')
    if is_unit_time(schema):
        if schema.name == DURATION:
            return _checked(schema, lambda value: time_text(schema, value))
        return _checked(schema, lambda value: f'"{time_text(schema, value)}"')
    if schema.type is SchemaType.MAP:
        return _pairs(schema)
    return None


def _checked(schema: Schema, write: Write) -> Write:
    def text(value: Any) -> str:
        validate(schema, value)
        return write(value)

    return text


def _pairs(schema: Schema) -> Write:
    keys, values = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
    key_text = writer(keys, DecimalFormat.BASE64, False, _leaf)
    value_text = writer(values, DecimalFormat.BASE64, False, _leaf)

    def text(value: Any) -> str:
        if not is_dict(value):
            raise Misfit("no dict")
        pairs = value.items()
        return "[" + ",".join([f"[{key_text(k)},{value_text(v)}]" for k, v in pairs]) + "]"

    return text


class TypedConverter:
    """Keeps the schema of values that have one; writes values without one as `StringConverter`
    does. Java has no such converter.

    A typed value is the byte 0xFF (which no UTF-8 text contains), a version (1), the length of the
    schema's JSON in 32 bits, that JSON, and the payload as `JsonConverter` writes it. The embedded
    log stores the schema once per batch.
    """

    CONFIG: Final = ConfigDef()

    def __init__(self) -> None:
        self._text = StringConverter()
        self._writer = EnvelopeWriter(DecimalFormat.BASE64, False, _SCHEMAS_MAX)
        self._readers: OrderedDict[bytes, PayloadReader] = OrderedDict()
        self._last: Schema | None = None
        self._start = b""

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        pass

    def from_connect(self, topic: str, value: Value, schema: Schema | None = None) -> bytes | None:
        if value is None:
            return None
        if schema is None:
            data = self._text.from_connect(topic, value)
            if data is None or data[:1] != TYPED_MARK:
                return data
            schema = BYTES  # else the bytes would be taken for a typed value
        if schema is not self._last:
            self._start = self._start_of(schema)
            self._last = schema
        try:
            return self._start + self._writer.payload(schema, value)
        except UnicodeEncodeError as error:
            raise DataError(f"Failed to serialize a typed value: {error}") from error

    def _start_of(self, schema: Schema) -> bytes:
        text = self._writer.schema(schema)
        return _START.pack(TYPED_MARK[0], _VERSION, len(text)) + text

    def to_connect(self, topic: str, data: bytes | None) -> Value:
        return self.to_connect_data(topic, data).value

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None or data[:1] != TYPED_MARK:
            return SchemaAndValue(None, self._text.to_connect(topic, data))
        end = typed_start(data)
        if end is None:
            raise DataError(
                f"Failed to deserialize a typed value: it begins with {data[:6].hex()}, expected "
                f"ff{_VERSION:02x} and the length of a schema"
            )
        start = data[:end]
        found = self._readers.get(start)
        try:
            if found is None:
                found = self._reader(start)
            payload = found.parse(data[end:])
        except (ValueError, RecursionError) as error:
            raise DataError(f"Failed to deserialize a typed value: {error}") from error
        return SchemaAndValue(found.schema, found.read(payload))

    def _reader(self, start: bytes) -> PayloadReader:
        schema = read_schema(json.loads(start[_START.size :]))
        if schema is None:
            raise ValueError("its schema is null")
        found = self._readers[start] = PayloadReader(schema, False)
        if len(self._readers) > _SCHEMAS_MAX:
            self._readers.popitem(last=False)
        return found


TYPED_MARK: Final = b"\xff"
_VERSION: Final = 1
_START: Final = struct.Struct(">BBI")


def typed_start(data: bytes) -> int | None:
    """Return the number of bytes before the payload of a typed value; None if `data` is no typed
    value."""
    if len(data) < _START.size or data[:2] != _TYPED:
        return None
    end = _START.size + cast(int, _START.unpack_from(data)[2])
    return end if end <= len(data) else None


_TYPED: Final = TYPED_MARK + bytes([_VERSION])
