"""A text file that a sink appends whole lines to, and the checks that nothing written was lost."""

import hashlib
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 1 << 18
TAIL_BYTES = 1 << 16
"""Bytes before a position whose checksum tells the file from another one."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a file, with a checksum of the bytes before it."""

    size: int
    """Number of bytes before the place."""
    tail: str
    """SHA-256 of the last `TAIL_BYTES` before the place, as hex digits."""


class TextOutput:
    """The file at `path`, open for appending.

    Raises:
        OSError: the file cannot be created or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Without a buffer. A full buffer is written up to the middle of a line, and a crash or
        # another task of the same file could come between the two parts of that line.
        self._file = path.open("ab", buffering=0)
        status = os.fstat(self._file.fileno())
        self.is_regular = stat.S_ISREG(status.st_mode)
        """False for a pipe or a device, whose content cannot be looked at."""
        self._size = status.st_size
        """Bytes that the file had, at least, when it was looked at last."""

    def is_empty(self) -> bool:
        return self.is_regular and os.fstat(self._file.fileno()).st_size == 0

    def damage(self) -> str:
        """Return what happened to the file since the last look, such as "was removed or replaced".
        Empty text: nothing did."""
        if not self.is_regular:
            return ""
        mine = os.fstat(self._file.fileno())
        try:
            there = self._path.stat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            return "was removed or replaced"
        if mine.st_size < self._size:
            return f"was cut from {self._size:,} to {mine.st_size:,} bytes"
        self._size = mine.st_size
        return ""

    def position(self) -> Position:
        """Return the position at which the file ends now."""
        size = os.fstat(self._file.fileno()).st_size
        return Position(size, self._tail(size))

    def damage_before(self, known: Position) -> str:
        """Return what happened to the bytes before `known`, in the form of `damage`. The file must
        be a regular one."""
        size = os.fstat(self._file.fileno()).st_size
        if size < known.size:
            return f"was cut or replaced: it has {size:,} bytes, expected {known.size:,} or more"
        if self._tail(known.size) != known.tail:
            return f"was replaced or edited: its bytes up to {known.size:,} are not those written"
        return ""

    def _tail(self, size: int) -> str:
        with self._path.open("rb") as file:
            file.seek(max(0, size - TAIL_BYTES))
            return hashlib.sha256(file.read(min(size, TAIL_BYTES))).hexdigest()

    def append(self, lines: Sequence[bytes]) -> None:
        """Append `lines`, with a newline after each.

        If that fails (the disk is full, say), a part that was written is cut off again, unless
        another process has written to the file meanwhile.

        Raises:
            OSError: the lines could not be written.
        """
        rest = data = b"\n".join([*lines, b""])
        number = self._file.fileno()
        before = os.fstat(number).st_size
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            written = len(data) - len(rest)
            with suppress(OSError):
                if self.is_regular and os.fstat(number).st_size == before + written:
                    os.ftruncate(number, before)
            raise OSError(error.errno, error.strerror, str(self._path)) from error
        # If the file was cut just before, `damage` finds it shorter than this.
        self._size = max(self._size, before) + len(data)

    def has_torn_line(self) -> bool:
        """Return whether the file ends in the middle of a line."""
        return self.is_regular and self._last(1) not in (b"", b"\n")

    def begun_of(self, lines: Sequence[bytes]) -> int:
        """Return how many bytes at the end of the file equal the beginning of `lines`, cut in the
        middle of a line. They must begin at the beginning of a line. 0: the file ends in another
        way."""
        data = b"\n".join([*lines, b""])
        end = self._last(len(data) + 1)
        torn = end[end.rfind(b"\n") + 1 :]
        start = 0
        while torn and start < len(data):
            length = start + len(torn)
            if data.startswith(torn, start) and end.endswith(data[:length]):
                before = end[: len(end) - length][-1:]
                if before in (b"", b"\n"):
                    return length
            start = data.index(b"\n", start) + 1
        return 0

    def cut_torn_line(self) -> None:
        """Cut the file after its last newline."""
        with self._path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            length = 0
            while end and not length:
                start = max(0, end - CHUNK_BYTES)
                file.seek(start)
                length = start + file.read(end - start).rfind(b"\n") + 1
                length, end = (length, start) if length > start else (0, start)
        os.ftruncate(self._file.fileno(), length)
        self._size = length

    def sync(self) -> None:
        """Return when all appended lines are on disk. For a pipe or a device it does nothing."""
        if self.is_regular:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def _last(self, count: int) -> bytes:
        with self._path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - count))
            return file.read(count)
