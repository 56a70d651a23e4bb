"""What every reader of a file gives, whatever the format: rows, and why there are none."""

from typing import Any, NamedTuple, Protocol

from headgate.connector.schema import Schema


class Row(NamedTuple):
    """One record of a file, or a piece of it that is none (`reason` says why).

    `start == end`: a bad piece at the end of the file that is not passed over, since the rest of it
    may follow. `crc` tells later whether the file is still the one that was read.
    """

    start: int
    end: int
    value: Any
    """Text, or a value of the reader's schema; None where there is a reason."""
    reason: str | None
    crc: int


class FileFault(Exception):
    """The file as a whole cannot be read on from here. The message is a reason for users."""


class NotReady(Exception):
    """The file is still being written. The message says what is awaited."""


class Reader(Protocol):
    """Raises `FileFault`, `NotReady` and OSError from all of its methods."""

    def read(self, limit: int, settled: bool) -> list[Row]:
        """At most `limit` rows; none when there is nothing complete.

        Args:
            settled: the file has been still for a while: an end without a newline is its end.
        """
        ...

    @property
    def has_tail(self) -> bool:
        """Something stands after the last row, and would be read if the file were settled."""
        ...

    @property
    def schema(self) -> Schema | None:
        """Schema of the rows' values; None: they are text."""
        ...

    def close(self) -> None: ...
