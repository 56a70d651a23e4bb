"""The file in which a standalone worker keeps its source offsets, in Java's format: a serialised
`java.util.HashMap` of byte arrays (Java Object Serialization Specification, version 5).

Only that format is read. A file of another kind is refused, not overwritten. Source:
FileOffsetBackingStore.
"""

import contextlib
import os
import stat
import struct
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_MAGIC: Final = b"\xac\xed\x00\x05"
_OBJECT: Final = b"s"
_CLASS: Final = b"r"
_REFERENCE: Final = b"q"
_NULL: Final = b"p"
_ARRAY: Final = b"u"
_BLOCK: Final = b"w"
_END: Final = b"x"
_FIRST_HANDLE: Final = 0x7E0000
_MAP_CLASS: Final = (
    b"\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16\x60\xd1\x03\x00\x02"
    b"F\x00\x0aloadFactorI\x00\x09threshold" + _END + _NULL
)
_BYTES_CLASS: Final = b"\x00\x02[B\xac\xf3\x17\xf8\x06\x08\x54\xe0\x02\x00\x00" + _END + _NULL
_LOAD_FACTOR: Final = 0.75
_BUCKETS_MIN: Final = 16

Offsets = dict[bytes, bytes | None]


class OffsetFileError(Exception):
    """The file cannot be read or written, or is not what a standalone worker writes. The message
    says where it differs."""


# -- the format --


def dumps(offsets: Mapping[bytes, bytes | None]) -> bytes:
    """Return what Java's `ObjectOutputStream.writeObject(HashMap<byte[], byte[]>)` writes, in the
    order of `offsets`."""
    buckets = _BUCKETS_MIN
    while len(offsets) > buckets * _LOAD_FACTOR:
        buckets *= 2
    threshold = int(buckets * _LOAD_FACTOR) if offsets else 0
    parts = [
        *(_MAGIC, _OBJECT, _CLASS, _MAP_CLASS, struct.pack(">fi", _LOAD_FACTOR, threshold)),
        *(_BLOCK, struct.pack(">bii", 8, buckets, len(offsets))),
    ]
    described = False
    for data in (each for item in offsets.items() for each in item):
        if data is None:
            parts.append(_NULL)
            continue
        # The class of byte arrays is the third thing in the stream that has a handle.
        shape = _REFERENCE + struct.pack(">i", _FIRST_HANDLE + 2)
        parts += [_ARRAY, shape if described else _CLASS + _BYTES_CLASS]
        parts += [struct.pack(">i", len(data)), data]
        described = True
    return b"".join((*parts, _END))


def loads(data: bytes) -> Offsets:
    """Return the offsets in a file's content.

    Raises:
        OffsetFileError: the content has another format.
    """
    return _Reader(data).map()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._handles: list[bytes | None] = [None, None]
        """Objects with a handle: class and object of the map, then the class of arrays, and each
        array."""

    def map(self) -> Offsets:
        self._expect(_MAGIC + _OBJECT + _CLASS + _MAP_CLASS, "a serialised java.util.HashMap")
        self._take(8)
        self._expect(_BLOCK + b"\x08", "the size of the map")
        _buckets, size = struct.unpack(">ii", self._take(8))
        if size < 0:
            raise self._error("a size that is not negative")
        found: Offsets = {}
        for _ in range(size):
            key = self._array()
            value = self._array()
            if key is not None:
                found[key] = value
        self._expect(_END, "the end of the map")
        return found

    def _array(self) -> bytes | None:
        kind = self._take(1)
        if kind == _NULL:
            return None
        if kind == _REFERENCE:
            return self._handle("an array")
        if kind != _ARRAY:
            self._at -= 1
            raise self._error("a byte array")
        shape = self._take(1)
        if shape == _CLASS:
            self._expect(_BYTES_CLASS, "the class of byte arrays")
            self._handles.append(None)
        elif shape == _REFERENCE:
            self._handle("the class of byte arrays")
        else:
            raise self._error("the class of byte arrays")
        (length,) = struct.unpack(">i", self._take(4))
        if length < 0:
            raise self._error("a length that is not negative")
        data = self._take(length)
        self._handles.append(data)
        return data

    def _handle(self, what: str) -> bytes | None:
        (handle,) = struct.unpack(">i", self._take(4))
        number = handle - _FIRST_HANDLE
        if not 0 <= number < len(self._handles):
            raise self._error(f"a reference to {what}")
        found: bytes | None = self._handles[number]
        return found

    def _expect(self, wanted: bytes, what: str) -> None:
        if self._data[self._at : self._at + len(wanted)] != wanted:
            raise self._error(what)
        self._at += len(wanted)

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            raise self._error(f"{count} bytes more")
        self._at += count
        return taken

    def _error(self, expected: str) -> OffsetFileError:
        return OffsetFileError(f"expected {expected} at byte {self._at} of {len(self._data)}")


# -- the file --


class OffsetFile:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def load(self) -> Offsets:
        """Return the offsets in the file. They are empty if there is no file yet, or if it is
        empty.

        Raises:
            OffsetFileError: it cannot be read.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise OffsetFileError(f"{self.path} cannot be read: {reason(error)}") from None
        try:
            return loads(data) if data else {}
        except OffsetFileError as error:
            raise OffsetFileError(f"{self.path} is not a file of source offsets: {error}") from None

    def check_writable(self) -> None:
        """Check that the file can be written.

        Raises:
            OffsetFileError: nothing can be written at its place.
        """
        try:
            name = self._beside()
            name.open("xb").close()
            name.unlink()
        except OSError as error:
            raise OffsetFileError(f"{self.path} cannot be written: {reason(error)}") from None

    def save(self, offsets: Mapping[bytes, bytes | None]) -> None:
        """Write the file, whole or not at all: a worker that is killed leaves the old one. (Java
        overwrites it.) A new file gets its mode from the umask, as Java's does. An old one keeps
        its mode.

        Raises:
            OSError: it cannot be written.
        """
        name = self._beside()
        try:
            with name.open("xb") as file:
                self._like_the_old(file.fileno())
                file.write(dumps(offsets))
                file.flush()
                os.fsync(file.fileno())
            name.replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                name.unlink()
            raise

    def _beside(self) -> Path:
        """Return the path of a temporary file in the same folder. A file can be replaced in one
        step only within a folder."""
        return self.path.absolute().parent / f".{self.path.name}.{uuid.uuid4().hex}"

    def _like_the_old(self, descriptor: int) -> None:
        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
        except FileNotFoundError:
            return
        # Only if the modes differ: file systems without modes refuse the change.
        if mode != stat.S_IMODE(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, mode)


def reason(error: OSError) -> str:
    """Return the error's reason, without the name of the temporary file."""
    return error.strerror or str(error)
