"""Figures of a task's body beside its records: bytes, and the time that commits and batches take.

They cost a look at the clock for each commit and each batch, and the lengths of key and value for
each record.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from headgate.ports import (
    Ack,
    BatchProducer,
    ConsumerRecord,
    LogBatch,
    Producer,
    ProducerRecord,
    RecordMetadata,
    ValueColumn,
)
from headgate.recent_max import RecentMax
from headgate.task.messages import CallFigures, ErrorFigures, Measured

NO_ERRORS: Final = ErrorFigures()


class Calls:
    """Figures of the calls of one method of a connector."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._count = self._records = 0
        self._seconds = 0.0
        self._most, self._longest = RecentMax(), RecentMax()

    def moved(self, records: int, seconds: float) -> None:
        """Count a call that has returned or taken so many records in this time. Calls without
        records do not count: idle tasks would report them for ever."""
        if not records:
            return
        self._count += 1
        self._records += records
        self._seconds += seconds
        now_s = time.monotonic()
        self._most.add(records, now_s)
        self._longest.add(seconds, now_s)

    def more(self, records: int) -> None:
        """Add records to a call that was counted before."""
        self._records += records

    def read(self) -> CallFigures:
        now_s = time.monotonic()
        return CallFigures(
            self._method,
            self._count,
            self._records,
            int(self._most.read(now_s)),
            round(self._seconds * 1e6),
            round(self._longest.read(now_s) * 1e6),
        )


class Meter:
    """Figures of one run of a task."""

    def __init__(self, method: str = "poll") -> None:
        """Take the name of the method that returns or takes records."""
        self.calls = Calls(method)
        self._commits = self._failed_commits = self._read = 0
        self._commit_s = self._waited_s = 0.0
        """Time of the finished commits, and of the one under way, failed tries included, in
        seconds."""
        self._bytes = self._open_bytes = 0
        """Settled bytes, and bytes sent since the last commit."""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Measure the time in this context as waiting for a commit."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._waited_s += time.monotonic() - began

    def committed(self) -> None:
        """Count a commit that has succeeded."""
        self._commits += 1
        self._commit_s += self._waited_s
        self._waited_s = 0.0

    def not_committed(self) -> None:
        """Discard the time waited: there was nothing to commit."""
        self._waited_s = 0.0

    def commit_failed(self) -> None:
        """Count a failed commit. Its time is added to that of the next successful one."""
        self._failed_commits += 1

    def sent(self, size: int) -> None:
        """Add bytes that were sent. They count once they are settled."""
        self._open_bytes += size

    def settled(self) -> None:
        """Count the bytes that were sent."""
        self._bytes += self._open_bytes
        self._open_bytes = 0

    def aborted(self) -> None:
        """Discard the bytes that were sent."""
        self._open_bytes = 0

    def given(self, records: Sequence[ConsumerRecord] | LogBatch) -> None:
        """Count records that the log has returned."""
        if isinstance(records, LogBatch):
            self._read += records.count - records.skip
            self._bytes += size_of_batch(records)
        else:
            self._read += len(records)
            self._bytes += size_of(records)

    def read(self, errors: ErrorFigures = NO_ERRORS) -> Measured:
        """Return the figures of a source task."""
        return Measured(
            self._commits,
            round(self._commit_s * 1000),
            self._bytes,
            batches=self.calls.read(),
            errors=errors,
            failed_commits=self._failed_commits,
        )

    def read_sink(self, errors: ErrorFigures, lag: int | None, partitions: int | None) -> Measured:
        found = self.read(errors)
        return replace(found, lag=lag, read=self._read, partitions=partitions)


def size_of(records: Sequence[ProducerRecord] | Sequence[ConsumerRecord]) -> int:
    """Return the bytes of the records' keys and values."""
    size = 0
    for record in records:
        if record.value is not None:
            size += len(record.value)
        if record.key is not None:
            size += len(record.key)
    return size


def size_of_batch(batch: LogBatch) -> int:
    """Return the bytes of a batch's key and rows, as the log keeps them. A part of a batch counts
    by its share of the rows."""
    whole = len(batch.data) * (batch.count - batch.skip) // max(batch.count, 1)
    return whole + len(batch.key or b"")


class MeteredProducer:
    """A `Producer` that measures its commits and records."""

    def __init__(self, inner: Producer, meter: Meter) -> None:
        self._inner = inner
        self._meter = meter

    def connect(self) -> None:
        self._inner.connect()

    def init(self) -> None:
        self._inner.init()

    def send(self, records: Sequence[ProducerRecord]) -> None:
        self._inner.send(records)
        self._meter.sent(size_of(records))

    def send_values(self, column: ValueColumn) -> None:
        self._inner.send_values(column)
        keys = len(column.key or b"") * column.count
        self._meter.sent(sum(map(len, column.values)) + keys)

    def acks(self) -> Sequence[Ack]:
        found = self._inner.acks()
        self._meter.settled()
        return found

    def commit(self, offsets: Sequence[tuple[bytes, bytes | None]]) -> None:
        with self._meter.waiting():
            self._inner.commit(offsets)
        self._done()

    def begin_commit(
        self, offsets: Sequence[tuple[bytes, bytes | None]]
    ) -> Callable[[], None] | None:
        with self._meter.waiting():
            end = self._inner.begin_commit(offsets)
        if end is None:
            self._done()
            return None

        def awaited() -> None:
            with self._meter.waiting():
                end()
            self._done()

        return awaited

    def _done(self) -> None:
        self._meter.committed()
        self._meter.settled()

    def abort(self) -> None:
        self._inner.abort()
        self._meter.aborted()

    def keep_places(self) -> None:
        self._inner.keep_places()

    def places(self) -> Sequence[tuple[int, RecordMetadata]]:
        return self._inner.places()

    def close(self) -> None:
        self._inner.close()


class MeteredBatchProducer(MeteredProducer):
    """A `MeteredProducer` for a log that keeps batches."""

    def send_batch(self, batch: LogBatch) -> None:
        assert isinstance(self._inner, BatchProducer)
        self._inner.send_batch(batch)
        self._meter.sent(size_of_batch(batch))


def metered(producer: Producer, meter: Meter) -> Producer:
    kind = MeteredBatchProducer if isinstance(producer, BatchProducer) else MeteredProducer
    return kind(producer, meter)
