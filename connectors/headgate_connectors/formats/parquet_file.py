"""Rows of a Parquet file as values of the file's schema. Needs pyarrow (the extra `connectors`).

The schema is made once for a file, by `headgate_arrow.arrow_types`: nothing of a type is lost.
A row that has no form in Python (a date beyond year 9999, text that is not UTF-8) costs itself
alone. Timestamps of the old kind INT96 are read as microseconds, which hold every year.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

from headgate.connector.schema import Schema
from headgate.errors import MissingExtraError
from headgate_connectors.files.file_tree import FilePath, source
from headgate_connectors.files.input import Marks, crc_of_first, position_of, stat_text
from headgate_connectors.files.reader import FileFault, NotReady, ReplacedError, Row, RowBatch
from headgate_connectors.formats.int96 import Int96
from headgate_connectors.formats.old_calendar import old_calendar_fault

_MAGIC = b"PAR1"
BATCH_BYTES = 16 * 1024 * 1024
ROWS_AT_ONCE = 2_000
"""Rows that are made into records where one of them is bad."""


class ParquetReader:
    """Positions are rows. A file without its footer is still being written."""

    def __init__(self, path: FilePath, offset: Mapping[str, Any] | None) -> None:
        self._crc = _footer_crc(path)
        self._position = position = position_of(offset)
        self._arrow, self._parquet = _pyarrow()
        self._unreadable = (self._arrow.ArrowException, OSError, ValueError, TypeError)
        """What reading a row group raises where it is corrupt, or cannot be read exactly."""
        self._batch_columns: Any = None
        """Columns of batches; None: rows of this file are no batches."""
        self.marks, self._content = _identity(path, offset)
        try:
            self._file = self._parquet.ParquetFile(source(path), coerce_int96_timestamp_unit="us")
            self._schema_of(self._file.schema_arrow)  # a column that is there twice is refused
            self._int96 = Int96.of(self._arrow, self._parquet, self._file, path)
            self._learn_schema()
        except (self._arrow.ArrowException, OSError) as error:
            raise FileFault(f"its footer does not parse: {error}") from error
        count = self._file.metadata.num_rows
        known = offset or {}
        changed = known.get("crc", self._crc) != self._crc
        if position > count or changed or known.get("prefix", self._content) != self._content:
            self.close()
            raise ReplacedError(
                f"it was read up to row {position} and is another file now, of {count} rows: "
                "replaced"
            )
        self._groups = self._starts()
        self._batches: Any = None

    def read(self, limit: int, settled: bool) -> list[Row]:
        rows: list[Row] = []
        while len(rows) < limit and self._position < self._groups[-1]:
            group = self._group()
            start = self._position
            try:
                part = self._next_part(group, limit - len(rows))
            except self._unreadable as error:
                self._position = end = self._groups[group + 1]
                reason = f"rows {start} to {end} cannot be read: {error}"
                lost = end - start
                rows.append(Row(start, end, None, reason, self._crc, self._content, lost))
                self._batches = None
                continue
            rows += self._rows(part, start)
            self._position += part.num_rows
        return rows

    def read_batch(self, limit: int) -> RowBatch | None:
        columns = self._batch_columns
        if self._position >= self._groups[-1] or columns is None:
            return None
        try:
            part = self._next_part(self._group(), limit)
        except self._unreadable:
            self._batches = None
            return None  # `read` tells why
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

    def _learn_schema(self) -> None:
        from headgate_arrow import arrow_types, compact, rows, values

        self._types = arrow_types
        old = old_calendar_fault(self._arrow, self._file, self._int96.names)
        self._fault: Callable[[Any], str | None] = lambda part: values.fault(part) or old(part)
        self._as_batch, self._first_part = rows.with_columns, compact.first_part
        self._columns = columns = self._columns_read()
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

    def _columns_read(self) -> Any:
        """Names and types of the columns as they are read. The first row group decides whether
        INT96 timestamps are of nanoseconds; a later one that does not fit costs itself."""
        columns = self._file.schema_arrow
        if not self._int96 or self._file.num_row_groups == 0:
            return columns
        try:
            return self._int96.exact(self._file.read_row_group(0), 0).schema
        except self._unreadable:
            return columns  # it costs itself when it is read

    def _rows(self, part: Any, start: int) -> list[Row]:
        if self._fault(part) is not None:
            return [self._row(part.slice(index, 1), start + index) for index in range(len(part))]
        crc, content = self._crc, self._content
        values = self._types.rows_of(part, self._carriers)
        return [
            Row(row, row + 1, value, None, crc, content) for row, value in enumerate(values, start)
        ]

    def _row(self, part: Any, row: int) -> Row:
        """One row, or why it is none: its first column that has no form in Python."""
        reason = self._fault(part)
        value = self._types.rows_of(part, self._carriers)[0] if reason is None else None
        return Row(row, row + 1, value, reason, self._crc, self._content)

    @property
    def has_tail(self) -> bool:
        return False

    def close(self) -> None:
        self._file.close()
        self._int96.close()

    def _starts(self) -> list[int]:
        """First row of each row group, and the count of all rows."""
        starts = [0]
        for group in range(self._file.num_row_groups):
            starts.append(starts[-1] + self._file.metadata.row_group(group).num_rows)
        return starts

    def _group(self) -> int:
        return next(n for n in range(len(self._groups) - 1) if self._position < self._groups[n + 1])

    def _next_part(self, group: int, limit: int) -> Any:
        """Up to `limit` rows of this row group from the position on."""
        if self._batches is None or self._batches[0] != group:
            table = self._file.read_row_group(group)
            if self._int96:
                # Refused where it would lose something: Arrow's casts are safe.
                table = self._int96.exact(table, group).cast(self._columns)
            self._batches = (group, table)
        skip = self._position - self._groups[group]
        return self._batches[1].slice(skip, limit)


def _pyarrow() -> tuple[Any, Any]:
    """Raises MissingExtraError, and not FileFault: it is no fault of the file, so a tolerance of
    errors must not pass over its rows."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingExtraError("connectors") from error
    return pyarrow, pyarrow.parquet


def _footer_crc(path: FilePath) -> int:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size >= 4:
            file.seek(0)
            if file.read(4) != _MAGIC:
                raise FileFault("it does not begin as a Parquet file does (PAR1)")
        file.seek(max(0, size - 64))
        tail = file.read()
    if size < 12 or not tail.endswith(_MAGIC):
        raise NotReady("it has no Parquet footer")
    return zlib.crc32(tail, size)


def _identity(path: FilePath, offset: Mapping[str, Any] | None) -> tuple[Marks, int | None]:
    """Marks of the file and the CRC-32 of all its bytes, which is read again where the file may
    have changed: footers of equal length with equal ends are common."""
    stat = path.stat()
    marks = {"stat": stat_text(stat)}
    known = None if offset is None else offset.get("prefix")
    if offset is not None and offset.get("stat") == marks["stat"] and isinstance(known, int):
        return marks, known
    with path.open("rb") as file:
        return marks, crc_of_first(file, stat.st_size)
