"""The files of a topic-partition that are written together: one for each folder of the sink."""

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
    """Rows of the batch under way."""
    records: list[SinkRecord] = field(default_factory=list[SinkRecord])
    """The record of each of them."""


class StagedFiles:
    """Files that are not committed yet, and are committed as one."""

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
            start: first offset.
            since: when the first record came.
            columns: those of every row.
            stage: gives the path of a new file.
            open_file: opens it for rows of such columns.
            refuse: is given each record whose values no file can hold.
        """
        self.start = start
        self.since = since
        self.columns = columns
        self._stage = stage
        self._open_file = open_file
        self._refuse = refuse
        self._files: dict[str, _File] = {}
        self.pending = 0
        """Rows that no writer has yet."""

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
        """Write rows of an Arrow batch to the file of the folder itself.

        Raises:
            DataError: a value that the file cannot hold.
        """
        file = self._file("")
        assert isinstance(file.writer, TableWriter)
        file.writer.write_batch(values)
        file.rows += count

    def need(self, folders: Iterable[str]) -> None:
        """See that each of them has a file, if only one without rows."""
        for folder in folders:
            self._file(folder)

    def add(self, folder: str, row: Row, record: SinkRecord) -> None:
        file = self._file(folder)
        file.pending.append(row)
        file.records.append(record)
        self.pending += 1

    def write(self) -> None:
        """
        Raises:
            FullError: a file has no room for more.
            DataError: `refuse` raises it.
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
        """Write all rows that the file can hold."""
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
        """Rows that are written, in all files."""
        return sum(file.rows for file in self._files.values())

    def is_full(self, rows: int, size: int) -> bool:
        """Whether one of the files has so many rows, or bytes."""
        return any(f.rows >= rows or f.writer.size >= size for f in self._files.values())

    def close(self) -> dict[str, str]:
        """Make them durable; the path of each by its folder."""
        try:
            for file in self._files.values():
                file.writer.close()
        except BaseException:
            self.drop()
            raise
        return {folder: file.staged for folder, file in self._files.items()}

    def drop(self) -> None:
        """Give them up."""
        for file in self._files.values():
            file.writer.drop()
