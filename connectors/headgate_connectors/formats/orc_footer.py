"""What the footer of an ORC file says that pyarrow does not tell.

Source: the ORC specification, version 1: "File Tail" and orc_proto.proto.
"""

import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple

_TAIL_BYTES: Final = 1 << 16
_FOOTER_LENGTH, _COMPRESSION = 1, 2
"""Fields of a postscript."""
_STRIPES, _CALENDAR = 3, 11
"""Fields of a footer."""
_ROWS_OF_STRIPE: Final = 5
_JULIAN: Final = 1
_NONE, _ZLIB, _SNAPPY, _LZ4, _ZSTD = 0, 1, 2, 4, 5
"""Kinds of compression."""


class OrcFooter(NamedTuple):
    rows: tuple[int, ...]
    """How many rows each stripe has."""
    is_julian: bool
    """Whether days before 15 October 1582 are counted by the Julian calendar."""


def orc_footer(arrow: Any, file: BinaryIO) -> OrcFooter | None:
    """None: it is not understood."""
    try:
        return _parsed(_footer(arrow, file))
    except (arrow.ArrowException, ValueError, IndexError, TypeError, zlib.error):
        return None


def _footer(arrow: Any, file: BinaryIO) -> bytes:
    size = file.seek(0, 2)
    tail = _last(file, size, _TAIL_BYTES)
    behind = tail[-1] + 1
    postscript = dict(_fields(tail[-behind:-1]))
    length = postscript[_FOOTER_LENGTH]
    if length + behind > len(tail):
        tail = _last(file, size, length + behind)
    data = tail[len(tail) - behind - length : len(tail) - behind]
    return _decompressed(arrow, data, postscript.get(_COMPRESSION, _NONE))


def _last(file: BinaryIO, size: int, count: int) -> bytes:
    file.seek(max(0, size - count))
    return file.read()


def _decompressed(arrow: Any, data: bytes, codec: int) -> bytes:
    if codec == _NONE:
        return data
    parts, at = list[bytes](), 0
    while at < len(data):
        header = int.from_bytes(data[at : at + 3], "little")
        piece, at = data[at + 3 : at + 3 + (header >> 1)], at + 3 + (header >> 1)
        is_plain = header & 1  # compressed it would be longer
        parts.append(piece if is_plain else _chunk(arrow, piece, codec))
    return b"".join(parts)


def _chunk(arrow: Any, data: bytes, codec: int) -> bytes:
    if codec == _ZLIB:
        return zlib.decompress(data, -zlib.MAX_WBITS)
    if codec == _ZSTD:
        found = arrow.input_stream(arrow.py_buffer(data), compression="zstd").read()
    elif codec == _SNAPPY:
        found = arrow.Codec("snappy").decompress(data, _varint(data, 0)[0])
    elif codec == _LZ4:
        found = arrow.Codec("lz4_raw").decompress(data, _lz4_size(data))
    else:
        raise ValueError(codec)
    return bytes(found)


def _lz4_size(data: bytes) -> int:
    """How many bytes a block of LZ4 has when decompressed. Source: LZ4 Block Format."""

    at = size = 0

    def length(first: int) -> int:
        nonlocal at
        found, more = first, 255 if first == 15 else 0
        while more == 255:
            more, at = data[at], at + 1
            found += more
        return found

    while at < len(data):
        token, at = data[at], at + 1
        literals = length(token >> 4)
        at, size = at + literals, size + literals
        if at < len(data):  # the last sequence has literals alone
            at += 2
            size += length(token & 15) + 4
    return size


def _parsed(footer: bytes) -> OrcFooter:
    rows, calendar = list[int](), 0
    for number, value in _fields(footer):
        if number == _STRIPES:
            rows.append(dict(_fields(value)).get(_ROWS_OF_STRIPE, 0))
        elif number == _CALENDAR:
            calendar = value
    return OrcFooter(tuple(rows), calendar == _JULIAN)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a message of Protobuf: an int, or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(kind)
        if at + size > len(data):
            raise ValueError(size)
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = data[at]
        found, at, shift = found | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return found, at
