"""Rows of Arrow files (IPC, Feather 2) and ORC files."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from headgate_connectors.files.file_tree import FilePath, source
from headgate_connectors.formats.old_calendar import GREGORIAN_SECOND, has_older
from headgate_connectors.formats.orc_footer import OrcFooter, orc_footer
from headgate_connectors.formats.row_groups import GroupedReader


class _InTurn(GroupedReader):
    """The size of a group is known when it was read, unless a footer says it. So whoever goes on at
    a position reads the groups before it again, and a group that cannot be read ends the file."""

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
        self._learn_schema(columns, self._other_fault(path))
        return count

    def _other_fault(self, path: FilePath) -> Callable[[Any], str | None] | None:
        """What else than a type may be wrong with rows."""
        return None

    @abstractmethod
    def _parsed(self) -> tuple[Any, int, int]:
        """Columns of `_file`, and how many groups and rows it has."""

    @abstractmethod
    def _group(self, number: int) -> Any:
        """A group, as a record batch."""

    def _end_of_group(self) -> int | None:
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
        batch.validate()
        for column in batch.columns:
            _as_laid_out(self._arrow, column).validate(full=True)
        return batch


def _as_laid_out(arrow: Any, column: Any) -> Any:
    """The column as a type that any bytes are values of. So its validation finds offsets that point
    out of it; a value that its own type has not costs its row, and no other."""
    types, kind = arrow.types, column.type
    if types.is_string(kind):
        return column.view(arrow.binary())
    if types.is_large_string(kind):
        return column.view(arrow.large_binary())
    if types.is_time32(kind):
        return column.view(arrow.int32())
    if types.is_time64(kind) or types.is_date64(kind):
        return column.view(arrow.int64())
    return column


class OrcReader(_InTurn):
    """Timestamps are read as nanoseconds: a stripe that has one beyond the years 1677 to 2262 costs
    itself, and is named. Where the footer is not understood, it ends the file."""

    KIND, BEGIN, END, END_SKIP = "ORC", b"ORC", b"ORC", 1

    def _parsed(self) -> tuple[Any, int, int]:
        from pyarrow import orc

        self._stripes = found = orc.ORCFile(self._file)
        return found.schema, found.nstripes, found.nrows

    def _other_fault(self, path: FilePath) -> Callable[[Any], str | None] | None:
        with path.open("rb") as file:
            footer = orc_footer(self._arrow, file)
        self._starts = self._starts_of(footer)
        arrow = self._arrow

        def fault(rows: Any) -> str | None:
            for name in rows.column_names:
                if has_older(arrow, rows.column(name), GREGORIAN_SECOND):
                    return (
                        f"column {name} has a day before 15 October 1582, counted by the Julian "
                        "calendar, as Spark and Hive write ORC: read the file by SparkSource, or "
                        "write it as Parquet"
                    )
            return None

        return fault if footer is not None and footer.is_julian else None

    def _starts_of(self, footer: OrcFooter | None) -> list[int] | None:
        """First row of each stripe, and the count of all rows; None: nothing tells."""
        if footer is None or len(footer.rows) != self._groups:
            return None
        starts = [0, *accumulate(footer.rows)]
        return starts if starts[-1] == self._stripes.nrows else None

    def _next_part(self, limit: int) -> Any:
        starts = self._starts
        if starts is not None and not self._start <= self._position < self._end:
            self._next_group = bisect_right(starts, self._position) - 1
            self._start = self._end = starts[self._next_group]
        return super()._next_part(limit)

    def _end_of_group(self) -> int | None:
        starts = self._starts
        return None if starts is None else starts[bisect_right(starts, self._position)]

    def _group(self, number: int) -> Any:
        stripe = self._stripes.read_stripe(number)
        starts = self._starts
        if starts is not None and stripe.num_rows != starts[number + 1] - starts[number]:
            raise ValueError(f"stripe {number} has {stripe.num_rows} rows, the footer says another")
        return stripe
