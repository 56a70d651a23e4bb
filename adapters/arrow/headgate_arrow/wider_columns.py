"""Conversion of the columns of rows and batches to wider types.

`headgate_arrow.widening` defines what is wider. Rows and batches get the same results.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headgate.connector.data_error import DataError
from headgate_arrow import arrow_types
from headgate_arrow.plain_widening import NotPlainError, plain_widening
from headgate_arrow.rows import table_of
from headgate_arrow.widening import LossError, parts_that_hold, widened


class WiderColumns:
    """The columns of `given` that have another type in `wanted`. Both are a pyarrow.Schema.

    `may_widen` must allow each pair of types. Columns that only one of the schemas has are ignored.
    """

    def __init__(self, given: Any, wanted: Any) -> None:
        names = set(wanted.names)
        pairs = [(one, wanted.field(one.name)) for one in given if one.name in names]
        altered = [(one, there) for one, there in pairs if one.type != there.type]
        self._given = pa.schema([one for one, _ in altered])
        self._wanted = pa.schema([there for _, there in altered])
        self._by_way = arrow_types.carriers(self._given)
        self._wanted_by_way = arrow_types.carriers(self._wanted)
        self._plain = [(one.name, plain_widening(one.type, there.type)) for one, there in altered]

    def __bool__(self) -> bool:
        return len(self._given) > 0

    def arrays(self, values: Any) -> dict[str, Any]:
        """Return the columns of a RecordBatch, converted to the types of `wanted`, by name.

        Raises:
            LossError: a value does not fit. The message names the column.
        """
        return {
            one.name: _widened(values.column(one.name), one, there)
            for one, there in zip(self._given, self._wanted, strict=True)
        }

    def batch(self, values: Any) -> Any:
        """Return the RecordBatch with these columns converted.

        Raises:
            LossError: as `arrays`.
        """
        wider, schema = self.arrays(values), values.schema
        for name in wider:
            schema = schema.set(
                schema.get_field_index(name), schema.field(name).with_type(wider[name].type)
            )
        arrays = [wider.get(name, values.column(name)) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | str]:
        """Return, for each row, the converted values of these columns, or a text that says why one
        does not fit."""
        if not self or not rows:
            return [{}] * len(rows)
        if len(rows) == 1 and (one := self._one(rows[0])) is not None:
            return [one]
        plain = [{name: row.get(name) for name in self._given.names} for row in rows]
        made: dict[int, Any] = {}

        def holds(start: int, end: int) -> bool:
            try:
                made[start] = self._rows(plain[start:end])
            except (LossError, DataError, OverflowError, ValueError) as error:
                made[start] = str(error)
                return False
            return True

        found: list[Mapping[str, Any] | str] = []
        for start, end in parts_that_hold(len(plain), holds):
            if end - start == 1:
                holds(start, end)
            part = made[start]
            found += [part] if isinstance(part, str) else part
        return found

    def _one(self, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the converted values of one row. None: they must be left to Arrow."""
        found: dict[str, Any] = {}
        for name, convert in self._plain:
            value = row.get(name)
            if convert is None:
                return None
            try:
                found[name] = None if value is None else convert(value)
            except NotPlainError:
                return None
        return found

    def _rows(self, plain: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the converted values of rows.

        Raises:
            LossError, DataError: a value does not fit. The message names the column.
        """
        table = table_of(plain, self._given, self._by_way)
        arrays = [
            _widened(table.column(one.name).combine_chunks(), one, there)
            for one, there in zip(self._given, self._wanted, strict=True)
        ]
        made = pa.Table.from_arrays(arrays, schema=self._wanted)
        return arrow_types.rows_of(made, self._wanted_by_way)


def _widened(array: Any, given: Any, wanted: Any) -> Any:
    """Return an array with the type of the field `wanted`.

    Raises:
        LossError: a value does not fit. The message names the column.
    """
    if isinstance(array, pa.ChunkedArray):  # of one chunk, or of none
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], given.type)
    try:
        return widened(array, wanted.type)
    except LossError as error:
        raise LossError(
            f"column {given.name} of type {given.type} has a value that is no {wanted.type}: "
            f"{error}"
        ) from error
