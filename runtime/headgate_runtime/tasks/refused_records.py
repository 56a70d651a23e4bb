"""Where a record stood in its source that the log has refused."""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.connector.api import SkippedRecord, SourceItem, SourceRecord
from headgate.ports import Ack, ProducerRecord, TransactionOverError

Sources = Sequence[SourceRecord | SkippedRecord]


def position(record: SourceItem) -> str:
    """Where a record was read."""
    given: Sequence[Mapping[str, Any] | None] = (record.source_partition, record.source_offset)
    place, offset = (None if one is None else dict(one) for one in given)
    return f"source partition {place}, offset {offset}"


def refusal(ack: Ack, sources: Sources, first: int) -> str:
    """Why records were refused, with where the first of them was read.

    Args:
        first: the producer's number of the first of `sources`.
    """
    reason, at = ack.error or "", ack.first - first
    return f"{reason} ({position(sources[at])})" if 0 <= at < len(sources) else reason


def named(
    error: TransactionOverError, batch: Sequence[ProducerRecord], sources: Sources
) -> TransactionOverError:
    """`error`, which the log gave for `batch`, with where its record was read. If the log does not
    say which it is, the largest is named: most are refused for their size."""
    if not batch:
        return error
    if error.place is not None:
        return TransactionOverError(f"{error} ({position(sources[error.place])})")
    sizes = [len(one.key or b"") + len(one.value or b"") for one in batch]
    largest = max(range(len(batch)), key=sizes.__getitem__)
    return TransactionOverError(
        f"{error}. The largest record of the last batch has {sizes[largest]} bytes and goes to "
        f"{batch[largest].topic} ({position(sources[largest])})"
    )
