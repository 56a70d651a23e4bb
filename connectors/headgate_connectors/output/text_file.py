"""A text file that is appended to: whole lines, and a look at whether what was written is there."""

import hashlib
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 1 << 18
TAIL_BYTES = 1 << 16
"""Bytes of a file that are compared to tell it from another one."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a file, and what stood before it."""

    size: int
    """Bytes before it."""
    tail: str
    """SHA-256 of the last `TAIL_BYTES` of them, as hex digits."""


class TextOutput:
    """The file at `path`, open for appending.

    Raises:
        OSError: it cannot be created or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Without a buffer: one that is full would be written up to the middle of a line, where
        # a crash, or another task of the same file, could come in between.
        self._file = path.open("ab", buffering=0)
        status = os.fstat(self._file.fileno())
        self.is_regular = stat.S_ISREG(status.st_mode)
        """False for a pipe or a device, whose content cannot be looked at."""
        self._size = status.st_size
        """The file had at least so many bytes when it was looked at last."""

    def is_empty(self) -> bool:
        return self.is_regular and os.fstat(self._file.fileno()).st_size == 0

    def damage(self) -> str:
        """What happened to the file since the last look, as in "was removed or replaced"; empty
        text if nothing did."""
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
        """Where the file ends now."""
        size = os.fstat(self._file.fileno()).st_size
        return Position(size, self._tail(size))

    def damage_before(self, known: Position) -> str:
        """What happened to the bytes before `known`, as `damage` says it; of a regular file."""
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
        """Append `lines`, a newline after each: all of them, or none where the disk is full and
        nobody else writes to the file.

        Raises:
            OSError: they could not be written.
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
        # Of a file that was cut just before, the next look finds less than this.
        self._size = max(self._size, before) + len(data)

    def has_torn_line(self) -> bool:
        """Whether the file ends in the middle of a line."""
        return self.is_regular and self._last(1) not in (b"", b"\n")

    def begun_of(self, lines: Sequence[bytes]) -> int:
        """Bytes at the end of the file that are the beginning of `lines`, torn in mid-line; 0 if
        the end is something else. What they are must begin where a line begins."""
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
        """Return when what was appended is on disk. Nothing to do for a pipe or a device."""
        if self.is_regular:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def _last(self, count: int) -> bytes:
        with self._path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - count))
            return file.read(count)
