"""Encoding of batches of records, one BLOB each. A BLOB has no offsets, so encoding needs no lock.

Layout, little endian, counts in 32 bits::

    u8 version = 1 | u8 compression (0 none, 1 zlib) | u32 count | u32 crc32 of what follows
    body, compressed:
        i64 timestamp_ms * count
        i32 key length * count          -1: no key
        i32 value length * count        -1: a tombstone
        u32 shapes | u32 length, JSON   distinct tuples of header names
        u32 shape of the record * count, absent when the only shape is "no headers"
        u32 n | i32 header value length * n   -1: a header without a value
        keys | values | header values

The layout has columns, because the standard library packs and slices them without a loop per byte.
"""

import json
import struct
import zlib
from array import array
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, repeat
from typing import Final

from headgate.log.record_columns import RecordColumns
from headgate.ports import (
    ConsumerRecord,
    Headers,
    LogBatch,
    ProducerRecord,
    TopicPartition,
    TransportError,
)
from headgate_embedded import arrow_batches

_VERSION: Final = 1
_PREFIX: Final = struct.Struct("<BBII")
_U32: Final = struct.Struct("<I")
COMPRESSIONS: Final = {"none": 0, "zlib": 1}


def encode(records: Sequence[ProducerRecord], now_ms: int, compression: int = 0) -> bytes:
    """Encode records as a batch. Records without a timestamp get `now_ms`."""
    count = len(records)
    keys = [record.key for record in records]
    values = [record.value for record in records]
    parts = [
        _column("q", [now_ms if r.timestamp_ms is None else r.timestamp_ms for r in records]),
        _column("i", [-1 if key is None else len(key) for key in keys]),
        _column("i", [-1 if value is None else len(value) for value in values]),
    ]
    shapes, header_values = _header_columns(records)
    parts += shapes
    parts.append(b"".join([key for key in keys if key]))
    parts.append(b"".join([value for value in values if value]))
    parts.append(b"".join(header_values))
    body = b"".join(parts)
    if compression:
        body = zlib.compress(body, 1)
    return _PREFIX.pack(_VERSION, compression, count, zlib.crc32(body)) + body


def encode_batch(batch: LogBatch, now_ms: int, compression: int = 0) -> bytes:
    """Encode a batch of Arrow rows. Without a timestamp it gets `now_ms`."""
    pieces = arrow_batches.encode_body(batch, now_ms)
    if compression:
        pieces = [zlib.compress(b"".join(pieces), 1)]
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    head = _PREFIX.pack(arrow_batches.VERSION, compression, batch.count, checksum)
    return b"".join([head, *pieces])


def is_batch(data: bytes) -> bool:
    """Return whether these bytes are a batch of Arrow rows."""
    return data[0] == arrow_batches.VERSION


def decode_batch(topic: str, partition: int, base: int, data: bytes, start: int = 0) -> LogBatch:
    """Decode a batch of Arrow rows whose first row has offset `base`. Rows before offset `start`
    are marked to be skipped.

    Raises:
        TransportError: as `decode`.
    """
    count, body = _body(topic, partition, base, data)
    batch = arrow_batches.decode_body(topic, partition, base, count, body)
    batch.skip = max(start - base, 0)
    return batch


def _body(topic: str, partition: int, base: int, data: bytes) -> tuple[int, memoryview]:
    version, compression, count, checksum = _PREFIX.unpack_from(data)
    body = memoryview(data)[_PREFIX.size :]
    found = zlib.crc32(body)
    if version not in (_VERSION, arrow_batches.VERSION) or found != checksum:
        raise TransportError(
            f"batch at {topic}-{partition} offset {base} is damaged (format {version}, checksum "
            f"{found:#x}, expected {_VERSION} or {arrow_batches.VERSION}, {checksum:#x})"
        )
    return count, memoryview(zlib.decompress(body)) if compression else body


def decode(
    topic: str,
    partition: int,
    base: int,
    data: bytes,
    start: int = 0,
    limit: int = 1 << 62,
) -> list[ConsumerRecord]:
    """Decode a batch whose first record has offset `base`. Return its records from offset `start`
    on.

    Args:
        limit: the most records that are made of Arrow rows, because that is expensive. Other
            batches are returned whole.

    Raises:
        TransportError: the bytes are damaged.
        MissingExtraError: pyarrow is not installed, and the batch is of Arrow rows.
    """
    if is_batch(data):
        batch = decode_batch(topic, partition, base, data, start)
        end = min(batch.skip + limit, batch.count)
        return arrow_batches.records(batch, batch.skip, end)
    count, body = _body(topic, partition, base, data)
    found = _Columns(count, body)
    skip = max(start - base, 0)
    rows = zip(
        repeat(topic),
        repeat(partition),
        range(base, base + count),
        found.keys,
        found.values,
        found.headers,
        found.timestamps,
        strict=False,
    )
    records = [ConsumerRecord(*row) for row in rows]
    return records[skip:] if skip else records


class _Columns:
    """The columns of a batch of records."""

    def __init__(self, count: int, body: memoryview) -> None:
        reader = _Reader(bytes(body))
        self.timestamps = reader.column("q", count)
        key_lengths = reader.column("i", count)
        value_lengths = reader.column("i", count)
        headers = reader.headers(count)
        self.keys = reader.slices(key_lengths)
        self.values = reader.slices(value_lengths)
        self._filled = partial(reader.filled, headers)

    @property
    def headers(self) -> Sequence[Headers]:
        return self._filled()


class StoredColumns(RecordColumns):
    """The columns of consecutive batches, from offset `start` to before `end`.

    Args:
        rows: (offset of the first record, bytes) of each batch. None of them has Arrow rows.
    """

    readable = True

    def __init__(
        self, place: TopicPartition, rows: Sequence[tuple[int, bytes]], start: int, end: int
    ) -> None:
        self.place = place
        self._rows, self._start, self._end = rows, start, end
        self._parts: list[tuple[int, slice, _Columns]] = []
        self.after = None
        for base, data in rows:
            count, body = _body(*place, base, data)
            wanted = slice(max(start - base, 0), min(end - base, count))
            self._parts.append((base, wanted, _Columns(count, body)))
            self.after = base + wanted.stop

    def values(self) -> Sequence[bytes | None]:
        return [value for _, wanted, part in self._parts for value in part.values[wanted]]

    def keys(self) -> Sequence[bytes | None]:
        return [key for _, wanted, part in self._parts for key in part.keys[wanted]]

    def offsets(self) -> Sequence[int]:
        return [
            offset
            for base, wanted, _ in self._parts
            for offset in range(base + wanted.start, base + wanted.stop)
        ]

    def timestamps_ms(self) -> Sequence[int]:
        return [stamp for _, wanted, part in self._parts for stamp in part.timestamps[wanted]]

    def records(self) -> Sequence[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        for base, data in self._rows:
            found += decode(*self.place, base, data, self._start)
        while found and found[-1].offset >= self._end:
            found.pop()
        return found


class _Headers:
    """The columns about headers, which come before the headers' values."""

    def __init__(self, shapes: list[tuple[str, ...]], which: Sequence[int], sizes: Sequence[int]):
        self.shapes = shapes
        self.which = which
        self.sizes = sizes


class _Reader:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def column(self, kind: str, count: int) -> "array[int]":
        found: array[int] = array(kind)
        end = self._at + count * found.itemsize
        found.frombytes(self._body[self._at : end])
        self._at = end
        return arrow_batches.little_endian(found)

    def number(self) -> int:
        (found,) = _U32.unpack_from(self._body, self._at)
        self._at += _U32.size
        return int(found)

    def slices(self, lengths: Sequence[int]) -> list[bytes | None]:
        body = self._body
        sizes = [0 if length < 0 else length for length in lengths]
        ends = list(accumulate(sizes, initial=self._at))
        self._at = ends[-1]
        return [
            None if length < 0 else body[start : start + length]
            for start, length in zip(ends, lengths, strict=False)
        ]

    def headers(self, count: int) -> _Headers:
        size = self.number()
        raw = self._body[self._at : self._at + size]
        self._at += size
        shapes = [tuple(names) for names in json.loads(raw)]
        which = self.column("I", count) if shapes != [()] else array("I", bytes(4 * count))
        return _Headers(shapes, which, self.column("i", self.number()))

    def filled(self, headers: _Headers) -> Sequence[Headers]:
        if headers.shapes == [()]:
            return [()] * len(headers.which)
        values = iter(self.slices(headers.sizes))
        shapes = headers.shapes
        # The names are zip's first argument, so it stops at the last name before it takes a value.
        return [tuple(zip(shapes[n], values, strict=False)) for n in headers.which]


def _header_columns(records: Sequence[ProducerRecord]) -> tuple[list[bytes], list[bytes]]:
    known: dict[tuple[str, ...], int] = {}
    which: list[int] = []
    values: list[bytes] = []
    lengths: list[int] = []
    for record in records:
        headers = record.headers
        names = tuple([name for name, _ in headers]) if headers else ()
        index = known.get(names)
        if index is None:
            index = known[names] = len(known)
        which.append(index)
        for _, value in headers:
            lengths.append(-1 if value is None else len(value))
            values.append(value or b"")
    shapes = json.dumps(list(known), separators=(",", ":")).encode()
    parts = [_U32.pack(len(shapes)), shapes]
    if list(known) != [()]:
        parts.append(_column("I", which))
    parts += [_U32.pack(len(lengths)), _column("i", lengths)]
    return parts, values


def _column(kind: str, numbers: Sequence[int]) -> bytes:
    return arrow_batches.little_endian(array(kind, numbers)).tobytes()
