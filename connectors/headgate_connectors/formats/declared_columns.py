"""Reads typed files with the column types that ``columns.types`` declares.

Files of a folder may differ: a column is int32 in one file and int64 in the next. The reader of
this module gives all files the same columns. Needs pyarrow.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headgate.connector.schema import Field, Schema, SchemaType
from headgate_arrow import arrow_types
from headgate_arrow.widening import LossError, may_widen
from headgate_arrow.wider_columns import WiderColumns
from headgate_connectors.files.input import Marks
from headgate_connectors.files.reader import FileFault, Reader, Row, RowBatch
from headgate_connectors.formats.column_kinds import schema_of_kind
from headgate_connectors.formats.missing_columns import missing_columns


class DeclaredReader:
    """Wraps a reader: rows have the declared columns, then the file's other columns unchanged.

    Positions are those of the wrapped reader.

    Args:
        reader: reader of one file.
        kinds: types of the declared columns by name.
        widens: accept values of a narrower type, and take a missing declared column as null. A
            column in another spelling is refused, and so is a file without any of several declared
            columns.

    Raises:
        FileFault: the file's columns do not fit the declared ones.
    """

    def __init__(self, reader: Reader, kinds: Mapping[str, str], *, widens: bool) -> None:
        self._reader = reader
        given = reader.schema
        if given is None or given.type is not SchemaType.STRUCT:
            raise FileFault("its values have no columns, and columns.types is set")
        own = {field.name: field for field in given.fields}
        missing = missing_columns(kinds, list(own))
        if missing is not None and not missing.may_be_null:
            raise FileFault(
                f"columns.types has {missing.reason}: exclude the file, or mend columns.types"
            )
        declared = {name: schema_of_kind(kind).as_optional() for name, kind in kinds.items()}
        fields = [Field(name, schema) for name, schema in declared.items()]
        wanted = [arrow_types.arrow_field(field) for field in fields]
        there: list[Any] = []
        self._missing: list[Any] = []
        """Arrow fields of the declared columns that the file lacks."""
        for column in wanted:
            name = column.name
            if name in own:
                there.append(_own_field(own[name]))
                _check(there[-1], column, kinds[name], widens=widens)
            elif widens:
                self._missing.append(column)
            else:
                raise FileFault(
                    f"it has no column {name}, which columns.types declares: exclude the file, or "
                    "set schema.change = widen to have null there"
                )
        fields += [field for field in given.fields if field.name not in declared]
        self._schema = Schema(SchemaType.STRUCT, fields=tuple(fields))
        self._columns: Any = None
        """Arrow schema of batches, made for the first one. Without batches, the columns that are
        not declared need no Arrow type."""
        self._wider = WiderColumns(pa.schema(there), pa.schema(wanted))
        self._left: list[Row] = []
        """Rows, in file order, of a batch that had a bad row."""

    @property
    def marks(self) -> Marks:
        return self._reader.marks

    @property
    def has_tail(self) -> bool:
        return bool(self._left) or self._reader.has_tail

    @property
    def schema(self) -> Schema | None:
        return self._schema

    def close(self) -> None:
        self._reader.close()

    def read(self, limit: int, settled: bool) -> list[Row]:
        if not self._left:
            return self._rows(self._reader.read(limit, settled))
        rows, self._left = self._left[:limit], self._left[limit:]
        return rows

    def read_batch(self, limit: int) -> RowBatch | None:
        batch = None if self._left else self._reader.read_batch(limit)
        if batch is None:
            return None
        try:
            values = self._wider.batch(batch.values)
        except LossError:
            self._left = self._rows(_rows_of(batch))
            return None
        if self._columns is None:
            self._columns = arrow_types.arrow_schema(self._schema)
        columns = dict(zip(values.schema.names, values.columns, strict=True))
        for column in self._missing:
            columns[column.name] = pa.nulls(values.num_rows, column.type)
        arrays = [columns[name] for name in self._columns.names]
        return batch._replace(values=pa.RecordBatch.from_arrays(arrays, schema=self._columns))

    def _rows(self, rows: list[Row]) -> list[Row]:
        """Return the wrapped reader's rows with the declared columns."""
        good = [row for row in rows if row.reason is None]
        made = self._values([row.value for row in good])
        altered = {
            id(row): row._replace(value=None, reason=value)
            if isinstance(value, str)
            else row._replace(value=value)
            for row, value in zip(good, made, strict=True)
        }
        return [altered.get(id(row), row) for row in rows]

    def _values(self, values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | str]:
        """Return each row with the declared columns, or the reason why it is refused."""
        names = [field.name for field in self._schema.fields]
        found: list[dict[str, Any] | str] = []
        for value, changed in zip(values, self._wider.rows(values), strict=True):
            if isinstance(changed, str):
                found.append(changed)
            else:
                found.append({name: changed.get(name, value.get(name)) for name in names})
        return found


def _own_field(field: Field) -> Any:
    """Return the Arrow field of a column. Raises `FileFault` if it has no Arrow type, as a union of
    types in Avro has none."""
    try:
        return arrow_types.arrow_field(field)
    except arrow_types.NoFormError as error:
        raise FileFault(f"{error}: take it out of columns.types") from None


def _check(there: Any, wanted: Any, kind: str, *, widens: bool) -> None:
    """Raise `FileFault` if the file's column does not fit the declared one."""
    if there.type == wanted.type:
        return
    says = f"column {there.name} is of type {there.type}, columns.types declares {kind}"
    if not may_widen(there.type, wanted.type):
        raise FileFault(
            f"{says} ({wanted.type}), which does not hold such values unchanged: declare a type "
            "that holds both, or exclude the file"
        )
    if not widens:
        raise FileFault(f"{says}: set schema.change = widen to have it widened")


def _rows_of(batch: RowBatch) -> list[Row]:
    table = pa.Table.from_batches([batch.values])
    values = arrow_types.rows_of(table, arrow_types.carriers(table.schema))
    found: list[Row] = []
    for at, value in enumerate(values):
        here = {**{name: one[at] for name, one in batch.numbers.items()}, **batch.shared}
        members = here["start"], here["position"], value, None, here["crc"], here.get("prefix")
        found.append(Row(*members))
    return found
