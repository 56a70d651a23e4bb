"""Rows of Arrow files (IPC, Feather 2) and ORC files."""

from abc import abstractmethod
from typing import Any

from headgate_connectors.files.file_tree import FilePath, source
from headgate_connectors.formats.row_groups import GroupedReader


class _InTurn(GroupedReader):
    """The size of a group is known when it was read. So whoever goes on at a position reads the
    groups before it again, and a group that cannot be read ends the file."""

    _groups: int
    """How many there are."""

    def _open(self, path: FilePath) -> int:
        # Never mapped into memory: if the file shrank, that would end the process.
        where = source(path)
        self._file = where if hasattr(where, "read") else self._arrow.OSFile(str(where))
        self._next_group = 0
        self._table: Any = None
        """The group that was read last."""
        self._start = self._end = 0
        """Rows of that group: from the first to behind the last."""
        columns, self._groups, count = self._parsed()
        self._learn_schema(columns)
        return count

    @abstractmethod
    def _parsed(self) -> tuple[Any, int, int]:
        """Columns of `_file`, and how many groups and rows it has."""

    @abstractmethod
    def _group(self, number: int) -> Any:
        """A group, as a record batch."""

    def _end_of_group(self) -> None:
        return None

    def _forget_group(self) -> None:
        """It is read again, by whoever reads on."""

    def _next_part(self, limit: int) -> Any:
        while self._position >= self._end:
            if self._next_group == self._groups:
                raise ValueError(f"it has {self._end} rows, and {self._count} by its footer")
            batch = self._group(self._next_group)
            self._table = self._arrow.Table.from_batches([batch])
            self._next_group += 1
            self._start, self._end = self._end, self._end + batch.num_rows
        return self._table.slice(self._position - self._start, limit)


class ArrowReader(_InTurn):
    KIND = "Arrow"
    BEGIN = END = b"ARROW1"

    def _parsed(self) -> tuple[Any, int, int]:
        from pyarrow import ipc

        self._batches = found = ipc.open_file(self._file)
        return found.schema, found.num_record_batches, found.count_rows()

    def _group(self, number: int) -> Any:
        batch = self._batches.get_batch(number)
        batch.validate(full=True)
        return batch


class OrcReader(_InTurn):
    """Timestamps are read as nanoseconds: a stripe that has one beyond the years 1677 to 2262 ends
    the file, and is named."""

    KIND, BEGIN, END, END_SKIP = "ORC", b"ORC", b"ORC", 1

    def _parsed(self) -> tuple[Any, int, int]:
        from pyarrow import orc

        self._stripes = found = orc.ORCFile(self._file)
        return found.schema, found.nstripes, found.nrows

    def _group(self, number: int) -> Any:
        return self._stripes.read_stripe(number)
