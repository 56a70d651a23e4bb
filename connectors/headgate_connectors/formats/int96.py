"""Reads timestamps that a Parquet file stores as INT96: nanoseconds of any year.

Arrow reads them either as nanoseconds in 64 bits or as microseconds. Nanoseconds hold the years
1678 to 2262, and wrap around beyond them. Microseconds hold all years, and drop what is finer.

So each column is read in both ways. If the two differ by less than a microsecond, the nanoseconds
are right. Otherwise the microseconds are. The difference, modulo the wrap, is what the microseconds
have dropped.
"""

from typing import Any

from headgate_connectors.files.file_tree import FilePath, source
from headgate_connectors.formats.arrow_leaves import leaves

_WRAP = 1 << 64


class Int96:
    """The INT96 columns of one file. Most files have none."""

    def __init__(self, arrow: Any, columns: list[str], nested: list[str], nanos: Any) -> None:
        self._arrow = arrow
        self._columns = columns
        self._nested = nested
        self._nanos = nanos
        """The same file, opened to read nanoseconds."""

    @property
    def names(self) -> list[str]:
        """Names of columns with INT96 timestamps, also within lists and structs."""
        return [*self._columns, *self._nested]

    def __bool__(self) -> bool:
        """Return whether the file has INT96 columns."""
        return bool(self._columns or self._nested)

    @classmethod
    def of(cls, arrow: Any, parquet: Any, file: Any, path: FilePath) -> "Int96":
        schema = file.schema
        leaves = iter([schema.column(at).physical_type for at in range(len(schema))])
        flat, nested = list[str](), list[str]()
        # The column paths of the file are no help, since names may contain points.
        for column in file.schema_arrow:
            kinds = [next(leaves) for _ in range(_leaf_count(arrow, column.type))]
            if "INT96" in kinds:
                (nested if arrow.types.is_nested(column.type) else flat).append(column.name)
        some = flat or nested
        nanos = (
            parquet.ParquetFile(source(path), coerce_int96_timestamp_unit="ns") if some else None
        )
        return cls(arrow, flat, nested, nanos)

    def exact(self, table: Any, group: int) -> Any:
        """Return `table`, a row group read as microseconds. A column that needs nanoseconds has
        them.

        Raises:
            ValueError: a column has both nanoseconds and years that 64-bit nanoseconds do not hold,
                or has either within a list or struct.
        """
        if not self:
            return table
        other = self._nanos.read_row_group(group, columns=self.names)
        for name in self._columns:
            table = self._exact_column(table, name, table[name], other[name])
        for name in self._nested:
            self._check_nested(name, table[name], other[name])
        return table

    def close(self) -> None:
        if self._nanos is not None:
            self._nanos.close()

    def _exact_column(self, table: Any, name: str, micros: Any, nanos: Any) -> Any:
        int64 = self._arrow.int64()
        fine = wide = False
        pairs = zip(micros.cast(int64).to_pylist(), nanos.cast(int64).to_pylist(), strict=True)
        for micro, nano in pairs:
            if micro is None:
                continue
            dropped = (nano - micro * 1000) % _WRAP
            if dropped >= 1000:
                raise ValueError(f"column {name}: an INT96 timestamp cannot be read exactly")
            fine = fine or dropped > 0
            wide = wide or nano - micro * 1000 != dropped
        if fine and wide:
            raise ValueError(
                f"column {name} has INT96 timestamps with nanoseconds beside years before 1678 or "
                "after 2262, for which Arrow has no type"
            )
        return table.set_column(table.column_names.index(name), name, nanos) if fine else table

    def _check_nested(self, name: str, micros: Any, nanos: Any) -> None:
        both = zip(self._leaves(micros), self._leaves(nanos), strict=True)
        # A field that has the same type in both readings is not INT96.
        if not all(
            wide[0] == fine[0] or fine[1] == [number and number * 1000 for number in wide[1]]
            for wide, fine in both
        ):
            raise ValueError(
                f"column {name} has INT96 timestamps in a list or struct that microseconds do not "
                "hold, or years before 1678 or after 2262"
            )

    def _leaves(self, column: Any) -> list[tuple[Any, list[Any]]]:
        """Return type and numbers of each timestamp field within a column."""
        found: list[tuple[Any, list[Any]]] = []
        for chunk in column.chunks:
            parts = [
                (one.type, one.cast(self._arrow.int64()).to_pylist())
                for one in leaves(self._arrow, chunk)
                if self._arrow.types.is_timestamp(one.type)
            ]
            pairs = zip(found, parts, strict=True)
            found = [(kind, [*a, *b]) for (kind, a), (_, b) in pairs] if found else parts
        return found


def _leaf_count(arrow: Any, kind: Any) -> int:
    """Return how many Parquet columns an Arrow column of type `kind` has."""
    types = arrow.types
    if isinstance(kind, arrow.BaseExtensionType):
        return _leaf_count(arrow, kind.storage_type)
    if types.is_struct(kind):
        return sum(_leaf_count(arrow, kind.field(at).type) for at in range(kind.num_fields))
    if types.is_map(kind):
        return _leaf_count(arrow, kind.key_type) + _leaf_count(arrow, kind.item_type)
    return _leaf_count(arrow, kind.value_type) if types.is_nested(kind) else 1
