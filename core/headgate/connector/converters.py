"""Converters between values and bytes, found by Connect's class names.

Values carry no schema here: dicts and lists of them stand for structs, maps and arrays.
Source: Connect's `StringConverter`, `JsonConverter`, `ByteArrayConverter`, `NumberConverter`s and
`SimpleHeaderConverter` (4.3.1). What differs is said at each class.
"""

import base64
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from headgate.connector.api import Converter, DataError, Headers, Value
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type, java_text
from headgate.connector.envelope import envelope_start, kind_of, open_envelope
from headgate.connector.validators import no_such_class
from headgate.java.double import java_double
from headgate.java.json import dumps
from headgate.ports import Headers as RawHeaders


class StringConverter:
    """Text as UTF-8. Numbers and booleans become Java's text of them.

    Differs: a dict or list becomes JSON text, where Java writes the form of its `toString`; only
    the encoding UTF-8 is known; bytes are taken as text if they are UTF-8.
    """

    CONFIG: Final = ConfigDef().define(
        "converter.encoding",
        Type.STRING,
        "UTF-8",
        None,
        Importance.HIGH,
        "The name of the character set of encoded strings; only UTF-8.",
    )

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        """
        Raises:
            ConfigError: an encoding that is not UTF-8.
        """
        encoding = config.get("converter.encoding", "UTF-8")
        if encoding.strip().upper() not in ("UTF-8", "UTF8"):
            raise ConfigError.of("converter.encoding", encoding, "only UTF-8 is supported")

    def from_connect(self, topic: str, value: Value) -> bytes | None:
        if value.__class__ is str:
            try:
                return value.encode()
            except UnicodeEncodeError as error:
                raise DataError(f"Failed to serialize to a string: {error}") from error
        if value is None:
            return None
        if isinstance(value, (dict, list, tuple)):
            return _json_bytes(cast(Value, value))
        if isinstance(value, (bytes, bytearray)):
            return bytes(value)
        return java_text(value).encode()

    def to_connect(self, topic: str, data: bytes | None) -> Value:
        if data is None:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"Failed to deserialize string: {error}") from error


class ByteArrayConverter:
    """Bytes as they are. Source: ByteArrayConverter."""

    CONFIG: Final = ConfigDef()

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        pass

    def from_connect(self, topic: str, value: Value) -> bytes | None:
        if value is None or value.__class__ is bytes:
            return value
        if isinstance(value, (bytearray, memoryview)):
            return bytes(cast("bytearray", value))
        raise DataError(
            f"ByteArrayConverter is not compatible with objects of type {kind_of(value)}"
        )

    def to_connect(self, topic: str, data: bytes | None) -> Value:
        return data


class JsonConverter:
    """JSON in Connect's envelope of schema and payload, or plain (`schemas.enable` = false).

    Values have no schema here, so the envelope gets the one that Java's connectors give to such a
    value: text, a boolean, a whole number of 64 bits, a float and bytes are required `string`,
    `boolean`, `int64`, `double` and `bytes`; objects and lists have schema null, as Java writes
    what has none. The payload of an envelope is read by its schema (bytes from base64, defaults for
    nulls; logical types stay in the type that carries them).

    Differs: Java can have other schemas (a struct, an optional string), so its bytes for the same
    data may have them; floats inside objects and lists are in Python's form (1e+20 for 1.0E20); in
    an envelope too, no bytes at all are a null, which Java refuses. Numbers of any size are read as
    they are. Source: JsonConverter (4.3.1), but for its `schema.content` and `decimal.format`.
    """

    CONFIG: Final = (
        ConfigDef()
        .define(
            "schemas.enable",
            Type.BOOLEAN,
            True,
            None,
            Importance.HIGH,
            "Include schemas within each of the serialized values and keys.",
        )
        .define(
            "schemas.cache.size",
            Type.INT,
            1000,
            None,
            Importance.HIGH,
            "Taken for compatibility; nothing is cached.",
        )
        .define(
            "replace.null.with.default",
            Type.BOOLEAN,
            True,
            None,
            Importance.LOW,
            "Whether a null field gets the default of its schema.",
        )
    )

    def __init__(self) -> None:
        self._envelope = True
        self._use_defaults = True

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        """
        Raises:
            ConfigError: a value of a wrong type.
        """
        parsed = self.CONFIG.parse(config)
        self._envelope = parsed["schemas.enable"]
        self._use_defaults = parsed["replace.null.with.default"]

    def from_connect(self, topic: str, value: Value) -> bytes | None:
        if value is None:
            return None
        data = _json_bytes(value)
        return envelope_start(value) + data + b"}" if self._envelope else data

    def to_connect(self, topic: str, data: bytes | None) -> Value:
        if not data:
            return None
        try:
            value: Any = json.loads(data, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise DataError(
                "Converting byte[] to Kafka Connect data failed due to serialization error: "
                f"{error}"
            ) from error
        return open_envelope(value, self._use_defaults) if self._envelope else value


class NumberConverter:
    """Numbers in a fixed count of bytes, most significant first. Source: NumberConverter."""

    CONFIG: Final = ConfigDef()
    layout: struct.Struct
    noun: str

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        pass

    def from_connect(self, topic: str, value: Value) -> bytes | None:
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


class ShortConverter(NumberConverter):
    layout = struct.Struct(">h")
    noun = "short"


class IntegerConverter(NumberConverter):
    layout = struct.Struct(">i")
    noun = "integer"


class LongConverter(NumberConverter):
    layout = struct.Struct(">q")
    noun = "long"


class FloatConverter(NumberConverter):
    layout = struct.Struct(">f")
    noun = "float"


class DoubleConverter(NumberConverter):
    layout = struct.Struct(">d")
    noun = "double"


class BooleanConverter:
    """One byte, 1 or 0. Source: BooleanConverter."""

    CONFIG: Final = ConfigDef()

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        pass

    def from_connect(self, topic: str, value: Value) -> bytes | None:
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


class HeaderConverter(Protocol):
    """All headers of a record to bytes and back. Raises `DataError`.

    None stands for a header without a value, both ways. Source: HeaderConverter.
    """

    def configure(self, config: Mapping[str, str]) -> None: ...

    def from_connect(self, topic: str, headers: Headers) -> RawHeaders: ...

    def to_connect(self, topic: str, headers: RawHeaders) -> Headers: ...


class SimpleHeaderConverter:
    """Values as text that tells their type: ``true``, ``12``, ``1.5``, ``null``, JSON lists and
    objects, other text as it is.

    A null is a header without a value, as in Java; the text ``null`` is read as a null, too.

    Differs: text is read as a number only where nothing is lost by it (``007`` stays text), and
    dates stay text. What is not UTF-8 stays bytes, as in Java. Source: SimpleHeaderConverter,
    Values.
    """

    CONFIG: Final = ConfigDef()

    def configure(self, config: Mapping[str, str]) -> None:
        pass

    def from_connect(self, topic: str, headers: Headers) -> RawHeaders:
        try:
            return tuple(
                [
                    (_sent_name(name), None if value is None else _header_text(value).encode())
                    for name, value in headers
                ]
            )
        except UnicodeEncodeError as error:
            raise DataError(f"Failed to serialize a header: {error}") from error

    def to_connect(self, topic: str, headers: RawHeaders) -> Headers:
        return tuple(
            [(name, None if data is None else _header_value(data)) for name, data in headers]
        )


class EachHeader:
    """Any converter, applied to each header. (Connect's converters of values are such converters of
    headers too.)"""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter

    def configure(self, config: Mapping[str, str]) -> None:
        self._converter.configure(config, is_key=False)

    def from_connect(self, topic: str, headers: Headers) -> RawHeaders:
        convert = self._converter.from_connect
        return tuple([(_sent_name(name), convert(topic, value)) for name, value in headers])

    def to_connect(self, topic: str, headers: RawHeaders) -> Headers:
        convert = self._converter.to_connect
        return tuple([(name, convert(topic, data)) for name, data in headers])


NO_TIMESTAMP: Final = -1
"""Kafka's word for none."""


def sending_timestamp(timestamp_ms: int) -> int | None:
    """What a source record's timestamp becomes; None: the time of sending. Source:
    ConnectUtils.checkAndConvertTimestamp.

    Raises:
        ValueError: there is no such time; the task fails, whatever it tolerates, as in Connect.
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
}
"""Converters by full name, simple name, and simple name without ``Converter``."""

HEADER_CONVERTERS: Final[frozenset[str]] = frozenset(
    {
        _PACKAGE + "storage.SimpleHeaderConverter",
        "SimpleHeaderConverter",
        "SimpleHeader",
        *CONVERTERS,
    }
)


def make_converter(class_name: str, config: Mapping[str, str], *, is_key: bool) -> Converter:
    """The converter that `class_name` names, configured.

    Args:
        config: its own keys, without the prefix ``key.converter.`` or ``value.converter.``.

    Raises:
        ConfigError: no such class, or a key with a wrong value.
    """
    found = CONVERTERS.get(class_name)
    if found is None:
        name = "key.converter" if is_key else "value.converter"
        raise ConfigError.of(name, class_name, no_such_class(class_name, CONVERTERS))
    converter = found()
    converter.configure(config, is_key=is_key)
    return converter


def config_def_of(class_name: str) -> ConfigDef:
    """The keys of a converter of values or headers, without prefix."""
    return getattr(CONVERTERS.get(class_name, SimpleHeaderConverter), "CONFIG", None) or ConfigDef()


def make_header_converter(class_name: str, config: Mapping[str, str]) -> HeaderConverter:
    """
    Raises:
        ConfigError: no such class, or a key with a wrong value.
    """
    if class_name not in HEADER_CONVERTERS:
        text = no_such_class(class_name, HEADER_CONVERTERS)
        raise ConfigError.of("header.converter", class_name, text)
    found = CONVERTERS.get(class_name)
    converter = SimpleHeaderConverter() if found is None else EachHeader(found())
    converter.configure(config)
    return converter


@dataclass(frozen=True, slots=True)
class TaskConverters:
    key: Converter
    value: Converter
    header: HeaderConverter


def task_converters(
    connector_config: Mapping[str, str], worker_settings: Mapping[str, str]
) -> TaskConverters:
    """The converters of a task: those the connector names, else the worker's. The keys below a
    converter's own (``value.converter.schemas.enable``) are taken from where it is named.

    Raises:
        ConfigError: see `make_converter`.
    """
    key = _named("key.converter", connector_config, worker_settings)
    value = _named("value.converter", connector_config, worker_settings)
    header = _named("header.converter", connector_config, worker_settings)
    return TaskConverters(
        make_converter(*key, is_key=True),
        make_converter(*value, is_key=False),
        make_header_converter(*header),
    )


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


def _json_bytes(value: Value) -> bytes:
    try:
        if value.__class__ is float and math.isfinite(value):
            return java_double(value).encode()
        return dumps(value, _json_other)
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(
            f"Converting Kafka Connect data to byte[] failed due to serialization error: {error}"
        ) from error


def _json_other(value: object) -> str:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    raise TypeError(f"a value of type {kind_of(value)} has no form in JSON")


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _sent_name(name: object) -> str:
    """The name of a header that Kafka can keep as it is; it may be empty, as in Java.

    Raises:
        DataError: no text, text that has no UTF-8, or a NUL: librdkafka would cut the name there.
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
    if value.__class__ is int:  # positions: one for each record that was read from a file
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(cast(bytes, value)).decode()
    if isinstance(value, (dict, list, tuple)):
        return _json_bytes(cast(Value, value)).decode()
    return java_text(value)


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
            return json.loads(text, parse_constant=_refuse_constant)
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
