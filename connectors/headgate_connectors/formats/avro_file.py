"""Reads the rows of an Avro file (object container file). Needs the extra `registry`.

Such a file is a sequence of blocks of records, so it may grow while it is read. Source: the Avro
specification, "Object Container Files".
"""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final, NamedTuple

from headgate.connector.data_error import DataError
from headgate.connector.schema import Schema
from headgate.errors import MissingExtraError
from headgate_connectors.files.file_tree import FilePath
from headgate_connectors.files.input import Marks, position_of, stat_text
from headgate_connectors.files.reader import FileFault, NotReady, ReplacedError, Row, RowBatch

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_BLOCK_BYTES_MAX: Final = 1 << 30
_CRC_BYTES: Final = 4


class _CutError(Exception):
    """The file ends in the middle of something, and may still be written."""


class _Block(NamedTuple):
    first: int
    """Number of the first row."""
    rows: int
    start: int
    """Position of the data in the file."""
    size: int
    """Bytes of the data."""

    @property
    def end(self) -> int:
        return self.start + self.size + _SYNC_BYTES


class AvroReader:
    """Reads an Avro file. Positions count rows.

    A source offset has the CRC-32 of all bytes up to the end of its block. So a file is recognized
    after it has grown.
    """

    def __init__(self, path: FilePath, offset: Mapping[str, Any] | None) -> None:
        self._position = position = position_of(offset)
        self._file: BinaryIO = path.open("rb")
        try:
            self.marks: Marks = {"stat": stat_text(path.stat())}
            self._read_header()
            self._after = self._prefix = 0
            """End of the last block that was found, and the CRC-32 of all bytes before that end."""
            self._pass(self._file.tell())
            self._block = _Block(0, 0, self._after - _SYNC_BYTES, 0)
            self._values: list[Any] = []
            """Values of the block, with a DataError in place of each value that cannot be read."""
            while self._block.first + self._block.rows < position:
                if not self._next_block():
                    break
            self._check(offset, position)
        except BaseException:
            self._file.close()
            raise

    def _check(self, offset: Mapping[str, Any] | None, position: int) -> None:
        known = offset or {}
        read = self._block.first + self._block.rows
        same = known.get("prefix", self._prefix) == self._prefix
        if position > read or not same or known.get("crc", self._crc) != self._crc:
            raise ReplacedError(
                f"it was read up to row {position} and is another file now: replaced"
            )

    def read(self, limit: int, settled: bool) -> list[Row]:
        rows: list[Row] = []
        try:
            while len(rows) < limit:
                index = self._position - self._block.first
                if index >= self._block.rows:
                    if not self._next_block():
                        break
                    continue
                if not self._values:
                    fault = self._load()
                    if fault is not None:
                        rows.append(self._lost(index, fault))
                        continue
                for value in self._values[index : index + limit - len(rows)]:
                    start = self._position
                    self._position += 1
                    bad = str(value) if isinstance(value, DataError) else None
                    good = value if bad is None else None
                    rows.append(Row(start, start + 1, good, bad, self._crc, self._prefix))
        except FileFault:
            if not rows:
                raise
            return rows  # the next call raises the fault again
        if not rows and settled and self.has_tail:
            at = self._position
            rows.append(Row(at, at, None, "the last block is cut: it looks half written", 0))
        return rows

    def _lost(self, index: int, fault: str) -> Row:
        """Return one bad row for the rest of a block that cannot be read."""
        start, end = self._position, self._block.first + self._block.rows
        self._position = end
        reason = f"rows {start} to {end} cannot be read: {fault}"
        return Row(start, end, None, reason, self._crc, self._prefix, self._block.rows - index)

    def read_batch(self, limit: int) -> RowBatch | None:
        return None

    @property
    def has_tail(self) -> bool:
        return self._file.seek(0, io.SEEK_END) > self._after

    @property
    def schema(self) -> Schema | None:
        return self._schema

    def close(self) -> None:
        self._file.close()

    # -- the file --

    def _read_header(self) -> None:
        file = self._file
        begin = file.read(len(_MAGIC))
        if begin != _MAGIC[: len(begin)]:
            raise FileFault("it does not begin as an Avro file does (Obj, version 1)")
        try:
            if len(begin) < len(_MAGIC):
                raise _CutError
            meta = self._meta()
            self._sync = self._exactly(_SYNC_BYTES)
        except _CutError:
            raise NotReady("its header is not complete") from None
        self._crc = zlib.crc32(self._sync)
        codec = meta.get("avro.codec", b"null").decode("ascii", "replace")
        if codec not in _CODECS:
            known = ", ".join(_CODECS)
            raise FileFault(f"its codec {codec!r} is not read, expected one of {known}")
        self._decompress = _CODECS[codec]
        self._schema, self._next_value = _reader(meta.get("avro.schema"))

    def _meta(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        while count := self._long():
            if count < 0:
                self._long()  # bytes of this part of the map
            for _ in range(abs(count)):
                key = self._exactly(self._long())
                found[key.decode("utf-8", "replace")] = self._exactly(self._long())
        return found

    def _long(self) -> int:
        """Read a number in Avro's variable-length zig-zag encoding."""
        found = shift = 0
        while True:
            (byte,) = self._exactly(1)
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7
            if shift > 63:
                raise FileFault(f"no number stands at byte {self._file.tell()}")

    def _exactly(self, size: int) -> bytes:
        if not 0 <= size <= _BLOCK_BYTES_MAX:
            raise FileFault(f"a piece of {size} bytes stands at byte {self._file.tell()}")
        found = self._file.read(size)
        if len(found) < size:
            raise _CutError
        return found

    def _next_block(self) -> bool:
        """Go to the next block. Returns False if it is missing or not complete.

        Raises:
            FileFault: there is no well-formed block.
        """
        self._file.seek(self._after)
        try:
            count, size = self._long(), self._long()
            start = self._file.tell()
            if count < 0 or not 0 <= size <= _BLOCK_BYTES_MAX:
                raise FileFault(f"no block stands at byte {self._after}")
            self._file.seek(start + size)
            if self._exactly(_SYNC_BYTES) != self._sync:
                raise FileFault(f"the block at byte {self._after} has no end where it should")
        except _CutError:
            return False
        first = self._block.first + self._block.rows
        self._block, self._values = _Block(first, count, start, size), []
        self._pass(self._block.end)
        return True

    def _pass(self, end: int) -> None:
        self._file.seek(self._after)
        self._prefix = zlib.crc32(self._file.read(end - self._after), self._prefix)
        self._after = end

    def _load(self) -> str | None:
        """Read the values of the block. Returns why they cannot be read, or None."""
        block = self._block
        self._file.seek(block.start)
        try:
            data = self._decompress(self._file.read(block.size))
        except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError) as error:
            return f"its data do not decompress: {error}"
        stream, values = io.BytesIO(data), []
        for _ in range(block.rows):
            try:
                values.append(self._next_value(stream, "its bytes"))
            except DataError as error:
                if not isinstance(error.__cause__, DataError | None):
                    return str(error)  # where the next row begins is not known
                values.append(error)
        if stream.tell() != len(data):
            return f"{len(data) - stream.tell()} bytes are left behind its last row"
        self._values = values
        return None


def _reader(text: bytes | None) -> tuple[Schema, Callable[[BinaryIO, str], Any]]:
    try:
        from headgate_registry.avro_stream import stream_reader
        from headgate_registry.avro_tree import tree_of_text
    except ModuleNotFoundError as error:
        raise MissingExtraError("registry") from error
    if text is None:
        raise FileFault("its header has no schema")
    try:
        return stream_reader(tree_of_text(text.decode("utf-8", "replace")))
    except DataError as error:
        raise FileFault(f"its schema cannot be read: {error}") from error


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise MissingExtraError("connectors") from error
    return pyarrow


def _snappy(data: bytes) -> bytes:
    size = shift = 0
    for byte in data:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if size > _BLOCK_BYTES_MAX:
        raise ValueError(f"it would have {size} bytes")
    codec = _pyarrow().Codec("snappy")
    found = bytes(codec.decompress(data[:-_CRC_BYTES], size))
    if zlib.crc32(found) != int.from_bytes(data[-_CRC_BYTES:]):
        raise ValueError("its checksum is another one")
    return found


def _zstandard(data: bytes) -> bytes:
    pyarrow = _pyarrow()
    return bytes(pyarrow.input_stream(pyarrow.py_buffer(data), compression="zstd").read())


_CODECS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": lambda data: zlib.decompress(data, -zlib.MAX_WBITS),
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
}
