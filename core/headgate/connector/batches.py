"""Batches: rows that travel as one Arrow RecordBatch, and their per-row offsets and headers.

The core does not import Arrow: a RecordBatch is any object with `num_rows`. Its columns are the
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
    """The source offset after each row of a batch, so that a source can continue inside the batch.

    Args:
        numbers: Members of the offset that differ from row to row, such as a position. A `range`
            costs nothing per row.
        shared: Members that are the same for all rows.

    Raises:
        ValueError: The members have different numbers of rows.
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
    """Rows of one source partition for one topic, yielded by `poll` instead of one `SourceRecord`
    per row. Everything that is not given per row is the same for all rows."""

    source_partition: Mapping[str, Any]
    offsets: RowOffsets
    topic: str
    values: RecordBatch
    value_schema: Schema
    """STRUCT of the columns of `values`."""
    key: Any = None
    headers: tuple[tuple[str, Any], ...] = ()
    """Headers of all rows; a `RowNumbers` as value has a number for each row."""
    partition: int | None = None
    timestamp_ms: int | None = None
    key_schema: Schema | None = None

    @property
    def count(self) -> int:
        """Number of rows."""
        rows: int = self.values.num_rows
        return rows

    @property
    def source_offset(self) -> Mapping[str, Any]:
        """Source offset after the last row."""
        return self.offsets[-1]

    def part(self, start: int, count: int) -> "SourceBatch":
        """Return `count` rows from row `start` on."""
        end = start + count
        return SourceBatch(
            *(self.source_partition, self.offsets[start:end], self.topic),
            *(self.values.slice(start, count), self.value_schema, self.key),
            *(row_headers(self.headers, start, end), self.partition),
            *(self.timestamp_ms, self.key_schema),
        )


@dataclass(slots=True)
class SinkBatch:
    """Records of one topic-partition with consecutive offsets, passed to `put_batch` instead of one
    `SinkRecord` per row. Everything that is not given per row is the same for all rows."""

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
    """Headers of all rows; a `RowNumbers` as value has a number for each row."""
    header_schemas: tuple[Schema | None, ...] = ()
    timestamp_ms: int = 0

    @property
    def count(self) -> int:
        """Number of rows."""
        rows: int = self.values.num_rows
        return rows

    def part(self, start: int, count: int) -> "SinkBatch":
        """Return `count` rows from row `start` on."""
        return SinkBatch(
            *(self.topic, self.partition, self.offset + start, self.values.slice(start, count)),
            *(self.value_schema, self.key, self.key_schema),
            *(row_headers(self.headers, start, start + count), self.header_schemas),
            self.timestamp_ms,
        )


def row_headers(
    headers: tuple[tuple[str, Any], ...], start: int, end: int
) -> tuple[tuple[str, Any], ...]:
    """Return the headers of the rows from `start` up to `end`."""
    return tuple(
        [
            (name, RowNumbers(one.values[start:end]) if isinstance(one, RowNumbers) else one)
            for name, one in headers
        ]
    )
