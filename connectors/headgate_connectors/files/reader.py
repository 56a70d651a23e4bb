"""What every reader of a file gives, whatever the format: rows, and why there are none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from headgate.connector.schema import Schema

BOM: Final = b"\xef\xbb\xbf"
ROW_BYTES: Final = 64 << 20
"""Most bytes of a CSV row by default: what the embedded log takes as one record."""


class Row(NamedTuple):
    """One record of a file, or a piece of it that is none (`reason` says why).

    `start == end`: a bad piece at the end of the file that is not passed over, since the rest of it
    may follow. `crc` and `prefix` tell later whether the file is still the one that was read.
    """

    start: int
    end: int
    value: Any
    """Text, or a value of the reader's schema; None where there is a reason."""
    reason: str | None
    crc: int
    prefix: int | None = None
    """CRC-32 of all bytes before `end`; None where it is not known."""
    lost: int = 1
    """How many records are lost where the piece is none."""

    @property
    def members(self) -> Mapping[str, Any]:
        """Members of the source offset after it."""
        found = {"position": self.end, "start": self.start, "crc": self.crc}
        return found if self.prefix is None else {**found, "prefix": self.prefix}


class RowBatch(NamedTuple):
    """Rows of a file that follow each other, all good, as one RecordBatch of Arrow."""

    values: Any
    numbers: Mapping[str, Sequence[int]]
    """Members of the source offset after each row that differ from row to row: ``position``,
    ``start`` and others."""
    shared: Mapping[str, Any]
    """Members that are the same for all of them."""

    @property
    def last(self) -> Mapping[str, Any]:
        """Members of the source offset after the last row."""
        return {**{name: one[-1] for name, one in self.numbers.items()}, **self.shared}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How the files of a directory are to be read."""

    check_json: bool = True
    encoding: str = "utf-8"
    delimiter: str = ","
    quote: str | None = '"'
    header: bool = True
    null: str | None = None
    """Text of a CSV field that is null; None: no field is."""
    escape: str | None = None
    comment: str | None = None
    columns: tuple[str, ...] = ()
    """Names of the columns of CSV files without a header row; none: c1, c2 and so on."""
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    """Types of columns of CSV files by name. None: rows are JSON objects of text."""
    infers: bool = False
    """Whether those types are to be inferred first."""
    inferred: bool = False
    """Whether those types were inferred, so that a text must be what its value is written as."""
    json_types: Mapping[str, str] = field(default_factory=dict[str, str])
    """Types of members of JSON objects by name. None: values are the texts that stand there."""
    zone: ZoneInfo | None = None
    """Zone of times in CSV files that have none."""
    column_types: Mapping[str, str] = field(default_factory=dict[str, str])
    """Types of columns of Parquet, Arrow, ORC and Avro files by name. None: each file has its
    own."""
    widens: bool = False
    """Whether values of a narrower type than the declared one are taken, and null where a declared
    column is not there."""
    row_bytes: int = ROW_BYTES
    """Most bytes of a CSV row."""


class FileFault(Exception):
    """The file as a whole cannot be read on from here. The message is a reason for users."""


class ReplacedError(FileFault):
    """Another file stands under the name than the one that was read."""


class ShrunkError(FileFault):
    """The file is shorter than what was read of it, and nothing shows that it is another one."""


class NotReady(Exception):
    """The file is still being written. The message says what is awaited."""


class Reader(Protocol):
    """Raises `FileFault`, `NotReady` and OSError from all of its methods."""

    @property
    def marks(self) -> Mapping[str, str]:
        """What a source offset says of the file beside the position."""
        ...

    def read(self, limit: int, settled: bool) -> list[Row]:
        """At most `limit` rows; none when there is nothing complete.

        Args:
            settled: the file has been still for a while, and the worker ends once everything is
                read: an end without a newline is its end.
        """
        ...

    def read_batch(self, limit: int) -> RowBatch | None:
        """The next rows as one batch, at most `limit` of them; None: they cannot be had so, or
        there are none. Then `read` gives them."""
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


def not_text(encoding: str, error: UnicodeDecodeError) -> str:
    """Why bytes are no text, for users."""
    name = "UTF-8" if encoding == "utf-8" else encoding
    return f"not {name}: {error}; if the file has another encoding, set encoding"
