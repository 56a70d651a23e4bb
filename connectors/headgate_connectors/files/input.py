"""Opens one file, plain or compressed, at a source offset, if it still is the file that was read.

A source offset holds these members. Positions in a compressed file count decompressed bytes.
- ``position``: where the next record begins.
- ``start`` and ``crc``: where the last record began, and the CRC-32 of its bytes.
- ``prefix``: the CRC-32 of all bytes before the position.
- ``stat``: what the file system says of the file (see `stat_text`).
- ``heads``: CRC-32s of the file's first bytes, by length.
"""

import bz2
import io
import zlib
from collections import deque
from collections.abc import Mapping
from typing import Any, BinaryIO, Protocol, TypeAlias

from headgate_connectors.files.file_tree import FilePath, Stat, open_with_stat
from headgate_connectors.files.reader import FileFault, NotReady, ReplacedError, ShrunkError

COMPRESSIONS: Mapping[str, str] = {
    ".gz": "gzip",
    ".bz2": "bzip2",
    ".zst": "zstd",
}
"""Name of the compression by file name extension."""
PREFIX_BYTES_MAX = 8 << 20
"""Positions up to this one are checked by comparing all bytes before them, each time a changed file
is opened again. Beyond it, all bytes are compared only if the inode is another one or the file did
not grow. Otherwise the first bytes and those of the last record are compared."""
CHUNK_BYTES = 1 << 18
COMPRESSED_BYTES = 1 << 14
"""Bytes of a compressed file that are read at a time. It is small, since a few compressed bytes may
become many."""
REMEMBERED_BYTES = 8 << 20
"""Decompressed bytes that are kept for a step back. More than a block, so such a step does not
decompress the file again."""
HEAD_LENGTHS = (2, 8, 32, 128, 512, 2048)

Marks: TypeAlias = Mapping[str, str]
"""Members of a source offset that identify the file: ``stat`` and ``heads``."""


class Input:
    """An open file at the position where reading continues."""

    def __init__(
        self, file: "io.BufferedReader[Any]", position: int, prefix: int | None, marks: Marks
    ) -> None:
        self.file = file
        self.position = position
        self.prefix = prefix
        """CRC-32 of all bytes before the position. None: a user altered the offset and left it
        out."""
        self.marks = marks

    def refuse_cut(self) -> None:
        """Check, at the end of the file, that it is not a compressed stream without its end.

        Raises:
            NotReady: it is.
        """
        if self.is_cut:
            raise NotReady("its compressed data end in the middle")

    @property
    def is_cut(self) -> bool:
        """Whether the file, which was read to its end, is a compressed stream without its end. Then
        its last line is not a row, however long the file was not changed."""
        return _is_cut(self.file)


def _is_cut(file: "io.BufferedReader[Any]") -> bool:
    return isinstance(file.raw, _Decompressed) and file.raw.truncated


def open_input(path: FilePath, offset: Mapping[str, Any] | None, compression: str | None) -> Input:
    """Open a file at the position of a source offset. None as the offset: at its beginning.

    Raises:
        ReplacedError, ShrunkError: the file is not the one that the offset belongs to.
        FileFault: the offset has no position, or the compressed data are corrupt.
        NotReady: a compressed file ends before the position, and may still be written.
    """
    raw, stat = open_with_stat(path)
    try:
        marks = {"stat": stat_text(stat), "heads": _heads(raw, stat.st_size)}
        position = position_of(offset)
        raw.seek(0)
        if compression is not None:
            content = _Decompressed(raw, compression)
            file: io.BufferedReader[Any] = io.BufferedReader(content, CHUNK_BYTES)
            return Input(file, position, _read_prefix(file, position, offset), marks)
        prefix = _checked(raw, stat, position, offset or {})
        raw.seek(position)
        return Input(raw, position, prefix, marks)
    except BaseException:
        raw.close()
        raise


def position_of(offset: Mapping[str, Any] | None) -> int:
    """Return the position of a source offset. Raises FileFault unless it is a whole number of 0 or
    more."""
    if offset is None:
        return 0
    position = offset.get("position")
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        raise FileFault(f"its source offset {dict(offset)} has no position of 0 or more")
    return position


# -- marks of a file --


def changed_of(offset: Mapping[str, Any] | None) -> int:
    """Return the time of the file's last change (ctime, in nanoseconds) in a source offset, or 0 if
    it has none."""
    text = "" if offset is None else str(offset.get("stat"))
    _, _, changed = text.rpartition(":")
    return int(changed) if changed.isdecimal() else 0


def stat_text(stat: Stat) -> str:
    """Return ``inode:size:time of the last write:time of the last change``, in nanoseconds."""
    return f"{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}"


def stat_of(offset: Mapping[str, Any] | None) -> tuple[int, int, int] | None:
    """Return inode, size and time of the last write (in nanoseconds) in a source offset. None: it
    has none."""
    text = None if offset is None else offset.get("stat")
    try:
        inode, size, written, _ = (int(part) for part in str(text).split(":"))
    except ValueError:
        return None
    return inode, size, written


def _heads(file: BinaryIO, size: int) -> str:
    """Return ``length:CRC-32`` of the first bytes, for each of `HEAD_LENGTHS` up to the file's
    size."""
    first = file.read(HEAD_LENGTHS[-1])
    lengths = [length for length in HEAD_LENGTHS if length <= min(size, len(first))]
    return ",".join(f"{length}:{zlib.crc32(first[:length])}" for length in lengths)


def _begins_alike(file: BinaryIO, heads: object) -> bool | None:
    """Return whether the first bytes are those of `heads`. None: the file is too short to know."""
    file.seek(0)
    first = file.read(HEAD_LENGTHS[-1])
    alike = None
    for head in str(heads or "").split(","):
        length, _, crc = head.partition(":")
        if length.isdigit() and int(length) <= len(first):
            alike = zlib.crc32(first[: int(length)]) == int(crc)
            if not alike:
                return False
    return alike


# -- the check --


def _checked(file: BinaryIO, stat: Stat, position: int, offset: Mapping[str, Any]) -> int | None:
    """Check that the file is the one that was read. Returns the prefix at `position`."""
    if position == 0:
        return 0
    known = stat_of(offset)
    prefix = offset.get("prefix")
    prefix = prefix if isinstance(prefix, int) else None
    if stat.st_size < position:
        raise _smaller(file, stat, position, offset)
    if offset.get("stat") == stat_text(stat):
        return prefix
    if prefix is not None:
        grew = known is not None and known[0] == stat.st_ino and known[1] < stat.st_size
        if position <= PREFIX_BYTES_MAX or not grew:
            if crc_of_first(file, position) != prefix:
                raise _another(f"its first {position} bytes are not what was read before")
            return prefix
        if _begins_alike(file, offset.get("heads")) is False:
            raise _another("its first bytes are not what was read before")
    start, crc = offset.get("start"), offset.get("crc")
    if isinstance(start, int) and isinstance(crc, int) and 0 <= start <= position:
        file.seek(start)
        if zlib.crc32(file.read(position - start)) != crc:
            raise _another(f"bytes {start} to {position} are not what was read there before")
    return prefix


def _smaller(file: BinaryIO, stat: Stat, position: int, offset: Mapping[str, Any]) -> FileFault:
    size, known = stat.st_size, stat_of(offset)
    seen = f"it was read up to byte {position} and is only {size} bytes long now"
    if known is not None and known[0] != stat.st_ino:
        return _another(seen)
    if _begins_alike(file, offset.get("heads")) is False:
        return _another(f"{seen}, with another beginning")
    return ShrunkError(
        f"{seen}: truncated, or replaced by a file that begins alike. on.replace = reread reads "
        "what is there now from its beginning, skip leaves it alone; or give new data a new name"
    )


def _another(seen: str) -> ReplacedError:
    return ReplacedError(f"{seen}: replaced")


def crc_of_first(file: BinaryIO, length: int) -> int:
    """Return the CRC-32 of the first `length` bytes, or -1 if the file is shorter."""
    file.seek(0)
    crc = 0
    while length > 0 and (chunk := file.read(min(CHUNK_BYTES, length))):
        crc = zlib.crc32(chunk, crc)
        length -= len(chunk)
    return crc if not length else -1


def _read_prefix(
    file: "io.BufferedReader[Any]", position: int, offset: Mapping[str, Any] | None
) -> int:
    """Read a compressed file up to `position`. Returns the CRC-32 of the content before it."""
    crc, left = 0, position
    while left > 0 and (chunk := file.read(min(CHUNK_BYTES, left))):
        crc = zlib.crc32(chunk, crc)
        left -= len(chunk)
    prefix = None if offset is None else offset.get("prefix")
    if left:
        if _is_cut(file):
            raise NotReady(f"its compressed data end before byte {position} of their content")
        raise _another(
            f"it was read up to byte {position} of its content, which has only "
            f"{position - left} bytes now"
        )
    if isinstance(prefix, int) and prefix != crc:
        raise _another(f"the first {position} bytes of its content are not what was read before")
    return crc


# -- compressed files --


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes) -> bytes: ...


def _decompressor(compression: str) -> _Decompressor:
    if compression == "gzip":
        return zlib.decompressobj(wbits=31)
    if compression == "bzip2":
        return bz2.BZ2Decompressor()
    try:
        import zstandard
    except ImportError as error:
        raise FileFault(
            f"zstd needs the package zstandard: install the extra headgate[connectors] ({error})"
        ) from error
    return zstandard.ZstdDecompressor().decompressobj()


class _Decompressed(io.RawIOBase):
    """The decompressed content of a gzip, bzip2 or zstd file, as a file.

    The file may have several members, since one may be appended to another. A step back beyond
    `REMEMBERED_BYTES` decompresses the file again from its beginning.
    """

    def __init__(self, raw: BinaryIO, compression: str) -> None:
        self._file = raw
        self._compression = compression
        self._begin()
        self._fault: FileFault | None = None
        self.truncated = False

    def _begin(self) -> None:
        self._at = 0
        self._ready = memoryview(b"")
        """Content that was decompressed but not read yet."""
        self._past: deque[bytes] = deque()
        """Content that was read last, for a step back."""
        self._past_bytes = 0
        self._member: _Decompressor | None = None
        self._rest = b""
        """Compressed bytes that follow the end of the last member."""
        self._ended = False
        """Whether a member was read to its end."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_CUR:
            offset += self._at
        elif whence != io.SEEK_SET:
            raise io.UnsupportedOperation("the end of a compressed file's content is not known")
        if self._at - self._past_bytes <= offset < self._at:
            self._step_back(self._at - offset)
        elif offset < self._at:
            self._file.seek(0)
            self._begin()
        while self._at < offset and self.read(min(CHUNK_BYTES, offset - self._at)):
            pass
        return self._at

    def _step_back(self, size: int) -> None:
        past = b"".join(self._past)
        self._ready = memoryview(past[len(past) - size :] + bytes(self._ready))
        self._past, self._past_bytes = deque([past[: len(past) - size]]), len(past) - size
        self._at -= size

    def _remember(self, data: bytes) -> None:
        self._past.append(data)
        self._past_bytes += len(data)
        while self._past_bytes - len(self._past[0]) >= REMEMBERED_BYTES:
            self._past_bytes -= len(self._past.popleft())

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if not self._more():
                return 0
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._remember(bytes(self._ready[:size]))
        self._ready = self._ready[size:]
        self._at += size
        return size

    def close(self) -> None:
        self._file.close()
        super().close()

    def _more(self) -> bool:
        """Decompress more content. Returns False if there is no more now."""
        if self._fault is not None:
            raise self._fault
        data = self._rest or self._file.read(COMPRESSED_BYTES)
        self._rest = b""
        if self._ended and self._member is None and self._compression == "gzip":
            # Zeros after a member are padding: tape drives and tar leave them.
            while data and not (data := data.lstrip(b"\0")):
                data = self._file.read(COMPRESSED_BYTES)
        if not data:
            self.truncated = self._member is not None
            return False
        if self._member is None:
            self._member = _decompressor(self._compression)
        try:
            self._ready = memoryview(self._member.decompress(data))
        except Exception as error:  # each library has its own exceptions
            self._fault = FileFault(f"its {self._compression} data are corrupt: {error}")
            raise self._fault from error
        if self._member.eof:
            self._rest, self._member, self._ended = self._member.unused_data, None, True
        return True
