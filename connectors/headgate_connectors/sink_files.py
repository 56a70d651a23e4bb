"""The files of a topic-partition that are written together: one for each folder of the sink."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headgate.connector.api import DataError, SinkRecord
from headgate.connector.schema import Schema
from headgate_connectors.sink_rows import at
from headgate_connectors.sink_writers import Row, TableWriter, Writer


@dataclass(slots=True)
class _File:
    writer: Writer
    staged: str
    rows: int = 0
    pending: list[Row] = field(default_factory=list[Row])
    """Rows of the batch under way."""
    first: SinkRecord | None = None
    """Record of the first of them."""


class StagedFiles:
    """Files that are not committed yet, and are committed as one."""

    def __init__(
        self,
        start: int,
        since: float,
        columns: Schema,
        stage: Callable[[], str],
        open_file: Callable[[str, Schema], Writer],
    ) -> None:
        """
        Args:
            start: first offset.
            since: when the first record came.
            columns: those of every row.
            stage: gives the path of a new file.
            open_file: opens it for rows of such columns.
        """
        self.start = start
        self.since = since
        self.columns = columns
        self._stage = stage
        self._open_file = open_file
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

    def add(self, folder: str, row: Row, record: SinkRecord) -> None:
        file = self._file(folder)
        if not file.pending:
            file.first = record
        file.pending.append(row)
        self.pending += 1

    def write(self) -> None:
        """
        Raises:
            DataError: a value that its file cannot hold.
        """
        if not self.pending:
            return
        self.pending = 0
        for file in self._files.values():
            rows, file.pending = file.pending, []
            if not rows:
                continue
            try:
                file.writer.write(rows)
            except DataError as error:
                assert file.first is not None
                raise DataError(f"a record from {at(file.first)} on: {error}") from error
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
