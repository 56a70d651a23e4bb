"""Rows that travel together as one RecordBatch of Arrow, and what is theirs row by row.

The core knows no Arrow: a RecordBatch is anything here that has `num_rows`. Its columns are the
fields of the batch's value schema, a STRUCT.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

from headgate.connector.schema import Schema
from headgate.ports import RowNumbers as RowNumbers

RecordBatch: TypeAlias = Any
"""A pyarrow.RecordBatch."""


class RowOffsets(Sequence[Mapping[str, Any]]):
    """The source offset after each row of a batch, so that a source can go on inside it.

    Args:
        numbers: members of the offset that differ from row to row, such as a position. A `range`
            costs nothing per row.
        shared: members that all rows have in common.

    Raises:
        ValueError: the members are not of one count of rows.
    """

    def __init__(
        self, numbers: Mapping[str, Sequence[int]], shared: Mapping[str, Any] | None = None
    ) -> None:
        counts = {len(one) for one in numbers.values()}
        if len(counts) != 1:
            raise ValueError(f"offsets of {sorted(counts)} rows, expected one count")
        self._numbers = dict(numbers)
        self._shared = dict(shared or {})
        self._count = counts.pop()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> "RowOffsets": ...
    def __getitem__(self, at: int | slice) -> "Mapping[str, Any] | RowOffsets":
        if isinstance(at, slice):
            return RowOffsets({key: one[at] for key, one in self._numbers.items()}, self._shared)
        return {**{key: one[at] for key, one in self._numbers.items()}, **self._shared}


@dataclass(slots=True)
class SourceBatch:
    """Rows of one source partition that go to one topic: yielded by `poll` in place of a
    `SourceRecord` for each. What is not row by row is the same for all of them."""

    source_partition: Mapping[str, Any]
    offsets: RowOffsets
    topic: str
    values: RecordBatch
    value_schema: Schema
    """STRUCT of the columns of `values`."""
    key: Any = None
    headers: tuple[tuple[str, Any], ...] = ()
    """A `RowNumbers` as value: a number for each row."""
    partition: int | None = None
    timestamp_ms: int | None = None
    key_schema: Schema | None = None

    @property
    def count(self) -> int:
        """How many rows it has."""
        rows: int = self.values.num_rows
        return rows

    @property
    def source_offset(self) -> Mapping[str, Any]:
        """The source offset after its last row."""
        return self.offsets[-1]

    def part(self, start: int, count: int) -> "SourceBatch":
        """`count` rows from row `start` on."""
        end = start + count
        return SourceBatch(
            *(self.source_partition, self.offsets[start:end], self.topic),
            *(self.values.slice(start, count), self.value_schema, self.key),
            *(row_headers(self.headers, start, end), self.partition),
            *(self.timestamp_ms, self.key_schema),
        )


@dataclass(slots=True)
class SinkBatch:
    """Records of one topic-partition with offsets in a row: given to `put_batch` in place of a
    `SinkRecord` for each. What is not row by row is the same for all of them."""

    topic: str
    partition: int
    offset: int
    """Offset of the first row."""
    values: RecordBatch
    value_schema: Schema
    """STRUCT of the columns of `values`."""
    key: Any = None
    key_schema: Schema | None = None
    headers: tuple[tuple[str, Any], ...] = ()
    """A `RowNumbers` as value: a number for each row."""
    header_schemas: tuple[Schema | None, ...] = ()
    timestamp_ms: int = 0

    @property
    def count(self) -> int:
        """How many rows it has."""
        rows: int = self.values.num_rows
        return rows

    def part(self, start: int, count: int) -> "SinkBatch":
        """`count` rows from row `start` on."""
        return SinkBatch(
            *(self.topic, self.partition, self.offset + start, self.values.slice(start, count)),
            *(self.value_schema, self.key, self.key_schema),
            *(row_headers(self.headers, start, start + count), self.header_schemas),
            self.timestamp_ms,
        )


def row_headers(
    headers: tuple[tuple[str, Any], ...], start: int, end: int
) -> tuple[tuple[str, Any], ...]:
    """Headers of the rows from `start` to `end`."""
    return tuple(
        [
            (name, RowNumbers(one.values[start:end]) if isinstance(one, RowNumbers) else one)
            for name, one in headers
        ]
    )
