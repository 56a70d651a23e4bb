"""Records that were passed to a producer as a column of values."""

from collections.abc import Iterator
from itertools import repeat

from headgate.ports import Headers, ProducerRecord, RowNumbers, ValueColumn


def records_of(column: ValueColumn, start: int = 0) -> list[ProducerRecord]:
    """Return the records of a column, from the record at `start` on."""
    topic, partition, key, time_ms = (
        column.topic,
        column.partition,
        column.key,
        column.timestamp_ms,
    )
    return [
        ProducerRecord(topic, partition, key, value, headers, time_ms)
        for value, headers in zip(column.values[start:], headers_of(column, start), strict=False)
    ]


def headers_of(column: ValueColumn, start: int = 0) -> Iterator[Headers]:
    """Return the headers of each record, from the record at `start` on. The iterator is infinite if
    no header is numbered."""
    if not any(isinstance(one, RowNumbers) for _, one in column.headers):
        return repeat(column.headers)  # type: ignore[arg-type]
    return zip(
        *(
            [(name, b"%d" % number) for number in one.values[start:]]
            if isinstance(one, RowNumbers)
            else repeat((name, one))
            for name, one in column.headers
        ),
        strict=False,
    )
