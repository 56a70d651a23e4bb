"""Reads the rows of a Parquet file.

Timestamps of the old type INT96 are read as microseconds, which hold every year.
"""

from typing import Any

from headgate_connectors.files.file_tree import FilePath, source
from headgate_connectors.formats.int96 import Int96
from headgate_connectors.formats.old_calendar import old_calendar_fault
from headgate_connectors.formats.row_groups import GroupedReader


class ParquetReader(GroupedReader):
    ARTICLE, KIND = "a", "Parquet"
    BEGIN = END = b"PAR1"

    def _open(self, path: FilePath) -> int:
        import pyarrow.parquet as parquet

        self._file = parquet.ParquetFile(source(path), coerce_int96_timestamp_unit="us")
        self._schema_of(self._file.schema_arrow)  # refuses two columns of the same name
        self._int96 = Int96.of(self._arrow, parquet, self._file, path)
        self._columns = self._columns_read()
        old = old_calendar_fault(self._arrow, self._file, self._int96.names)
        self._learn_schema(self._columns, old)
        self._groups = self._starts()
        self._read: tuple[int, Any] | None = None
        """Number and rows of the row group that was read last."""
        return int(self._file.metadata.num_rows)

    def close(self) -> None:
        super().close()
        self._int96.close()

    def _columns_read(self) -> Any:
        """Return the names and types with which columns are read. The first row group decides
        whether INT96 timestamps have nanoseconds. Of a later row group that does not
        fit, the rows cannot be read."""
        columns = self._file.schema_arrow
        if not self._int96 or self._file.num_row_groups == 0:
            return columns
        try:
            return self._int96.exact(self._file.read_row_group(0), 0).schema
        except self._unreadable:
            return columns  # this row group is reported when it is read

    def _starts(self) -> list[int]:
        """Return the first row of each row group, followed by the number of all rows."""
        starts = [0]
        for group in range(self._file.num_row_groups):
            starts.append(starts[-1] + self._file.metadata.row_group(group).num_rows)
        return starts

    def _group(self) -> int:
        return next(n for n in range(len(self._groups) - 1) if self._position < self._groups[n + 1])

    def _end_of_group(self) -> int:
        return self._groups[self._group() + 1]

    def _forget_group(self) -> None:
        self._read = None

    def _next_part(self, limit: int) -> Any:
        group = self._group()
        if self._read is None or self._read[0] != group:
            table = self._file.read_row_group(group)
            if self._int96:
                # Arrow's casts are safe: one that would lose something raises an error.
                table = self._int96.exact(table, group).cast(self._columns)
            self._read = (group, table)
        skip = self._position - self._groups[group]
        return self._read[1].slice(skip, limit)
