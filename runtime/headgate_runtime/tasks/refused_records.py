"""The source position of a record that the log has refused."""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.connector.api import SourceItem
from headgate.connector.batches import SourceBatch
from headgate.ports import Ack, LogBatch, TransactionOverError, ValueColumn
from headgate_runtime.tasks.sent_offsets import Source
from headgate_runtime.tasks.source_batches import Sent

Sources = Sequence[Source]


def position(record: SourceItem | SourceBatch) -> str:
    """Return where a record was read. For a batch it is the last row."""
    return _text(record.source_partition, record.source_offset)


def _text(*given: Mapping[str, Any] | None) -> str:
    place, offset = (None if one is None else dict(one) for one in given)
    return f"source partition {place}, offset {offset}"


def _position_of(sources: Sources, row: int) -> str | None:
    """Return where the row with this number was read, or None if there is none."""
    for source in sources if row >= 0 else ():
        if not isinstance(source, SourceBatch):
            if row == 0:
                return position(source)
            row -= 1
        elif row < source.count:
            return _text(source.source_partition, source.offsets[row])
        else:
            row -= source.count
    return None


def refusal(ack: Ack, sources: Sources, first: int) -> str:
    """Return why records were refused, and where the first of them was read.

    Args:
        first: the producer's number of the first row of `sources`.
    """
    reason = ack.error or ""
    where = _position_of(sources, ack.first - first)
    return reason if where is None else f"{reason} ({where})"


def named(
    error: TransactionOverError, batch: Sequence[Sent], sources: Sources
) -> TransactionOverError:
    """Return the log's error for `batch`, with the place where its record was read. If the log does
    not say which record, the largest is named: most are refused for their size."""
    if not batch:
        return error
    if error.place is not None:
        return TransactionOverError(f"{error} ({_position_of(sources, error.place)})")
    sizes = [_size(one) for one in batch]
    largest = max(range(len(batch)), key=sizes.__getitem__)
    found, source = batch[largest], sources[largest]
    what = f"batch of {found.count} rows" if isinstance(found, LogBatch) else "record"
    where = position(source)
    if isinstance(found, ValueColumn) and isinstance(source, SourceBatch):
        lengths = list(map(len, found.values))
        where = _text(source.source_partition, source.offsets[lengths.index(max(lengths))])
    return TransactionOverError(
        f"{error}. The largest {what} of the last batch has {sizes[largest]} bytes and goes to "
        f"{found.topic} ({where})"
    )


def _size(one: Sent) -> int:
    """Return the bytes of a record, of the largest one of a column, or of a whole batch."""
    if isinstance(one, LogBatch):
        return len(one.data)
    if isinstance(one, ValueColumn):
        return len(one.key or b"") + max(map(len, one.values))
    return len(one.key or b"") + len(one.value or b"")
