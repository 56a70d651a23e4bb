"""The envelope of Connect's JSON: ``{"schema": ..., "payload": ...}``.

A value without a schema gets the schema that Java's connectors give to such a value. The payload of
an envelope is read by its schema. Source: `JsonConverter`, `JsonSchema` (4.3.1).
"""

import decimal
import json
from collections import OrderedDict
from typing import Any, Final, cast

from headgate.connector.data_error import DataError
from headgate.connector.json_schema import read_schema, schema_text
from headgate.connector.json_values import (
    DecimalFormat,
    Read,
    Write,
    has_decimal,
    reader,
    writer,
    written,
)
from headgate.connector.schema import DECIMAL, Schema, SchemaAndValue
from headgate.java.json import as_java


def envelope_start(value: Any) -> bytes:
    """Return the text before the payload `value`, which has no schema; a closing brace follows
    it."""
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


class EnvelopeWriter:
    """Writes values with schemas. It caches what it made of the last `cache_size` schemas."""

    def __init__(self, numbers: DecimalFormat, use_defaults: bool, cache_size: int) -> None:
        self._numbers = numbers
        self._use_defaults = use_defaults
        self._cache_size = max(cache_size, 1)
        self._known: OrderedDict[Schema, tuple[bytes, Write]] = OrderedDict()
        self._last: Schema | None = None
        self._start = b""
        self._write: Write | None = None

    def payload(self, schema: Schema, value: Any) -> bytes:
        """Return `value` as JSON.

        Raises:
            DataError: `value` does not fit `schema`; the text names the field.
        """
        return as_java(written(schema, self._writer(schema), value))

    def envelope(self, schema: Schema, value: Any) -> bytes:
        """Return `value` as JSON in an envelope."""
        text = written(schema, self._writer(schema), value)
        return self._start + as_java(text) + b"}"

    def schema(self, schema: Schema) -> bytes:
        """Return `schema` as JSON."""
        return self.start(schema)[len(_BEFORE) : -len(_BETWEEN)]

    def start(self, schema: Schema) -> bytes:
        """Return the text before a value of `schema` in its envelope; a closing brace follows the
        value."""
        self._writer(schema)
        return self._start

    def _writer(self, schema: Schema) -> Write:
        if schema is self._last:
            return cast(Write, self._write)
        found = self._known.get(schema)
        if found is None:
            text = as_java(schema_text(schema, self._numbers, self._use_defaults))
            write = writer(schema, self._numbers, self._use_defaults)
            found = self._known[schema] = (_BEFORE + text + _BETWEEN, write)
            if len(self._known) > self._cache_size:
                self._known.popitem(last=False)
        self._last = schema
        self._start, self._write = found
        return self._write


_BEFORE: Final = b'{"schema":'
_BETWEEN: Final = b',"payload":'


class EnvelopeReader:
    """Reads envelopes. An envelope that begins with the same schema as the last one is read by it
    directly."""

    def __init__(self, use_defaults: bool, cache_size: int) -> None:
        self._use_defaults = use_defaults
        self._cache_size = max(cache_size, 1)
        self._known: OrderedDict[str, PayloadReader] = OrderedDict()
        self._start: bytes | None = None
        self._last: PayloadReader | None = None

    def read(self, data: bytes) -> SchemaAndValue:
        """Return the schema and the value in `data`.

        Raises:
            DataError: It is no envelope, its schema is unknown to Connect, or the payload does not
                fit.
        """
        start = self._start
        if start is not None and data.startswith(start) and data.endswith(b"}"):
            last = cast(PayloadReader, self._last)
            try:
                payload = last.parse(data[len(start) : -1])
            except (ValueError, RecursionError):
                pass  # holds more than a schema and a payload: read as a whole
            else:
                return SchemaAndValue(last.schema, last.read(payload))
        return self._whole(data)

    def _whole(self, data: bytes) -> SchemaAndValue:
        envelope = parse(data, exact=_DECIMAL in data)
        if not isinstance(envelope, dict) or envelope.keys() != {"schema", "payload"}:
            raise DataError(
                'JsonConverter with schemas.enable requires "schema" and "payload" fields and may '
                "not contain additional fields. If you are trying to deserialize plain JSON data, "
                "set schemas.enable=false in your converter configuration."
            )
        opened = cast(dict[str, Any], envelope)
        document = opened["schema"]
        if document is None:
            return SchemaAndValue(None, opened["payload"])
        found = self._reader(document)
        result = SchemaAndValue(found.schema, found.read(opened["payload"]))
        self._learn(data, found)
        return result

    def _reader(self, document: Any) -> "PayloadReader":
        text = json.dumps(document, default=str)
        found = self._known.get(text)
        if found is None:
            schema = read_schema(document, self._use_defaults)
            assert schema is not None
            found = self._known[text] = PayloadReader(schema, self._use_defaults)
            if len(self._known) > self._cache_size:
                self._known.popitem(last=False)
        return found

    def _learn(self, data: bytes, found: "PayloadReader") -> None:
        """Remember the beginning of this envelope, if the schema comes first in it."""
        if not data.startswith(_BEFORE):
            return
        try:
            text = data.decode()
            _, end = _DECODER.raw_decode(text, len(_BEFORE))
        except ValueError:
            return
        if text.startswith(_BETWEEN.decode(), end):
            self._start = text[:end].encode() + _BETWEEN
            self._last = found


_DECIMAL: Final = DECIMAL.encode()
_DECODER: Final = json.JSONDecoder()


class PayloadReader:
    """Reads payloads of one schema."""

    def __init__(self, schema: Schema, use_defaults: bool) -> None:
        self.schema: Final = schema
        self.read: Final[Read] = reader(schema, use_defaults)
        self.exact: Final = has_decimal(schema)
        """Whether numbers with a point must be kept to the last digit."""

    def parse(self, payload: bytes) -> Any:
        return parse(payload, exact=self.exact)


def parse(data: bytes, *, exact: bool = False) -> Any:
    """Parse JSON as the standard library does, but refuse NaN and Infinity.

    Args:
        exact: Read numbers with a point as Decimal.

    Raises:
        ValueError: It is not JSON.
    """
    if exact:
        return json.loads(data, parse_constant=_refuse, parse_float=decimal.Decimal)
    return json.loads(data, parse_constant=_refuse)


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
