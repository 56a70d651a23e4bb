"""The files of a topic-partition that a sink writes at the same time: one for each folder."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from headgate.connector.api import DataError, SinkRecord
from headgate.connector.schema import Schema
from headgate_connectors.output.rows import at
from headgate_connectors.output.writers import FullError, Row, TableWriter, Writer


@dataclass(slots=True)
class _File:
    writer: Writer
    staged: str
    rows: int = 0
    pending: list[Row] = field(default_factory=list[Row])
    """Rows that `writer` does not have yet."""
    records: list[SinkRecord] = field(default_factory=list[SinkRecord])
    """The record of each row in `pending`."""


class StagedFiles:
    """Staged files of a topic-partition, which are committed together."""

    def __init__(
        self,
        start: int,
        since: float,
        columns: Schema,
        stage: Callable[[], str],
        open_file: Callable[[str, Schema], Writer],
        refuse: Callable[[SinkRecord, DataError], None],
    ) -> None:
        """
        Args:
            start: offset at which the files begin.
            since: time of the first record, by the monotonic clock in seconds.
            columns: STRUCT of the columns that every row has.
            stage: returns the path of a new file.
            open_file: opens the file at a path for rows with these columns.
            refuse: called with each record that has a value the file cannot hold.
        """
        self.start = start
        self.since = since
        self.columns = columns
        self._stage = stage
        self._open_file = open_file
        self._refuse = refuse
        self._files: dict[str, _File] = {}
        self.pending = 0
        """Number of rows, in all files, that their writers do not have yet."""

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, folder: str) -> bool:
        return folder in self._files

    def _file(self, folder: str) -> _File:
        file = self._files.get(folder)
        if file is None:
            staged = self._stage()
            file = self._files[folder] = _File(self._open_file(staged, self.columns), staged)
        return file

    def add_batch(self, values: Any, count: int) -> None:
        """Write the rows of an Arrow batch to the file in the sink's own folder.

        Raises:
            DataError: the file cannot hold a value.
        """
        file = self._file("")
        assert isinstance(file.writer, TableWriter)
        file.writer.write_batch(values)
        file.rows += count

    def need(self, folders: Iterable[str]) -> None:
        """Open a file in each of the folders that has none yet. It may stay without rows."""
        for folder in folders:
            self._file(folder)

    def add(self, folder: str, row: Row, record: SinkRecord) -> None:
        file = self._file(folder)
        file.pending.append(row)
        file.records.append(record)
        self.pending += 1

    def write(self) -> None:
        """Write all pending rows to their files.

        Raises:
            FullError: a file has no room for more rows.
            DataError: raised by `refuse`.
        """
        if not self.pending:
            return
        self.pending = 0
        for file in self._files.values():
            rows, records = file.pending, file.records
            file.pending, file.records = [], []
            if rows:
                self._write(file, rows, records)

    def _write(self, file: _File, rows: list[Row], records: list[SinkRecord]) -> None:
        """Write the rows to the file. Those that it cannot hold are found by halving, and
        refused."""
        try:
            file.writer.write(rows)
        except FullError as error:
            raise FullError(f"a record from {at(records[0])} on: {error}") from error
        except DataError as error:
            if len(rows) == 1:
                self._refuse(records[0], DataError(f"{at(records[0])}: {error}"))
                return
            half = len(rows) // 2
            self._write(file, rows[:half], records[:half])
            self._write(file, rows[half:], records[half:])
        else:
            file.rows += len(rows)

    @property
    def rows(self) -> int:
        """Number of rows written, in all files."""
        return sum(file.rows for file in self._files.values())

    def is_full(self, rows: int, size: int) -> bool:
        """Return whether one of the files has at least `rows` rows or `size` bytes."""
        return any(f.rows >= rows or f.writer.size >= size for f in self._files.values())

    def close(self) -> dict[str, str]:
        """Make the files durable. Returns their staged paths by folder. On an error all files are
        dropped."""
        try:
            for file in self._files.values():
                file.writer.close()
        except BaseException:
            self.drop()
            raise
        return {folder: file.staged for folder, file in self._files.items()}

    def drop(self) -> None:
        """Discard the files."""
        for file in self._files.values():
            file.writer.drop()
