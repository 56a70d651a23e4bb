"""Records as columns without an object for each. JSON is parsed by Arrow, and batches are taken as
they are.

The result equals that of the way record by record, value by value. If Arrow might read a value
differently, the caller is told, and parses all records of the part one by one.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from headgate.connector.data_error import DataError
from headgate.connector.json_schema import read_schema
from headgate.connector.schema import Schema, SchemaType
from headgate.connector.text_converters import TYPED_MARK, typed_start
from headgate.log.record_columns import RecordColumns
from headgate.ports import LogBatch
from headgate_arrow.arrow_types import NoFormError, arrow_type
from headgate_arrow.rows import from_bytes, schema_of
from headgate_spark.chunks import VALUE, Chunk, kind_of_array, one
from headgate_spark.columns import EXACT, STRING, written_type

Arrays = dict[str, Any]
"""Columns of a chunk by their names, each of a type that `arrow_type` gives."""
_TAKEN: Final = frozenset(("key", "topic", "partition", "offset", "timestamp"))
"""Metadata for which headers need not be read."""
_NO_TEXT: Final = frozenset((b"{", b" ", b"\t", b"\n", b"\r", b"\v", b"\f", TYPED_MARK))
"""First bytes of a value that may be an object, or a value with a schema."""
_DECODER: Final = json.JSONDecoder()
_SCHEMA: Final = b'{"schema":'
_PAYLOAD: Final = b',"payload":'
_TYPES: Final[Mapping[SchemaType, Any]] = {
    SchemaType.INT8: pa.int64(),
    SchemaType.INT16: pa.int64(),
    SchemaType.INT32: pa.int64(),
    SchemaType.INT64: pa.int64(),
    SchemaType.FLOAT64: pa.float64(),
    SchemaType.BOOLEAN: pa.bool_(),
    SchemaType.STRING: pa.string(),
}
_BITS: Final = {SchemaType.INT8: 8, SchemaType.INT16: 16, SchemaType.INT32: 32}


class _OtherWayError(Exception):
    """Arrow might read the values differently."""


class ArrowParser:
    """Turns parts of a slice into chunks.

    Args:
        known: columns so far and their kinds.
        metadata: names of `columns.metadata`.
        reserved: names of fields that get one more underscore.
        envelope: whether values are those of JsonConverter with schemas.
        typed: whether columns keep the types of a schema.
    """

    def __init__(
        self,
        known: Mapping[str, str],
        metadata: Sequence[str],
        reserved: re.Pattern[str] | None,
        envelope: bool,
        typed: bool,
    ) -> None:
        self._typed = typed
        self._metadata = metadata
        self._reserved = reserved
        self._envelope = envelope
        self._texts = {
            name
            for name, kind in known.items()
            if kind == STRING and (reserved is None or not reserved.fullmatch(name))
        }
        """Fields that were text so far. Arrow would read some values as times."""

    @property
    def takes(self) -> bool:
        """Whether any part can be parsed this way."""
        return _TAKEN.issuperset(self._metadata)

    def chunk(self, part: RecordColumns | LogBatch, end: int) -> Chunk | None:
        """Return the rows before offset `end`, or None if this part must be parsed record by
        record."""
        try:
            if isinstance(part, LogBatch):
                columns, count = _of_batch(part, end, self._typed)
                return self._chunk(columns, count, self._metadata_of_batch(part, end))
            if not part.readable:
                return None
            values = part.values()
            arrays = self._parsed(values)
            return self._chunk(arrays, len(values), self._metadata_of_columns(part))
        except (
            _OtherWayError,
            pa.ArrowException,
            UnicodeDecodeError,
            DataError,
            NoFormError,
            ValueError,
        ):
            return None

    def _chunk(self, arrays: Arrays, count: int, metadata: Arrays) -> Chunk:
        named: Arrays = {}
        for name, array in arrays.items():
            if self._reserved is not None and self._reserved.fullmatch(name):
                name = f"_{name}"
            named[name] = array
        named.update(metadata)
        return Chunk(
            count, {name: kind_of_array(array) for name, array in named.items()}, named, None
        )

    # -- values of records --

    def _parsed(self, values: Sequence[bytes | None]) -> Arrays:
        given = [value for value in values if value is not None]
        if not given:
            return {}
        first = given[0]
        if first[:1] == TYPED_MARK:
            end = typed_start(first)
            if end is None or len(given) < len(values):
                raise _OtherWayError
            return _typed(given, first[:end], b"", _typed_schema(first[:end]))
        if self._envelope:
            if len(given) < len(values):
                raise _OtherWayError
            return _opened(given)
        starts = {value[:1] for value in given}
        if starts == {b"{"}:
            if len(given) < len(values):
                given = [b"{}" if value is None else value for value in values]
            return self._objects(given)
        if starts.isdisjoint(_NO_TEXT):
            return {VALUE: pa.array(values, pa.binary()).cast(pa.string())}
        raise _OtherWayError

    def _objects(self, values: Sequence[bytes]) -> Arrays:
        lines = _lines(values)
        table = _read(lines, len(values), self._hints())
        names = table.column_names
        times = {one.name for one in table.schema if pa.types.is_timestamp(one.type)}
        if times:
            self._texts |= times
            table = _read(lines, len(values), self._hints())
        found = {name: _plain(table.column(name)) for name in names}
        self._texts |= {name for name in names if pa.types.is_string(found[name].type)}
        return found

    def _hints(self) -> Any:
        return pa.schema([(name, pa.string()) for name in sorted(self._texts)])

    # -- metadata --

    def _metadata_of_columns(self, part: RecordColumns) -> Arrays:
        found: Arrays = {}
        count = len(part.offsets()) if self._metadata else 0
        for name in self._metadata:
            if name == "key":
                found["_key"] = pa.array(part.keys(), pa.binary()).cast(pa.string())
            elif name == "offset":
                found["_offset"] = pa.array(part.offsets(), pa.int64())
            elif name == "timestamp":
                found["_timestamp"] = pa.array(part.timestamps_ms(), pa.int64())
            else:
                found[f"_{name}"] = _same(part.place[name == "partition"], count)
        return found

    def _metadata_of_batch(self, batch: LogBatch, end: int) -> Arrays:
        first, after = batch.skip, _rows_until(batch, end)
        given = {
            "key": None if batch.key is None else batch.key.decode(),
            "topic": batch.topic,
            "partition": batch.partition,
            "timestamp": batch.timestamp_ms,
        }
        return {
            f"_{name}": pa.array(range(batch.offset + first, batch.offset + after), pa.int64())
            if name == "offset"
            else _same(given[name], after - first)
            for name in self._metadata
        }


def _same(value: Any, count: int) -> Any:
    kind = pa.string() if value is None or isinstance(value, str) else pa.int64()
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def _rows_until(batch: LogBatch, end: int) -> int:
    return min(batch.count, end - batch.offset)


# -- JSON --


def _lines(values: Sequence[bytes]) -> bytes:
    """Return the values, each of which begins and ends as an object, as one line each.

    If Arrow then finds as many objects as there are values, each value is one object: between ``}``
    and ``{`` there is no place inside an object where a line may end.
    """
    data = pa.array(values, pa.binary())
    if not pc.all(pc.and_(pc.starts_with(data, b"{"), pc.ends_with(data, b"}"))).as_py():
        raise _OtherWayError
    lines = b"\n".join(values) + b"\n"
    lines.decode()
    return lines


def _read(lines: bytes, count: int, columns: Any) -> Any:
    """Return the table of `count` lines, with at least these columns."""
    table = pyarrow.json.read_json(
        pa.BufferReader(lines),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=columns),
    )
    if table.num_rows != count:
        raise _OtherWayError
    return table


def _plain(column: Any) -> Any:
    """Return a column of Arrow's JSON as one array of a kind's type."""
    array = one(column)
    kind = array.type
    if pa.types.is_floating(kind):
        # Whole numbers among them are exact only below this. NaN is no JSON.
        if not pc.all(pc.less(pc.abs(array), EXACT)).as_py():
            raise _OtherWayError
    elif pa.types.is_null(kind):
        return array.cast(pa.string())
    elif kind not in (pa.int64(), pa.bool_(), pa.string()):
        raise _OtherWayError
    return array


# -- values with a schema --


@lru_cache(maxsize=64)
def _typed_schema(start: bytes) -> Schema:
    schema = read_schema(json.loads(start[6:]))
    if schema is None:
        raise _OtherWayError
    return schema


def _opened(values: Sequence[bytes]) -> Arrays:
    """Return the columns of payloads in envelopes that all have the schema of the first."""
    if not values[0].startswith(_SCHEMA):
        raise _OtherWayError
    text = values[0].decode()
    document, end = _DECODER.raw_decode(text, len(_SCHEMA))
    schema = None if document is None else read_schema(document)
    if schema is None:
        raise _OtherWayError
    return _typed(values, text[:end].encode() + _PAYLOAD, b"}", schema)


def _typed(values: Sequence[bytes], start: bytes, tail: bytes, schema: Schema) -> Arrays:
    """Return the columns of payloads between `start` and `tail`, read by `schema`."""
    types = _types_of(schema)
    if not all(value.startswith(start) and value.endswith(tail) for value in values):
        raise _OtherWayError
    begin, end = len(start), -len(tail) or None
    payloads = [value[begin:end] for value in values]
    table = _read(_lines(payloads), len(values), pa.schema(list(types.items())))
    for name in table.column_names:
        _plain(table.column(name))
    found = {name: one(table.column(name)) for name in types}
    for part in schema.fields:
        _check(found[part.name], part.schema)
    return found


def _types_of(schema: Schema) -> dict[str, Any]:
    """Return Arrow's types of the fields. Each must be a type that JSON has, too."""
    if schema.type is not SchemaType.STRUCT:
        raise _OtherWayError
    found: dict[str, Any] = {}
    for part in schema.fields:
        one = part.schema
        if one.name is not None or one.default is not None or one.type not in _TYPES:
            raise _OtherWayError
        found[part.name] = _TYPES[one.type]
    if not found:
        raise _OtherWayError
    return found


def _check(array: Any, schema: Schema) -> None:
    if array.null_count and not schema.optional:
        raise _OtherWayError
    bits = _BITS.get(schema.type)
    if bits is None or array.null_count == len(array):
        return
    bounds, limit = pc.min_max(array), 1 << (bits - 1)
    if bounds["min"].as_py() < -limit or bounds["max"].as_py() >= limit:
        raise _OtherWayError


def _of_batch(batch: LogBatch, end: int, typed: bool) -> tuple[Arrays, int]:
    """Return the columns and the number of rows of a batch of the log. With `typed`, all columns
    keep their types."""
    schema = schema_of(batch.schema)
    if not typed:
        _types_of(schema)
    first, after = batch.skip, _rows_until(batch, end)
    rows = from_bytes(batch.data).slice(first, after - first)
    rows.validate(full=True)
    found: Arrays = {}
    for part in schema.fields:
        array = rows.column(part.name)
        kind = written_type(arrow_type(part.schema, part.name))
        if kind is None or part.schema.default is not None:
            raise _OtherWayError
        if array.null_count and not part.schema.optional:
            raise _OtherWayError
        array = array.cast(kind)
        is_text = not typed and pa.types.is_floating(kind)  # NaN is "NaN" in JSON for people
        if is_text and pc.all(pc.is_finite(array)).as_py() is False:
            raise _OtherWayError
        found[part.name] = array
    return found, after - first
