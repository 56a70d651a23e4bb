"""The common base of readers for files with groups of rows and a footer at their end.

The schema is made once for a file, by `headgate_arrow.arrow_types`, and loses nothing of a type. A
row that has no form in Python (a date beyond year 9999, text that is not UTF-8) is bad by itself.
Needs pyarrow (the extra `connectors`).
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from headgate.connector.schema import Schema
from headgate.errors import MissingExtraError
from headgate_connectors.files.file_tree import FilePath
from headgate_connectors.files.input import Marks, crc_of_first, position_of, stat_text
from headgate_connectors.files.reader import FileFault, NotReady, ReplacedError, Row, RowBatch

BATCH_BYTES = 16 * 1024 * 1024
ROWS_AT_ONCE = 2_000
"""Maximum rows that are made into records one by one if one of them is bad."""


class GroupedReader(ABC):
    """Reads a file with groups of rows. Positions count rows. A file without its footer counts as
    still being written."""

    KIND: ClassVar[str]
    """Name of the format in messages."""
    ARTICLE: ClassVar[str] = "an"
    BEGIN: ClassVar[bytes]
    """Bytes with which such a file begins."""
    END: ClassVar[bytes]
    """Bytes with which the footer ends, not counting `END_SKIP` bytes after it."""
    END_SKIP: ClassVar[int] = 0

    _file: Any

    def __init__(self, path: FilePath, offset: Mapping[str, Any] | None) -> None:
        self._crc = self._footer_crc(path)
        self._position = position = position_of(offset)
        self._arrow = pyarrow()
        self._unreadable = (self._arrow.ArrowException, OSError, ValueError, TypeError)
        """Errors raised by reading a group that is corrupt or cannot be read exactly."""
        self._batch_columns: Any = None
        """Columns of batches. None: this file is not read in batches."""
        self.marks, self._content = _identity(path, offset)
        try:
            self._count = count = self._open(path)
        except (self._arrow.ArrowException, OSError) as error:
            raise FileFault(f"its footer does not parse: {error}") from error
        known = offset or {}
        changed = known.get("crc", self._crc) != self._crc
        if position > count or changed or known.get("prefix", self._content) != self._content:
            self.close()
            raise ReplacedError(
                f"it was read up to row {position} and is another file now, of {count} rows: "
                "replaced"
            )

    @abstractmethod
    def _open(self, path: FilePath) -> int:
        """Open the file and read its schema. Returns the number of rows.

        Raises:
            FileFault: a column has a type that cannot be read.
        """

    @abstractmethod
    def _next_part(self, limit: int) -> Any:
        """Return, as an Arrow table, up to `limit` rows of one group from the position on. Raises
        the errors in `_unreadable`."""

    @abstractmethod
    def _end_of_group(self) -> int | None:
        """Return the position at which the present group ends. None: it is not known without
        reading the group."""

    @abstractmethod
    def _forget_group(self) -> None:
        """Drop what is kept of the present group, which could not be read."""

    def close(self) -> None:
        self._file.close()

    def read(self, limit: int, settled: bool) -> list[Row]:
        rows: list[Row] = []
        while len(rows) < limit and self._position < self._count:
            start = self._position
            try:
                part = self._next_part(limit - len(rows))
            except self._unreadable as error:
                end = self._end_of_group()
                if end is not None:
                    reason = f"rows {start} to {end} cannot be read: {error}"
                    lost = end - start
                    rows.append(Row(start, end, None, reason, self._crc, self._content, lost))
                    self._position = end
                    self._forget_group()
                    continue
                if rows:
                    break  # the next call raises the error again
                raise FileFault(f"rows from {start} on cannot be read: {error}") from error
            rows += self._rows(part, start)
            self._position += part.num_rows
        return rows

    def read_batch(self, limit: int) -> RowBatch | None:
        columns = self._batch_columns
        if self._position >= self._count or columns is None:
            return None
        try:
            part = self._next_part(limit)
        except self._unreadable:
            self._forget_group()
            return None  # `read` reports why
        while self._fault(part) is not None:
            if part.num_rows <= ROWS_AT_ONCE:
                return None
            part = part.slice(0, max(part.num_rows // 2, ROWS_AT_ONCE))
        try:
            values = self._as_batch(part, columns)
        except self._arrow.ArrowException:
            self._batch_columns = None
            return None
        values = self._first_part(values, BATCH_BYTES)
        start, end = self._position, self._position + values.num_rows
        self._position = end
        shared = {"crc": self._crc}
        if self._content is not None:
            shared["prefix"] = self._content
        numbers = {"position": range(start + 1, end + 1), "start": range(start, end)}
        return RowBatch(values, numbers, shared)

    @property
    def schema(self) -> Schema | None:
        return self._schema

    @property
    def has_tail(self) -> bool:
        return False

    def _learn_schema(self, columns: Any, fault: Callable[[Any], str | None] | None = None) -> None:
        """Prepare the conversion of rows with these columns.

        Args:
            columns: pyarrow.Schema with which rows are read.
            fault: returns what else is wrong with the rows of a table, or None.
        """
        from headgate_arrow import arrow_types, compact, rows, values

        self._types = arrow_types
        self._fault: Callable[[Any], str | None] = values.fault
        if fault is not None:
            self._fault = lambda part: values.fault(part) or fault(part)
        self._as_batch, self._first_part = rows.with_columns, compact.first_part
        self._schema = self._schema_of(columns)
        self._carriers = arrow_types.carriers(columns)
        self._batch_columns = arrow_types.arrow_schema(self._schema)

    def _schema_of(self, columns: Any) -> Schema:
        from headgate_arrow import arrow_types

        try:
            return arrow_types.struct_schema(columns)
        except arrow_types.NoFormError as error:
            self._file.close()
            raise FileFault(f"{error}: leave the column out, or write it as another type") from None

    def _rows(self, part: Any, start: int) -> list[Row]:
        if self._fault(part) is not None:
            return [self._row(part.slice(index, 1), start + index) for index in range(len(part))]
        crc, content = self._crc, self._content
        values = self._types.rows_of(part, self._carriers)
        return [
            Row(row, row + 1, value, None, crc, content) for row, value in enumerate(values, start)
        ]

    def _row(self, part: Any, row: int) -> Row:
        """Return one row. If a column has no form in Python, the row has that as its reason."""
        reason = self._fault(part)
        value = self._types.rows_of(part, self._carriers)[0] if reason is None else None
        return Row(row, row + 1, value, reason, self._crc, self._content)

    def _footer_crc(self, path: FilePath) -> int:
        begin = self.BEGIN
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size >= len(begin):
                file.seek(0)
                if file.read(len(begin)) != begin:
                    raise FileFault(
                        f"it does not begin as {self.ARTICLE} {self.KIND} file does "
                        f"({begin.decode()})"
                    )
            file.seek(max(0, size - 64))
            tail = file.read()
        end = tail[: len(tail) - self.END_SKIP]
        if size < 12 or not end.endswith(self.END):
            raise NotReady(f"it has no {self.KIND} footer")
        return zlib.crc32(tail, size)


def pyarrow() -> Any:
    """Return the module pyarrow. Raises MissingExtraError if it is not installed. That is not a
    FileFault, so that ``errors.tolerance`` does not skip the file's rows."""
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise MissingExtraError("connectors") from error
    return pyarrow


def _identity(path: FilePath, offset: Mapping[str, Any] | None) -> tuple[Marks, int | None]:
    """Return the marks of the file and the CRC-32 of all of its bytes.

    The CRC-32 is computed again if the file may have changed. A comparison of footers would not do,
    since footers of equal length with equal ends are common.
    """
    stat = path.stat()
    marks = {"stat": stat_text(stat)}
    known = None if offset is None else offset.get("prefix")
    if offset is not None and offset.get("stat") == marks["stat"] and isinstance(known, int):
        return marks, known
    with path.open("rb") as file:
        return marks, crc_of_first(file, stat.st_size)
