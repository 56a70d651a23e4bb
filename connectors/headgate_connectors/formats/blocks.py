"""A block of lines of a file: where each row begins and ends, and its checksums.

Checksums are computed only when a source offset is requested. For a batch that is mostly the last
one.
"""

import zlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import overload

BATCH_ROWS_MIN = 100
"""Minimum rows of a batch. Fewer rows are read one by one."""
BLOCK_BYTES = 4 << 20
"""Maximum bytes that are read for one batch."""


class Block:
    """Consecutive complete lines of a file. Each line is a row, once blank ones are dropped."""

    def __init__(self, data: bytes, start: int, prefix: int | None) -> None:
        """
        Args:
            data: lines that end with LF or CRLF, without any other CR.
            start: position of the block in the file.
            prefix: CRC-32 of all bytes before the block. None: it is not known.
        """
        # Not imported above, since the modules that read a file line by line need no pyarrow.
        from headgate_connectors.formats.line_bounds import LineBounds

        self.data, self.start, self._prefix = data, start, prefix
        self._bounds = LineBounds(data)
        self.longest = self._bounds.longest

    def __len__(self) -> int:
        return len(self._bounds)

    @cached_property
    def starts(self) -> Sequence[int]:
        """Positions in the file at which the rows begin."""
        return self._bounds.starts(self.start)

    @cached_property
    def ends(self) -> Sequence[int]:
        """Positions in the file after the rows."""
        return self._bounds.ends(self.start)

    def without_blank_lines(self) -> None:
        """Drop blank lines. Those at the end are left to the next block."""
        if self._bounds.shortest <= 2 and len(self):
            self._bounds.drop_blank_lines()
            self.limit(len(self))

    def limit(self, rows: int) -> None:
        """Keep the first `rows` rows. It must not be called after `starts` or `ends` was used."""
        self._bounds.limit(rows)
        self.data = self.data[: self._bounds.end]

    @property
    def are_objects(self) -> bool:
        """Whether each row begins with ``{`` and ends with ``}``."""
        return self._bounds.are_within(*b"{}")

    @property
    def lines(self) -> int:
        """Number of lines, including blank ones."""
        return self.data.count(b"\n")

    def numbers(self) -> Mapping[str, Sequence[int]]:
        """Return the members of the source offset after each row that differ between rows."""
        every = range(len(self))
        numbers: dict[str, Sequence[int]] = {
            "position": self.ends,
            "start": self.starts,
            "crc": _Checksums(self, every),
        }
        return numbers if self._prefix is None else {**numbers, "prefix": _Prefixes(self, every)}

    def prefix_after(self, end: int) -> int | None:
        """Return the CRC-32 of all bytes before the position `end`. None: it is not known."""
        if self._prefix is None:
            return None
        return zlib.crc32(memoryview(self.data)[: end - self.start], self._prefix)

    def crc(self, row: int) -> int:
        return zlib.crc32(self._piece(self.starts[row], self.ends[row]))

    def prefix(self, row: int) -> int:
        found = self._last_prefix if row == len(self) - 1 else self._prefixes[row]
        assert found is not None
        return found

    def _piece(self, start: int, end: int) -> bytes:
        return self.data[start - self.start : end - self.start]

    @cached_property
    def _last_prefix(self) -> int | None:
        return self.prefix_after(self.ends[-1])

    @cached_property
    def _prefixes(self) -> Sequence[int]:
        assert self._prefix is not None
        view, crc, found = memoryview(self.data), self._prefix, list[int]()
        for start, end in pairwise([self.start, *self.ends]):
            crc = zlib.crc32(view[start - self.start : end - self.start], crc)
            found.append(crc)
        return found


class _OfRows(Sequence[int]):
    def __init__(self, block: Block, rows: range) -> None:
        self._block, self._rows = block, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[int]: ...
    def __getitem__(self, at: int | slice) -> int | Sequence[int]:
        if isinstance(at, slice):
            return type(self)(self._block, self._rows[at])
        return self._number(self._rows[at])

    @abstractmethod
    def _number(self, row: int) -> int: ...


class _Checksums(_OfRows):
    """CRC-32 of each row."""

    def _number(self, row: int) -> int:
        return self._block.crc(row)


class _Prefixes(_OfRows):
    """CRC-32 of all bytes before the end of each row."""

    def _number(self, row: int) -> int:
        return self._block.prefix(row)
