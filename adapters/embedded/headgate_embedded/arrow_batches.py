"""Encoding of batches of Arrow rows, one BLOB each, for `headgate_embedded.batches`.

Layout, little endian::

    u8 version = 2 | u8 compression | u32 count | u32 crc32 of what follows
    body, compressed:
        u32 length, JSON    {"time", "key", "headers", "schema"}; blanks to a multiple of 64 bytes
        Arrow IPC stream

The JSON has the values that all rows share, with bytes in base64. A header may have a number for
each row. It is ``[first, step]`` if the numbers are a range, and the numbers as 64-bit integers
otherwise.

pyarrow is needed only for a reader of records, which are made from the rows
(`headgate_arrow.rows.log_records`).
"""

import json
import struct
import sys
from array import array
from base64 import b64decode, b64encode
from typing import Any, Final

from headgate.errors import MissingExtraError
from headgate.ports import ConsumerRecord, LogBatch, RowNumbers

VERSION: Final = 2
_U32: Final = struct.Struct("<I")
_ALIGNED: Final = 64
_PREFIX_BYTES: Final = 10
"""Size of the prefix that `headgate_embedded.batches` writes before the body."""


def encode_body(batch: LogBatch, now_ms: int) -> list[bytes | memoryview]:
    """Return the body of a batch, in pieces. Without a timestamp it gets `now_ms`."""
    meta = {
        "time": now_ms if batch.timestamp_ms is None else batch.timestamp_ms,
        "key": _text(batch.key),
        "headers": [[name, _header(value)] for name, value in batch.headers],
        "schema": batch.schema.decode(),
    }
    text = json.dumps(meta, separators=(",", ":")).encode()
    text += b" " * (-(_PREFIX_BYTES + _U32.size + len(text)) % _ALIGNED)
    return [_U32.pack(len(text)), text, batch.data]


def decode_body(topic: str, partition: int, base: int, count: int, body: memoryview) -> LogBatch:
    """Return the batch in a body. Its first row has offset `base`."""
    (length,) = _U32.unpack_from(body)
    end = _U32.size + length
    meta = json.loads(bytes(body[_U32.size : end]))
    return LogBatch(
        topic,
        partition,
        count,
        _bytes(meta["key"]),
        tuple([(name, _read_header(value, count)) for name, value in meta["headers"]]),
        meta["time"],
        meta["schema"].encode(),
        body[end:],
        base,
    )


def records(batch: LogBatch, start: int, end: int) -> list[ConsumerRecord]:
    """Return rows `start` to before `end` of a batch, counted from 0, as records.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    try:
        from headgate_arrow.rows import log_records
    except ModuleNotFoundError as error:
        raise MissingExtraError("connectors") from error
    return log_records(batch, start, end)


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def _header(value: bytes | RowNumbers | None) -> Any:
    if not isinstance(value, RowNumbers):
        return _text(value)
    if isinstance(value.values, range):
        return [value.values.start, value.values.step]
    return {"i64": b64encode(little_endian(array("q", value.values)).tobytes()).decode()}


def _read_header(value: Any, count: int) -> bytes | RowNumbers | None:
    if isinstance(value, list):
        start, step = value
        return RowNumbers(range(start, start + step * count, step))
    if isinstance(value, dict):
        found = array("q")
        found.frombytes(b64decode(value["i64"]))
        return RowNumbers(little_endian(found).tolist())
    return _bytes(value)


def little_endian(numbers: "array[int]") -> "array[int]":
    """Convert between the machine's byte order and little endian, in place. Return `numbers`."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
