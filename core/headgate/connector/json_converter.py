"""Connect's JsonConverter. Source: JsonConverter, JsonConverterConfig (4.3.1)."""

import base64
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from headgate.connector.api import Value
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.data_error import DataError
from headgate.connector.envelope import (
    EnvelopeReader,
    EnvelopeWriter,
    PayloadReader,
    envelope_start,
    parse,
)
from headgate.connector.json_schema import read_schema
from headgate.connector.json_values import DecimalFormat
from headgate.connector.schema import Schema, SchemaAndValue, is_dict, kind_of
from headgate.connector.validators import one_of_any_case
from headgate.java.double import java_double
from headgate.java.json import dumps

_CONFIG: Final = (
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
        "The maximum number of schemas that are kept ready to write, and to read.",
    )
    .define(
        "schema.content",
        Type.STRING,
        None,
        None,
        Importance.HIGH,
        "The schema of all values that are read, as JSON; they have no envelope then.",
    )
    .define(
        "decimal.format",
        Type.STRING,
        "BASE64",
        one_of_any_case("BASE64", "NUMERIC"),
        Importance.LOW,
        "Form of decimals that are written: BASE64 (their unscaled bytes) or NUMERIC.",
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


class JsonForm(NamedTuple):
    """Settings by which a JsonConverter writes values of a schema."""

    numbers: DecimalFormat
    use_defaults: bool
    """Whether a null is written as the default of its schema."""
    start: bytes
    """Bytes before the JSON of each value."""
    end: bytes


class JsonConverter:
    """JSON in Connect's envelope of schema and payload, or plain JSON (`schemas.enable` = false).

    A value without a schema gets the schema that Java's connectors give to such a value. Text, a
    boolean, an integer of 64 bits, a float and bytes become required `string`, `boolean`, `int64`,
    `double` and `bytes`. Objects and lists get schema null, as Java writes values without one.

    Differs: floats inside objects and lists without a schema have Python's form (1e+20 for 1.0E20).
    With an envelope too, empty bytes are read as null, which Java refuses. Numbers without a schema
    are read at any size. For payloads see `headgate.connector.json_values`.
    """

    CONFIG: Final = _CONFIG

    def __init__(self) -> None:
        self.configure({}, is_key=False)

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        """Configure the converter.

        Raises:
            ConfigError: A value has the wrong type, or `schema.content` is no schema.
        """
        parsed = self.CONFIG.parse(config)
        self._envelope: bool = parsed["schemas.enable"]
        self._use_defaults = use_defaults = bool(parsed["replace.null.with.default"])
        cache_size: int = parsed["schemas.cache.size"]
        self._numbers = numbers = DecimalFormat(parsed["decimal.format"].upper())
        self._writer = EnvelopeWriter(numbers, use_defaults, cache_size)
        self._reader = EnvelopeReader(use_defaults, cache_size)
        text: str | None = parsed["schema.content"]
        self._content = _content(text, use_defaults) if text and self._envelope else None

    def from_connect(self, topic: str, value: Value, schema: Schema | None = None) -> bytes | None:
        try:
            if schema is not None:
                write = self._writer.envelope if self._envelope else self._writer.payload
                return write(schema, value)
            if value is None:
                return None
            data = json_bytes(value)
        except UnicodeEncodeError as error:
            raise DataError(f"{_FAILED}: {error}") from error
        return envelope_start(value) + data + b"}" if self._envelope else data

    def form(self, schema: Schema) -> JsonForm:
        """Return how values of `schema` are written, for code that writes many at once.

        Raises:
            DataError: A type in the schema does not fit the logical type that it names.
        """
        start, end = (self._writer.start(schema), b"}") if self._envelope else (b"", b"")
        return JsonForm(self._numbers, self._use_defaults, start, end)

    def to_connect(self, topic: str, data: bytes | None) -> Value:
        return self.to_connect_data(topic, data).value

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if not data:
            return SchemaAndValue(None, None)
        try:
            if self._content is not None:
                payload = self._content.parse(data)
            elif self._envelope:
                return self._reader.read(data)
            else:
                return SchemaAndValue(None, parse(data))
        except (ValueError, RecursionError) as error:
            raise DataError(
                "Converting byte[] to Kafka Connect data failed due to serialization error: "
                f"{error}"
            ) from error
        return SchemaAndValue(self._content.schema, self._content.read(payload))


_FAILED: Final = "Converting Kafka Connect data to byte[] failed due to serialization error"


def _content(text: str, use_defaults: bool) -> PayloadReader:
    try:
        schema = read_schema(json.loads(text), use_defaults)
    except (ValueError, RecursionError, DataError) as error:
        raise ConfigError.of("schema.content", text, f"no schema: {error}") from error
    if schema is None:
        raise ConfigError.of("schema.content", text, "no schema: null")
    return PayloadReader(schema, use_defaults)


def json_bytes(value: Value) -> bytes:
    """Return `value`, which has no schema, as JSON.

    Raises:
        DataError: A part of it has no form in JSON; the text names its place.
    """
    try:
        if value.__class__ is float and math.isfinite(value):
            return java_double(value).encode()
        return dumps(value, _json_other)
    except (ValueError, TypeError, RecursionError) as error:
        try:
            place = place_without_form(value, _json_other)
        except RecursionError:
            place = ""
        where = f" at {place}" if place else ""
        raise DataError(f"{_FAILED}: {error}{where}") from error


def _json_other(value: object) -> str:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    raise TypeError(
        f"a value of type {kind_of(value)} has no form in JSON without a schema; give the record "
        "a schema"
    )


def place_without_form(value: Any, other: Callable[[Any], str], path: str = "value") -> str:
    """Return the place of the first value in a dict or list that has no form in JSON; empty if all
    have.

    Args:
        other: Writes values that JSON does not know, or raises.
    """
    if is_dict(value):
        pairs = value.items()
        found = (place_without_form(item, other, f"{path}.{key}") for key, item in pairs)
    elif isinstance(value, (list, tuple)):
        items = enumerate(cast("list[Any]", value))
        found = (place_without_form(item, other, f"{path}[{index}]") for index, item in items)
    else:
        try:
            dumps(value, other)
        except (ValueError, TypeError):
            return path
        return ""
    return next((place for place in found if place), "")
