"""Writers of files from rows: parquet, arrow, csv, jsonl. Needs pyarrow for the first two."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, cast

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.connector.api import SinkRecord
from headgate.connector.data_error import DataError
from headgate.connector.schema import STRING, Field, Schema, SchemaType
from headgate.connector.text_converters import json_text as to_json
from headgate.connector.text_converters import text_of
from headgate_arrow import arrow_types
from headgate_arrow.rows import same_columns, table_of
from headgate_connectors.formats import json_text
from headgate_connectors.output.parquet_columns import value_fault
from headgate_connectors.output.rows import VALUE, at

ROW_GROUP_ROWS: Final = 65_536

Row = dict[str, Any]
LINE: Final = Schema(SchemaType.STRUCT, fields=(Field(VALUE, STRING),))
"""Columns of jsonl: the line."""


class Writer(Protocol):
    """One file. `columns` is the STRUCT of its rows."""

    def write(self, rows: Sequence[Row]) -> None:
        """Raises `DataError`: a value that the file cannot hold; OSError."""
        ...

    @property
    def size(self) -> int:
        """Bytes that the file has by now, about."""
        ...

    def close(self) -> None:
        """Write what is left, and make the file durable."""
        ...

    def drop(self) -> None:
        """Give the file up; nothing of it is needed."""
        ...


class _File:
    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self._path = path

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def drop(self) -> None:
        with suppress(OSError):  # a full disk has no room for what is still in the buffer
            self._file.close()
        self._path.unlink(missing_ok=True)


class FullError(DataError):
    """A file has no room for the words of a dictionary column."""


class OneDictionary:
    """The dictionaries of one Arrow IPC file: each column has one for all batches. So a file with
    such columns is written when all its rows are there. False: no column has one."""

    def __init__(self, columns: Any) -> None:
        self._known: dict[str, Any] = {
            one.name: None for one in columns if "dictionary<" in str(one.type)
        }

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, table: Any) -> None:
        """Raises `FullError`: with these the words would be too many for a column's indices."""
        found = {name: self._with(name, table.column(name)) for name in self._known}
        self._known.update(found)

    def _with(self, name: str, column: Any) -> Any:
        """No rows, with the words of all that were added and of this column."""
        known = self._known[name]
        chunks = [chunk.slice(0, 0) for chunk in column.chunks]
        if known is not None and all(one.type == known.type for one in chunks):
            chunks.insert(0, known)
        try:
            return pa.concat_arrays(chunks)
        except pa.ArrowInvalid as error:
            raise FullError(
                f"column {name} of type {column.type} has more words than one file can have: set "
                f"rotate.records lower ({error})"
            ) from error


class TableWriter(_File):
    """Tables of Arrow: a Parquet file, or an Arrow IPC file."""

    def __init__(self, path: Path, columns: Schema, format: str) -> None:
        super().__init__(path)
        self._columns = arrow_types.arrow_schema(columns)
        self._carriers = arrow_types.carriers(self._columns)
        self._tables: list[Any] = []
        self._rows = 0
        self._held = 0
        self._words = OneDictionary(self._columns) if format == "arrow" else None
        self._is_parquet = format == "parquet"
        if self._is_parquet:
            self._writer = pq.ParquetWriter(self._file, self._columns)
        else:
            self._writer = pa.ipc.new_file(self._file, self._columns)

    def write(self, rows: Sequence[Row]) -> None:
        self._add(table_of(list(rows), self._columns, self._carriers))

    def write_batch(self, values: Any) -> None:
        """Rows of Arrow.

        Raises:
            DataError: their columns are not those of the file.
            FullError: the file cannot take them, but the next one can.
        """
        self._add(pa.Table.from_batches([same_columns(values, self._columns)]))

    def _add(self, table: Any) -> None:
        """Raises `DataError` as `write`."""
        if self._is_parquet and (reason := value_fault(table)):
            raise DataError(reason)
        if self._words is not None:
            self._words.add(table)
        self._tables.append(table)
        self._rows += table.num_rows
        self._held += table.nbytes
        if self._rows >= ROW_GROUP_ROWS and not self._words:
            self._flush()

    def _flush(self) -> None:
        if self._tables:
            table = pa.concat_tables(self._tables).combine_chunks()
            self._writer.write_table(table, ROW_GROUP_ROWS)
        self._tables, self._rows, self._held = [], 0, 0

    @property
    def size(self) -> int:
        return self._file.tell() + self._held

    def drop(self) -> None:
        # A ValueError: the file is closed.
        with suppress(pa.ArrowException, OSError, ValueError):
            self._writer.close()  # else it writes to the closed file when it is collected
        super().drop()

    def close(self) -> None:
        self._flush()
        self._writer.close()
        self.sync()


class LineWriter(_File):
    """Text, a row a line."""

    def __init__(self, path: Path, line: Callable[[Row], str], first: str = "") -> None:
        super().__init__(path)
        self._line = line
        self._file.write(first.encode())

    def write(self, rows: Sequence[Row]) -> None:
        line = self._line
        try:
            data = "".join([line(row) + "\n" for row in rows]).encode()
        except UnicodeEncodeError as error:
            raise DataError(f"text that has no form in UTF-8: {error}") from error
        self._file.write(data)

    @property
    def size(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self.sync()


def open_writer(format: str, path: Path, columns: Schema) -> Writer:
    """A writer of a new file.

    Raises:
        NoFormError: a column has no type in Arrow.
    """
    if format == "csv":
        return LineWriter(path, _csv_line(columns), _csv_head(columns))
    if format == "jsonl":
        return LineWriter(path, lambda row: cast(str, row[VALUE]))
    return TableWriter(path, columns, format)


ENDINGS: Final[Mapping[str, str]] = {
    "parquet": "parquet",
    "arrow": "arrow",
    "csv": "csv",
    "jsonl": "jsonl",
}


def json_line(value: Any) -> str:
    """A value without a schema as a line of JSON: text that is JSON as it is, all else as JSON."""
    if isinstance(value, str) and "\n" not in value and json_text.fault(value.encode()) is None:
        return value
    return to_json(None, value)


def json_row(record: SinkRecord, schema: Schema | None, value: Any) -> str:
    """A value as `json_line`, or by its schema. Raises `DataError`, which says whose it is."""
    try:
        if schema is None or schema.type is SchemaType.STRING:
            return json_line(value)
        return to_json(schema, value)
    except DataError as error:
        raise DataError(f"{at(record)}: {error}") from error


def _csv_head(columns: Schema) -> str:
    return ",".join([_quoted(found.name) for found in columns.fields]) + "\n"


def _csv_line(columns: Schema) -> Callable[[Row], str]:
    """Null is nothing, an empty text is ``""``: so the two can be told apart.

    A line raises `DataError` where it would be empty, and be no row to its readers.
    """
    fields = [(found.name, found.schema) for found in columns.fields]

    def line(row: Row) -> str:
        cells: list[str] = []
        for name, schema in fields:
            value = row.get(name)
            if value is None:
                cells.append("")
            elif schema.type is SchemaType.STRING:
                cells.append(_quoted(value))
            elif schema.type is SchemaType.BYTES and isinstance(value, bytes):
                cells.append(_quoted(text_of(_LIST_OF_BYTES, [value])[2:-2]))
            else:
                cells.append(_quoted(text_of(schema, value)))
        if cells == [""]:
            raise DataError(
                f"column {fields[0][0]} is null, and is the only one: CSV has no form for that, "
                "readers pass over an empty line; add a column, or use another format"
            )
        return ",".join(cells)

    return line


_LIST_OF_BYTES: Final = Schema(SchemaType.ARRAY, value_schema=Schema(SchemaType.BYTES))


_BOM: Final = "\ufeff"
"""At the beginning of a file it is no text."""


def _quoted(text: str) -> str:
    if text and text[0] != _BOM and not any(mark in text for mark in ',"\n\r'):
        return text
    return '"' + text.replace('"', '""') + '"'
