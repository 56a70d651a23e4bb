"""Converts the rows of one topic-partition from Connect's values to Arrow, for a table sink."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from headgate.connector.api import DataError, SinkRecord
from headgate.connector.schema import Schema
from headgate_arrow import arrow_types
from headgate_arrow.arrow_types import NoFormError
from headgate_connectors.output.rows import as_struct, at
from headgate_connectors.tables.columns import with_types

Row = dict[str, Any]
Refuse = Callable[[SinkRecord, DataError], None]
_WRONG: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows with one Connect schema become columns of the table."""

    arrow: Any
    """pyarrow.Schema of the Connect schema."""
    carriers: Any
    """The result of `arrow_types.carriers` for `arrow`."""
    stored: Any
    """pyarrow.Schema of the same columns with the types that the table format stores."""
    check_rows: Callable[[Any], None] = lambda _rows: None
    """Function that is called with a pyarrow.Table of `kept` and raises `DataError` if the target
    cannot hold it."""
    kept: Any = None
    """pyarrow.Schema of the same columns with their types in the present table, which may be wider
    than in `stored`. None: the types are those of `stored`."""

    @classmethod
    def of(
        cls,
        schema: Schema,
        stored_schema: Callable[[Any], Any],
        check_rows: Callable[[Any], None],
    ) -> "Layout":
        """Return the layout of a Connect schema. Raises `DataError` if a column has no form in
        Arrow or in the table."""
        try:
            arrow = arrow_types.arrow_schema(as_struct(schema))
        except NoFormError as error:
            raise DataError(str(error)) from error
        return cls(arrow, arrow_types.carriers(arrow), stored_schema(arrow), check_rows)

    def in_columns(self, columns: Any) -> "Layout":
        """Return this layout for a table with `columns`, a pyarrow.Schema that has all columns of
        `stored`."""
        kept = pa.schema([columns.field(name) for name in self.stored.names])
        return self if kept.types == self.stored.types else replace(self, kept=kept)

    def table(self, rows: list[Row]) -> Any:
        """Return the rows as a pyarrow.Table of `kept`.

        Raises:
            DataError: a column cannot hold a value unchanged. The message names the column.
        """
        try:
            table = self._table(rows, self.arrow, self.carriers, self.stored)
        except _WRONG:
            for row in rows:
                for parts in zip(self.arrow, self.carriers, self.stored, strict=True):
                    self._check(row, *parts)
            raise
        if self.kept is not None:
            table = with_types(table, self.kept)
        self.check_rows(table)
        return table

    def columns(self, values: Any) -> Any:
        """Return the columns of a RecordBatch of the Connect schema, with the types of `table`.

        None: a column is nested, has another name, or has a value that does not fit. Then the rows
        must be converted one by one.
        """
        nested = any(pa.types.is_nested(column.type) for column in self.arrow)
        if nested or values.schema.names != self.arrow.names:
            return None
        try:
            arrays = [
                values.column(number).cast(column.type, safe=True)
                for number, column in enumerate(self.stored)
            ]
            table = pa.Table.from_arrays(arrays, schema=self.stored)
            if self.kept is not None:
                table = with_types(table, self.kept)
            self.check_rows(table)
        except (*_WRONG, DataError):
            return None
        return table

    @staticmethod
    def _table(rows: list[Row], arrow: Any, carriers: Any, stored: Any) -> Any:
        table = arrow_types.table_of(rows, arrow, carriers)
        return table if table.schema == stored else table.cast(stored, safe=True)

    def _check(self, row: Row, arrow: Any, carrier: Any, stored: Any) -> None:
        try:
            self._table([row], pa.schema([arrow]), pa.schema([carrier]), pa.schema([stored]))
        except _WRONG as error:
            raise DataError(
                f"column {arrow.name} of type {stored.type}: {error}{_advice(arrow, error)}"
            ) from error


def _advice(column: Any, error: Exception) -> str:
    """Return advice about a value that Arrow refuses. Empty text: there is none."""
    if "timestamp[ns" not in str(error) or "lose data" not in str(error):
        return ""
    told = ". It has nanoseconds, and the table's timestamps have microseconds"
    if not pa.types.is_timestamp(column.type):
        return f"{told}: drop the column by a transform (ReplaceField)"
    return (
        f"{told}: keep it as a whole number of nanoseconds by a transform (Cast with spec = "
        f"{column.name}:int64)"
    )


@dataclass(slots=True)
class Taken:
    """Rows of one topic-partition that the sink has taken and that are not in the table yet."""

    tables: list[Any] = field(default_factory=list[Any])
    deleted: list[bool] = field(default_factory=list[bool])
    """For each row of `tables`, then of `_rows`: True if the row is a tombstone, whose key is to be
    deleted."""
    _layout: Layout | None = None
    _rows: list[Row] = field(default_factory=list[Row])
    _records: list[SinkRecord] = field(default_factory=list[SinkRecord])
    """The record of each row in `_rows`."""
    _bytes: int = 0

    @property
    def rows(self) -> int:
        return len(self.deleted)

    @property
    def size(self) -> int:
        """Approximate bytes of the tables."""
        return self._bytes

    def add(
        self, record: SinkRecord, layout: Layout, row: Row, deleted: bool, refuse: Refuse
    ) -> None:
        """Add the row of a record. With another layout, the rows before it are converted first,
        which may raise `DataError` for one of them: see `convert`."""
        if self._layout is not layout:
            self.convert(refuse)
            self._layout = layout
        self._rows.append(row)
        self._records.append(record)
        self.deleted.append(deleted)

    def add_table(self, table: Any) -> None:
        """Add rows that are Arrow columns already, after the rows that were converted."""
        assert not self._rows, "rows before it are not converted"
        self.tables.append(table)
        self.deleted += [False] * table.num_rows
        self._bytes += table.nbytes

    def convert(self, refuse: Refuse) -> None:
        """Convert the rows that are not in an Arrow table yet.

        Args:
            refuse: called with each record that has a value the table cannot hold.

        Raises:
            DataError: raised by `refuse`.
        """
        if not self._rows:
            return
        rows, records = self._rows, self._records
        self._rows, self._records = [], []
        first = len(self.deleted) - len(rows)
        deleted = self.deleted[first:]
        del self.deleted[first:]
        self._convert(rows, records, deleted, refuse)

    def _convert(
        self, rows: list[Row], records: list[SinkRecord], deleted: list[bool], refuse: Refuse
    ) -> None:
        assert self._layout is not None
        try:
            table = self._layout.table(rows)
        except DataError as error:
            if len(rows) == 1:
                refuse(records[0], DataError(f"{at(records[0])}: {error}"))
                return
            half = len(rows) // 2
            self._convert(rows[:half], records[:half], deleted[:half], refuse)
            self._convert(rows[half:], records[half:], deleted[half:], refuse)
        else:
            self.tables.append(table)
            self.deleted += deleted
            self._bytes += table.nbytes
