"""Converters between values and bytes, by Connect's class names.

Source: Connect's `StringConverter`, `JsonConverter`, `ByteArrayConverter`, `NumberConverter`s and
`SimpleHeaderConverter` (4.3.1). Each class says what differs.
"""

import base64
import datetime
import decimal
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, cast

from headgate.connector.api import Converter, DataError, Headers, Value
from headgate.connector.config import ConfigDef, ConfigError, java_text
from headgate.connector.envelope import parse
from headgate.connector.json_converter import JsonConverter, json_bytes
from headgate.connector.registry_converters import REGISTRY_CONVERTERS
from headgate.connector.schema import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    Schema,
    SchemaAndValue,
    kind_of,
)
from headgate.connector.text_converters import StringConverter, TypedConverter
from headgate.connector.validators import no_such_class
from headgate.ports import Headers as RawHeaders

_OPTIONAL_BYTES: Final = BYTES.as_optional()
_OPTIONAL_BOOLEAN: Final = BOOLEAN.as_optional()


class ByteArrayConverter:
    """Bytes as they are. Source: ByteArrayConverter."""

    CONFIG: Final = ConfigDef()

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        pass

    def from_connect(self, topic: str, value: Value, schema: Schema | None = None) -> bytes | None:
        if value is None or value.__class__ is bytes:
            return value
        if isinstance(value, (bytearray, memoryview)):
            return bytes(cast("bytearray", value))
        raise DataError(
            f"ByteArrayConverter is not compatible with objects of type {kind_of(value)}"
        )

    def to_connect(self, topic: str, data: bytes | None) -> Value:
        return data

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        return SchemaAndValue(_OPTIONAL_BYTES, data)


class NumberConverter:
    """Numbers in a fixed number of bytes, most significant first. Source: NumberConverter."""

    CONFIG: Final = ConfigDef()
    layout: struct.Struct
    noun: str
    schema: Schema

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        pass

    def from_connect(self, topic: str, value: Value, schema: Schema | None = None) -> bytes | None:
        if value is None:
            return None
        try:
            if isinstance(value, bool):
                raise TypeError("a boolean is no number")
            return self.layout.pack(value)
        except (struct.error, TypeError, OverflowError) as error:
            raise DataError(f"Failed to serialize to a {self.noun}: {error}") from error

    def to_connect(self, topic: str, data: bytes | None) -> Value:
        if data is None:
            return None
        try:
            return self.layout.unpack(data)[0]
        except struct.error as error:
            raise DataError(f"Failed to deserialize to a {self.noun}: {error}") from error

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        return SchemaAndValue(self.schema, self.to_connect(topic, data))


class ShortConverter(NumberConverter):
    layout = struct.Struct(">h")
    noun = "short"
    schema = INT16.as_optional()


class IntegerConverter(NumberConverter):
    layout = struct.Struct(">i")
    noun = "integer"
    schema = INT32.as_optional()


class LongConverter(NumberConverter):
    layout = struct.Struct(">q")
    noun = "long"
    schema = INT64.as_optional()


class FloatConverter(NumberConverter):
    layout = struct.Struct(">f")
    noun = "float"
    schema = FLOAT32.as_optional()


class DoubleConverter(NumberConverter):
    layout = struct.Struct(">d")
    noun = "double"
    schema = FLOAT64.as_optional()


class BooleanConverter:
    """One byte, 1 or 0. Source: BooleanConverter."""

    CONFIG: Final = ConfigDef()

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        pass

    def from_connect(self, topic: str, value: Value, schema: Schema | None = None) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, bool):
            raise DataError(f"Failed to serialize to a boolean: got {kind_of(value)}")
        return b"\x01" if value else b"\x00"

    def to_connect(self, topic: str, data: bytes | None) -> Value:
        if data is None:
            return None
        if data not in (b"\x00", b"\x01"):
            raise DataError(
                f"Failed to deserialize to a boolean: {data!r} is neither 0x00 nor 0x01"
            )
        return data == b"\x01"

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        return SchemaAndValue(_OPTIONAL_BOOLEAN, self.to_connect(topic, data))


class HeaderConverter(Protocol):
    """Converts all headers of a record to bytes and back. Raises `DataError`.

    None stands for a header without a value, in both directions. Source: HeaderConverter.
    """

    def configure(self, config: Mapping[str, str]) -> None: ...

    def from_connect(
        self, topic: str, headers: Headers, schemas: Sequence[Schema | None] = ()
    ) -> RawHeaders:
        """Return the headers as bytes.

        Args:
            schemas: One schema for each header, or none at all.
        """
        ...

    def to_connect(self, topic: str, headers: RawHeaders) -> Headers: ...

    def to_connect_data(
        self, topic: str, headers: RawHeaders
    ) -> tuple[Headers, tuple[Schema | None, ...]]:
        """Return the headers, and the schemas of their values; () if no value has one."""
        ...


class SimpleHeaderConverter:
    """Writes values as text that shows their type: ``true``, ``12``, ``1.5``, ``null``, JSON lists
    and objects, and other text as it is.

    A null is a header without a value, as in Java; the text ``null`` is also read as a null.

    Differs: text is read as a number only if nothing is lost (``007`` stays text), and dates stay
    text. Bytes that are not UTF-8 stay bytes, as in Java. Source: SimpleHeaderConverter, Values.
    """

    CONFIG: Final = ConfigDef()

    def configure(self, config: Mapping[str, str]) -> None:
        pass

    def from_connect(
        self, topic: str, headers: Headers, schemas: Sequence[Schema | None] = ()
    ) -> RawHeaders:
        name: object = None
        sent: list[tuple[str, bytes | None]] = []
        try:
            for name, value in headers:
                data = None if value is None else _header_text(value).encode()
                sent.append((_sent_name(name), data))
        except UnicodeEncodeError as error:
            raise DataError(f"Failed to serialize a header: {error}") from error
        except TypeError as error:
            raise DataError(f"Failed to serialize the header {name}: {error}") from error
        return tuple(sent)

    def to_connect(self, topic: str, headers: RawHeaders) -> Headers:
        return tuple(
            [(name, None if data is None else _header_value(data)) for name, data in headers]
        )

    def to_connect_data(
        self, topic: str, headers: RawHeaders
    ) -> tuple[Headers, tuple[Schema | None, ...]]:
        return self.to_connect(topic, headers), ()


class EachHeader:
    """Applies a converter of values to each header. (Connect's converters of values are also
    converters of headers.)"""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter

    def configure(self, config: Mapping[str, str]) -> None:
        self._converter.configure(config, is_key=False)

    def from_connect(
        self, topic: str, headers: Headers, schemas: Sequence[Schema | None] = ()
    ) -> RawHeaders:
        convert = self._converter.from_connect
        if not schemas:
            return tuple([(_sent_name(name), convert(topic, value)) for name, value in headers])
        if len(schemas) != len(headers):
            raise DataError(f"{len(schemas)} schemas for {len(headers)} headers, expected as many")
        pairs = zip(headers, schemas, strict=True)
        return tuple(
            [(_sent_name(name), convert(topic, value, schema)) for (name, value), schema in pairs]
        )

    def to_connect(self, topic: str, headers: RawHeaders) -> Headers:
        convert = self._converter.to_connect
        return tuple([(name, convert(topic, data)) for name, data in headers])

    def to_connect_data(
        self, topic: str, headers: RawHeaders
    ) -> tuple[Headers, tuple[Schema | None, ...]]:
        convert = self._converter.to_connect_data
        read = [(key, convert(topic, data)) for key, data in headers]
        schemas = tuple([found.schema for _, found in read])
        return tuple([(key, found.value) for key, found in read]), schemas


NO_TIMESTAMP: Final = -1
"""Kafka's value for no timestamp."""


def sending_timestamp(timestamp_ms: int) -> int | None:
    """Return the timestamp to send for a source record; None means the time of sending. Source:
    ConnectUtils.checkAndConvertTimestamp.

    Raises:
        ValueError: The timestamp is not valid. The task fails whatever it tolerates, as in Connect.
    """
    if timestamp_ms >= 0:
        return timestamp_ms
    if timestamp_ms == NO_TIMESTAMP:
        return None
    raise ValueError(
        f"timestamp {timestamp_ms} of a record, expected milliseconds from 0 on, or {NO_TIMESTAMP} "
        "for the time of sending"
    )


_PACKAGE: Final = "org.apache.kafka.connect."

CONVERTERS: Final[Mapping[str, type[Converter]]] = {
    name: found
    for package, found in (
        ("storage.", StringConverter),
        ("json.", JsonConverter),
        ("converters.", ByteArrayConverter),
        ("converters.", ShortConverter),
        ("converters.", IntegerConverter),
        ("converters.", LongConverter),
        ("converters.", FloatConverter),
        ("converters.", DoubleConverter),
        ("converters.", BooleanConverter),
    )
    for name in (
        _PACKAGE + package + found.__name__,
        found.__name__,
        found.__name__.removesuffix("Converter"),
    )
} | {"TypedConverter": TypedConverter, "Typed": TypedConverter, **REGISTRY_CONVERTERS}
"""Converters by full name, simple name, and simple name without ``Converter``."""

HEADER_CONVERTERS: Final[frozenset[str]] = frozenset(
    {
        _PACKAGE + "storage.SimpleHeaderConverter",
        "SimpleHeaderConverter",
        "SimpleHeader",
        *CONVERTERS,
    }
)


Make: TypeAlias = Callable[[type[Converter]], Converter]
"""Function that makes a converter from a class in `CONVERTERS`; see `task_converters`."""


def _make(found: type[Converter]) -> Converter:
    return found()


def make_converter(
    class_name: str, config: Mapping[str, str], *, is_key: bool, make: Make = _make
) -> Converter:
    """Return the converter that `class_name` names, configured.

    Args:
        config: Its own keys, without the prefix ``key.converter.`` or ``value.converter.``.
        make: See `task_converters`.

    Raises:
        ConfigError: There is no such class, or a key has a wrong value.
    """
    found = CONVERTERS.get(class_name)
    if found is None:
        name = "key.converter" if is_key else "value.converter"
        raise ConfigError.of(name, class_name, no_such_class(class_name, CONVERTERS))
    converter = make(found)
    converter.configure(config, is_key=is_key)
    return converter


def config_def_of(class_name: str) -> ConfigDef:
    """Return the keys of a converter of values or headers, without prefix."""
    return getattr(CONVERTERS.get(class_name, SimpleHeaderConverter), "CONFIG", None) or ConfigDef()


def make_header_converter(
    class_name: str, config: Mapping[str, str], make: Make = _make
) -> HeaderConverter:
    """Return the header converter that `class_name` names, configured.

    Raises:
        ConfigError: There is no such class, or a key has a wrong value.
    """
    if class_name not in HEADER_CONVERTERS:
        text = no_such_class(class_name, HEADER_CONVERTERS)
        raise ConfigError.of("header.converter", class_name, text)
    found = CONVERTERS.get(class_name)
    converter = SimpleHeaderConverter() if found is None else EachHeader(make(found))
    converter.configure(config)
    return converter


@dataclass(frozen=True, slots=True)
class TaskConverters:
    key: Converter
    value: Converter
    header: HeaderConverter


def task_converters(
    connector_config: Mapping[str, str], worker_settings: Mapping[str, str], make: Make = _make
) -> TaskConverters:
    """Return the converters of a task: those that the connector names, else the worker's. The keys
    of a converter (``value.converter.schemas.enable``) are taken from the config that names it.

    Args:
        make: Makes the converter of a class, with resources that only the runtime has; a converter
            with a schema registry needs them.

    Raises:
        ConfigError: See `make_converter`.
    """
    key = _named("key.converter", connector_config, worker_settings)
    value = _named("value.converter", connector_config, worker_settings)
    header = _named("header.converter", connector_config, worker_settings)
    return TaskConverters(
        make_converter(*key, is_key=True, make=make),
        make_converter(*value, is_key=False, make=make),
        make_header_converter(*header, make),
    )


def converter_class(
    key: str, connector_config: Mapping[str, str], worker_settings: Mapping[str, str]
) -> str:
    """Return the class name of a task's converter; `key` is ``value.converter``, for example."""
    return _named(key, connector_config, worker_settings)[0]


_DEFAULTS: Final = {
    "key.converter": _PACKAGE + "storage.StringConverter",
    "value.converter": _PACKAGE + "storage.StringConverter",
    "header.converter": _PACKAGE + "storage.SimpleHeaderConverter",
}


def _named(
    key: str, connector_config: Mapping[str, str], worker_settings: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    place = connector_config if key in connector_config else worker_settings
    prefix = key + "."
    own = {name[len(prefix) :]: text for name, text in place.items() if name.startswith(prefix)}
    return place.get(key, _DEFAULTS[key]).strip(), own


def _sent_name(name: object) -> str:
    """Return the name of a header if Kafka can keep it as it is; it may be empty, as in Java.

    Raises:
        DataError: The name is no text, has no UTF-8, or has a NUL, at which librdkafka would cut
            it.
    """
    if not isinstance(name, str):
        raise DataError(f"the name of a header is {name!r}, expected text")
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"the name {name!r} of a header has no UTF-8: {error}") from error
    if "\0" in name:
        raise DataError(f"the name {name!r} of a header has a NUL, which Kafka's client cuts it at")
    return name


def _header_text(value: Value) -> str:
    if value.__class__ is str:
        return value
    if value.__class__ is int:  # common: a position for each record that was read from a file
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(cast(bytes, value)).decode()
    if isinstance(value, (dict, list, tuple)):
        return json_bytes(value).decode()
    if isinstance(value, (bool, int, float, str, decimal.Decimal, datetime.date, datetime.time)):
        return java_text(value)
    raise TypeError(
        f"a value of type {kind_of(value)} has no form in a header; expected str, a number, bool, "
        "bytes, date, time, datetime, dict or list"
    )


_WORDS: Final[Mapping[str, Value]] = {"true": True, "false": False, "null": None}


def _header_value(data: bytes) -> Value:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    if text in _WORDS:
        return _WORDS[text]
    first = text[:1]
    if first in "-0123456789" and first:
        return _header_number(text)
    if first in "[{" and first:
        try:
            return parse(text.encode())
        except (ValueError, RecursionError):
            return text
    return text


def _header_number(text: str) -> Value:
    for read in (int, float):
        try:
            number = read(text)
        except ValueError:
            continue
        if math.isfinite(number) and java_text(number) == text:
            return number
    return text
