"""Records as rows of a file, and the files that are made of them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from headgate_spark import columns as cols

VALUE = "value"
"""Column for values that are no objects."""
PLAIN_KINDS: Mapping[str, str] = {
    "bool": cols.BOOLEAN, "float": cols.FLOAT, "double": cols.DOUBLE, "string": cols.STRING,
}  # fmt: skip
"""Kinds by Arrow's names of types."""


@dataclass(slots=True)
class Chunk:
    """Some rows: for JSON as they are, otherwise as Arrow columns with kinds of their own."""

    length: int
    kinds: dict[str, str]
    arrays: dict[str, Any]
    rows: list[dict[str, Any]] | None

    @classmethod
    def of(cls, rows: list[dict[str, Any]], *, keep_rows: bool) -> "Chunk":
        if keep_rows:
            return cls(len(rows), {}, {}, rows)
        kinds: dict[str, str] = {}
        arrays: dict[str, Any] = {}
        for name in dict.fromkeys(key for row in rows for key in row):
            values = [row.get(name) for row in rows]
            kinds[name] = cols.kind_of(values)
            arrays[name] = cols.to_arrow(values, kinds[name])
        return cls(len(rows), kinds, arrays, None)

    @classmethod
    def typed(cls, table: Any, more: "Chunk") -> "Chunk":
        """Return the columns of a pyarrow.Table with their types, and those of `more`."""
        arrays = {name: written(one(table.column(name))) for name in table.column_names}
        kinds = {name: kind_of_array(array) for name, array in arrays.items()}
        return cls(table.num_rows, {**kinds, **more.kinds}, {**arrays, **more.arrays}, None)

    def has_null(self, name: str) -> bool:
        """Return whether a row has null in the column."""
        if self.kinds.get(name, cols.NULL) == cols.NULL:
            return self.length > 0
        return bool(self.arrays[name].null_count)

    def column(self, name: str, kind: str) -> Any:
        """Return the column as `kind`, which must hold all values of this chunk."""
        import pyarrow as pa

        mine = self.kinds.get(name, cols.NULL)
        if mine == cols.NULL:
            return cols.to_arrow([None] * self.length, kind)
        array = self.arrays[name]
        if cols.arrow_type(kind) == array.type:
            return array
        if kind == cols.DOUBLE:  # whole numbers that a double holds
            return array.cast(cols.arrow_type(kind))
        if self.kinds[name].startswith("{"):
            return cols.texts(array)
        values = array.to_pylist()
        if kind == cols.STRING:
            return pa.array([cols.as_text(value) for value in values], pa.string())
        return cols.to_arrow(values, kind)


def one(column: Any) -> Any:
    """Return a column of a table as one array."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def written(array: Any) -> Any:
    """Return a column of a schema's type in the form in which it is written."""
    kind = cols.written_type(array.type)
    return cols.texts(array) if kind is None else array.cast(kind)


def kind_of_array(array: Any) -> str:
    """Return the kind of a column that is in its written form."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if array.null_count == len(array):
        return cols.NULL
    kind = array.type
    if not pa.types.is_integer(kind):
        return PLAIN_KINDS.get(str(kind)) or cols.typed_kind(kind)
    bounds = pc.min_max(array)
    exact = bounds["min"].as_py() >= -cols.EXACT and bounds["max"].as_py() <= cols.EXACT
    return cols.INTEGER if exact else cols.LONG


def written_columns(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of files. There is at least one.

    A column without any value yet is left out, because its type is not known. Readers take a
    missing column for nulls, but refuse a column whose type differs from file to file.
    """
    known = {name: kind for name, kind in columns.items() if kind != cols.NULL}
    return known or {VALUE: cols.STRING}


def _tables(chunks: Sequence[Chunk], columns: Mapping[str, str]) -> Iterator[Any]:
    """Yield the chunks as Arrow tables of one schema."""
    import pyarrow as pa

    known = written_columns(columns)
    for chunk in chunks:
        arrays = [chunk.column(name, kind) for name, kind in known.items()]
        yield pa.table(arrays, names=list(known))


def _write_parquet(path: Path, chunks: Sequence[Chunk], columns: Mapping[str, str]) -> None:
    import pyarrow.parquet as pq

    writer: Any = None
    for table in _tables(chunks, columns):
        writer = writer or pq.ParquetWriter(path, table.schema, compression="snappy")
        writer.write_table(table)
    writer.close()


def _write_csv(path: Path, chunks: Sequence[Chunk], columns: Mapping[str, str]) -> None:
    """Write a header line and the rows. Null is written as nothing, an empty text as ``""``."""
    from pyarrow import csv

    writer: Any = None
    for table in _tables(chunks, columns):
        writer = writer or csv.CSVWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def _write_json(path: Path, chunks: Sequence[Chunk], _columns: Mapping[str, str]) -> None:
    """Write one object per line, as it was: nothing needs to be united."""
    with path.open("wb") as file:
        for chunk in chunks:
            assert chunk.rows is not None
            file.write(b"".join(_json_line(row) for row in chunk.rows))


def _json_line(row: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # a whole number beyond 64 bits
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogatepass") + b"\n"


WRITERS: Mapping[str, Callable[[Path, Sequence[Chunk], Mapping[str, str]], None]] = {
    "parquet": _write_parquet,
    "csv": _write_csv,
    "json": _write_json,
}
