"""The interface of file readers, the same for all formats: rows, batches, options and errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from headgate.connector.schema import Schema

BOM: Final = b"\xef\xbb\xbf"
ROW_BYTES: Final = 64 << 20
"""Default maximum bytes of a CSV row, which is the largest record that the embedded log takes."""


class Row(NamedTuple):
    """One record of a file, or a piece of the file that is not a record, for `reason`.

    `start` and `end` are positions. If they are equal, the row is a bad piece at the end of the
    file, which is not skipped, since the rest of it may follow. `crc` and `prefix` tell later
    whether the file is still the one that was read.
    """

    start: int
    end: int
    value: Any
    """A text, or a value of the reader's schema. None: there is a `reason`."""
    reason: str | None
    crc: int
    prefix: int | None = None
    """CRC-32 of all bytes before `end`. None: it is not known."""
    lost: int = 1
    """Number of records that are lost if the piece is not a record."""

    @property
    def members(self) -> Mapping[str, Any]:
        """Members of the source offset after the row."""
        found = {"position": self.end, "start": self.start, "crc": self.crc}
        return found if self.prefix is None else {**found, "prefix": self.prefix}


class RowBatch(NamedTuple):
    """Consecutive good rows of a file as one Arrow RecordBatch."""

    values: Any
    numbers: Mapping[str, Sequence[int]]
    """Members of the source offset after each row that differ between rows: ``position``, ``start``
    and others."""
    shared: Mapping[str, Any]
    """Members of the source offset that are the same for all rows."""

    @property
    def last(self) -> Mapping[str, Any]:
        """Members of the source offset after the last row."""
        return {**{name: one[-1] for name, one in self.numbers.items()}, **self.shared}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Settings that say how the files of a directory are read."""

    check_json: bool = True
    encoding: str = "utf-8"
    delimiter: str = ","
    quote: str | None = '"'
    header: bool = True
    null: str | None = None
    """Text of a CSV field that means null. None: no text does."""
    escape: str | None = None
    comment: str | None = None
    columns: tuple[str, ...] = ()
    """Names of the columns of CSV files without a header row. Empty: they are c1, c2 and so on."""
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    """Types of columns of CSV files by name. Empty: rows are JSON objects of texts."""
    infers: bool = False
    """Whether `types` still have to be inferred."""
    inferred: bool = False
    """Whether `types` were inferred. Then a text is accepted only if it is how its value is
    written."""
    json_types: Mapping[str, str] = field(default_factory=dict[str, str])
    """Types of members of JSON objects by name. Empty: values are the texts in the file."""
    zone: ZoneInfo | None = None
    """Time zone of timestamps in CSV files that have none."""
    column_types: Mapping[str, str] = field(default_factory=dict[str, str])
    """Types of columns of Parquet, Arrow, ORC and Avro files by name. Empty: each file has its own
    types."""
    widens: bool = False
    """Whether values of a narrower type than the declared one are accepted, and a missing declared
    column is null."""
    row_bytes: int = ROW_BYTES
    """Maximum bytes of a CSV row."""


class FileFault(Exception):
    """The rest of the file cannot be read. The message is a reason for users."""


class ReplacedError(FileFault):
    """The file that has the name now is not the one that was read."""


class ShrunkError(FileFault):
    """The file is shorter than what was read of it, and nothing shows that it was replaced."""


class NotReady(Exception):
    """The file is still being written. The message says what is missing."""


class Reader(Protocol):
    """Reads the rows of one file. All methods may raise `FileFault`, `NotReady` and OSError."""

    @property
    def marks(self) -> Mapping[str, str]:
        """Members of a source offset that identify the file."""
        ...

    def read(self, limit: int, settled: bool) -> list[Row]:
        """Return at most `limit` rows. An empty list: there is no complete row.

        Args:
            settled: the file did not change for a while, and the worker ends once everything is
                read. So a last line without a newline is complete.
        """
        ...

    def read_batch(self, limit: int) -> RowBatch | None:
        """Return the next rows as one batch of at most `limit`. None: they cannot be read as a
        batch, or there are none. Then `read` returns them."""
        ...

    @property
    def has_tail(self) -> bool:
        """Whether the file has content after the last row that would be read if it were settled."""
        ...

    @property
    def schema(self) -> Schema | None:
        """Schema of the rows' values. None: they are texts."""
        ...

    def close(self) -> None: ...


def not_text(encoding: str, error: UnicodeDecodeError) -> str:
    """Return a reason for users why bytes are not text in `encoding`."""
    name = "UTF-8" if encoding == "utf-8" else encoding
    return f"not {name}: {error}; if the file has another encoding, set encoding"
