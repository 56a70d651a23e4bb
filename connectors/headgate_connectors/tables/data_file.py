"""Reads a Parquet file of a table, from a row on, in batches with the table's columns.

The file may lack columns that the table got later, which then are null. It is a fault of the file
if a column has another type than in the table, or if a struct has a field that the table lacks. No
cast is made that could lose something. Needs pyarrow.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.connector.data_error import DataError
from headgate_connectors.files.reader import FileFault
from headgate_connectors.formats.int96 import Int96
from headgate_connectors.formats.old_calendar import old_calendar_fault
from headgate_connectors.tables.delta_types import stored_type
from headgate_connectors.tables.source import BATCH_BYTES, Part

_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, TypeError)
"""Errors that pyarrow raises for a file that is corrupt or cannot be read exactly."""


Opener: TypeAlias = Callable[[], tuple[Any, int]]
"""Function that returns what pyarrow can read (a path or an open file) and the number of bytes in
it. It raises FileNotFoundError if the file does not exist any more."""


def local(path: Path) -> Opener:
    """Return the opener of a file on this machine."""
    return partial(_local, path)


def _local(path: Path) -> tuple[Any, int]:
    return path, path.stat().st_size


@dataclass(frozen=True, slots=True)
class Ids:
    """Field ids of a table's columns. They let a column be renamed, or promoted to a wider type
    that holds all of its values."""

    columns: Any
    """pyarrow.Schema whose fields, also those in structs, have their ids in the metadata key
    `FIELD_ID`."""
    by_name: Mapping[str, int]
    """Ids of columns by name, for files without ids."""
    needed: frozenset[int] = frozenset()
    """Ids of columns that the file must have. If it lacks one, only its partition had the values,
    and those are not read."""


@dataclass(frozen=True, slots=True)
class ParquetData:
    """One Parquet data file. It implements `headgate_connectors.tables.source.DataFile`."""

    name: str
    opener: Opener
    columns: Any
    """pyarrow.Schema of the table."""
    constants: Mapping[str, Any]
    """A pyarrow.Scalar for each partition column whose value is the same in all rows."""
    size: int
    rows: int | None
    ids: "Ids | None" = None
    """Field ids by which columns are found. None: they are found by name."""

    def parts(self, row: int, limit: int) -> Iterator[Part]:
        source, size = self.opener()
        if size != self.size:
            raise FileFault(f"it has {size} bytes, expected {self.size}: it was overwritten")
        with _opened(source) as file:
            count = file.metadata.num_rows
            if row > count:
                raise FileFault(f"it has {count} rows, but {row} of it were read: overwritten")
            int96 = Int96(pa, [], [], None)
            if _has_int96(file.schema):
                int96 = Int96.of(pa, pq, file, self.opener()[0])
            try:
                yield from self._parts(file, int96, row, limit)
            finally:
                int96.close()

    def _parts(self, file: Any, int96: Int96, row: int, limit: int) -> Iterator[Part]:
        places = self._places(file.schema_arrow, int96)
        old = old_calendar_fault(pa, file, int96.names)
        start = 0
        for group in range(file.num_row_groups):
            end = start + file.metadata.row_group(group).num_rows
            at = max(row, start)
            try:
                for batch in _batches(file, int96, group, at - start, limit) if at < end else ():
                    for part in self._runs(batch, at, places, old):
                        yield part
                        at = part.end
            except _UNREADABLE as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # an error of the disk, not of the content
                if at < end:
                    yield Part(at, end, None, f"rows {at} to {end} cannot be read: {error}")
            start = end

    def _places(self, there: Any, int96: Int96) -> list[int | None]:
        """Return the index of each of the table's columns in the file. None: the file lacks it.

        Raises:
            FileFault: a column has another type, is there twice, or is missing though it is never
                null.
        """
        if len(set(there.names)) < len(there.names):
            raise FileFault("it has two columns of one name")
        places = self._by_name(there) if self.ids is None else self._by_id(there, self.ids)
        wanted = self.columns if self.ids is None else self.ids.columns
        found: list[int | None] = []
        for column, shape, place in zip(self.columns, wanted, places, strict=True):
            at = None if column.name in self.constants else place
            if at is not None:
                given = there.field(at)
                fits = _Fits(given.name in int96.names, promotes=self.ids is not None)
                if not fits(given.type, shape.type):
                    raise FileFault(
                        f"its column {column.name} is of type {given.type}, expected {column.type}"
                    )
            elif not column.nullable and column.name not in self.constants:
                raise FileFault(f"it has no column {column.name}, which is never null")
            elif self.ids is not None and field_id(shape) in self.ids.needed:
                raise FileFault(f"it has no column {column.name}: only its partition has the value")
            found.append(at)
        return found

    def _by_name(self, there: Any) -> list[int | None]:
        exact = {name: at for at, name in enumerate(there.names)}
        lower = {name.lower(): at for name, at in exact.items()}
        return [exact.get(name, lower.get(name.lower())) for name in self.columns.names]

    def _by_id(self, there: Any, ids: Ids) -> list[int | None]:
        found = {field_id(column): at for at, column in enumerate(there)}
        if found.keys() == {None}:
            found = {ids.by_name.get(name): at for at, name in enumerate(there.names)}
        if None in found:
            raise FileFault(f"its column {there.names[found[None]]} has no field id")
        return [found.get(field_id(column)) for column in ids.columns]

    def _runs(
        self, batch: Any, at: int, places: list[int | None], old: Callable[[Any], str | None]
    ) -> Iterator[Part]:
        """Yield the rows of a batch as parts. Rows that Spark wrote in the old calendar, and that
        cannot be read, are parts of their own."""
        if old(batch) is None:
            yield Part(at, at + batch.num_rows, self._conformed(batch, places))
            return
        rows = range(batch.num_rows)
        reasons = [old(batch.slice(row, 1)) for row in rows]
        for reason, run in groupby(rows, lambda row: reasons[row]):
            first, *others = run
            start, end = at + first, at + first + 1 + len(others)
            if reason is None:
                values = self._conformed(batch.slice(first, end - start), places)
                yield Part(start, end, values)
            else:
                yield Part(start, end, None, reason)

    def _conformed(self, batch: Any, places: list[int | None]) -> Any:
        arrays: list[Any] = []
        for column, at in zip(self.columns, places, strict=True):
            if at is not None:
                array = batch.column(at)
                arrays.append(array if array.type == column.type else array.cast(column.type))
            else:
                value = self.constants.get(column.name, pa.scalar(None, column.type))
                arrays.append(pa.repeat(value, batch.num_rows))
        return pa.RecordBatch.from_arrays(arrays, schema=self.columns)


def _opened(source: Any) -> Any:
    try:
        return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    except _UNREADABLE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise FileFault(f"its footer does not parse: {error}") from error


def _has_int96(schema: Any) -> bool:
    return any(schema.column(at).physical_type == "INT96" for at in range(len(schema)))


def _batches(file: Any, int96: Int96, group: int, skip: int, limit: int) -> Iterator[Any]:
    """Yield the rows of a row group, from its row `skip` on, as RecordBatches."""
    if int96:
        table = int96.exact(file.read_row_group(group), group)
        yield from table.slice(skip).combine_chunks().to_batches(max_chunksize=limit)
        return
    told = file.metadata.row_group(group)
    of_a_row = max(told.total_byte_size // max(told.num_rows, 1), 1)
    size = min(limit, max(BATCH_BYTES // of_a_row, 1))
    for batch in file.iter_batches(size, row_groups=[group]):
        if skip < batch.num_rows:
            yield batch.slice(skip)
        skip = max(skip - batch.num_rows, 0)


FIELD_ID: Final = b"PARQUET:field_id"
"""Key of a field's metadata under which Arrow keeps the field id."""


def field_id(field: Any) -> int | None:
    """Return the field id of a pyarrow.Field. None: it has none."""
    text = (field.metadata or {}).get(FIELD_ID)
    return None if text is None else int(text)


_PROMOTED: Final = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


@dataclass(frozen=True, slots=True)
class _Fits:
    """Checks that all values of a column's type in a file are values of its type in the table."""

    has_int96: bool
    """The column has INT96 timestamps, which do not say whether they have a zone."""
    promotes: bool
    """The table's type may be wider than the file's."""

    def __call__(self, given: Any, wanted: Any) -> bool:
        types = pa.types
        if isinstance(given, pa.BaseExtensionType):
            given = given.storage_type
        if types.is_struct(wanted) and types.is_struct(given):
            return self._structs(given, wanted)
        if types.is_map(wanted) and types.is_map(given):
            return self(given.key_type, wanted.key_type) and self(given.item_type, wanted.item_type)
        if types.is_list(wanted) and (types.is_list(given) or types.is_large_list(given)):
            return self(given.value_type, wanted.value_type)
        try:
            both = (stored_type(given, ""), stored_type(wanted, ""))
        except DataError:
            return bool(given == wanted)
        if both[0] == both[1] or (self.has_int96 and all(map(types.is_timestamp, both))):
            return True
        return self.promotes and self._promoted(*both)

    def _structs(self, given: Any, wanted: Any) -> bool:
        inner = {given.field(at).name: given.field(at) for at in range(given.num_fields)}
        for at in range(wanted.num_fields):
            field = wanted.field(at)
            found = inner.pop(field.name, None)
            if found is None:
                if not field.nullable:
                    return False
                continue
            ids = {field_id(found), field_id(field)} - {None}
            if len(ids) > 1 or not self(found.type, field.type):
                return False
        return not inner

    def _promoted(self, given: Any, wanted: Any) -> bool:
        if pa.types.is_decimal(given) and pa.types.is_decimal(wanted):
            return bool(given.scale == wanted.scale and given.precision <= wanted.precision)
        return (given, wanted) in _PROMOTED
