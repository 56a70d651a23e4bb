"""Keys by which a table sink updates and deletes rows: ``key.columns``. Needs pyarrow."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from headgate.connector.api import DataError, SinkRecord
from headgate.connector.schema import Schema, SchemaType
from headgate.connector.schema import struct as struct_of
from headgate.ports import TopicPartition
from headgate_connectors.output.rows import at, key_schema
from headgate_connectors.tables.batch import Row

_SCALARS: Final = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_decimal,
    pa.types.is_binary,
)


class KeyColumns:
    """The columns that are the key of a row."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._structs: dict[Schema, Schema] = {}

    def check_value(self, record: SinkRecord, schema: Schema) -> None:
        """Check that a record's value has all columns of the key.

        Raises:
            DataError: a column of the key is missing or null.
        """
        for name in self._names:
            if schema.type is not SchemaType.STRUCT or schema.field(name) is None:
                raise DataError(f"{at(record)} has no column {name}, which key.columns names")
            if record.value.get(name) is None:
                raise DataError(
                    f"{at(record)} has null in column {name}, which key.columns names: a row "
                    "without a key cannot be found again"
                )

    def of_key(self, record: SinkRecord) -> tuple[Schema, Row]:
        """Return the schema and the values of the key columns, from the key of a tombstone.

        Raises:
            DataError: a column is missing in the key, or null.
        """
        if record.key is None:
            raise DataError(f"{at(record)} has neither a key nor a value: nothing can be deleted")
        schema = key_schema(record)
        struct = self._structs.get(schema)
        if struct is None:
            struct = self._structs[schema] = self._struct(record, schema)
        if schema.type is SchemaType.STRUCT:
            row = {name: record.key.get(name) for name in self._names}
        else:
            row = {self._names[0]: record.key}
        for name, value in row.items():
            if value is None:
                raise DataError(f"{at(record)} has null for {name} in its key")
        return struct, row

    def _struct(self, record: SinkRecord, schema: Schema) -> Schema:
        if schema.type is not SchemaType.STRUCT:
            if len(self._names) > 1:
                raise DataError(
                    f"{at(record)} has a key of type {schema.type}, expected a struct with "
                    f"{', '.join(self._names)}, as key.columns says"
                )
            return struct_of({self._names[0]: schema})
        for name in self._names:
            if schema.field(name) is None:
                raise DataError(f"{at(record)} has no {name} in its key, which key.columns names")
        fields = tuple(field for field in schema.fields if field.name in self._names)
        return replace(schema, fields=fields)

    def check_types(self, columns: Any) -> None:
        """Check the types of the key columns in the pyarrow.Schema `columns`.

        Raises:
            DataError: the type of a key column is not one whose values ``=`` compares exactly.
        """
        for name in self._names:
            kind = columns.field(name).type
            if not any(fits(kind) for fits in _SCALARS):
                raise DataError(
                    f"column {name} of key.columns is of type {kind}, expected whole numbers, "
                    "text, bytes, booleans, decimals, dates or timestamps"
                )

    def last_rows(self, data: Any, counts: Mapping[TopicPartition, int]) -> list[int]:
        """Return the numbers, ascending, of the rows that are the last with their key.

        Args:
            data: pyarrow.Table of the rows of all topic-partitions, one after the other.
            counts: number of rows of each topic-partition, in the order of `data`.

        Raises:
            DataError: two partitions have the same key, so it is not known which row is later.
        """
        keys = list(zip(*(data.column(name).to_pylist() for name in self._names), strict=True))
        last: dict[tuple[Any, ...], tuple[TopicPartition, int]] = {}
        row = 0
        for place, count in counts.items():
            for _ in range(count):
                before = last.get(keys[row])
                if before is not None and before[0] != place:
                    names = " and ".join(f"{one[0]}-{one[1]}" for one in (before[0], place))
                    raise DataError(
                        f"key {keys[row]} is in {names}, so which of its rows is the last is not "
                        "known: write.mode = upsert needs all records of a key in one partition"
                    )
                last[keys[row]] = (place, row)
                row += 1
        return sorted(found for _, found in last.values())
