"""Source offsets of records that a source task has sent and not committed yet."""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import TypeAlias

from headgate.connector.api import Partition, SkippedRecord, SourceRecord
from headgate.connector.batches import SourceBatch
from headgate.task.acks import AckTracker
from headgate.topics.offsets import encode_key

Source: TypeAlias = SourceRecord | SkippedRecord | SourceBatch
"""An item of which a sent one was made. A skipped record has become a dead letter."""


class SentOffsets:
    """Offsets of the last polled batch, as far as it is sent, and of earlier batches."""

    def __init__(self, connector: str, *, exactly_once: bool) -> None:
        self._connector = connector
        self._exactly_once = exactly_once
        self.sources: list[Source] = []
        """The source of each item of the batch."""
        self.with_batches = False
        """Whether some items are batches themselves."""
        self._passed: deque[tuple[int, Partition, Partition]] = deque()
        """Skipped records: how many sendable items came before, source partition and offset."""
        self.sent = 0
        """Number of the batch's items that are sent."""
        self.pending: dict[bytes, Partition] = {}
        """Offsets that the transaction is to commit, in exactly-once mode."""
        self.tracker: AckTracker[bytes, Partition] = AckTracker()

    def begin_batch(self) -> None:
        self.sources, self.sent, self.with_batches = [], 0, False

    def add_batch(self, source: SourceBatch) -> None:
        """Note the source of an item that is a batch itself."""
        self.sources.append(source)
        self.with_batches = True

    def pass_over(self, partition: Partition, offset: Partition) -> None:
        """Note an offset without a sendable item, after the present items."""
        self._passed.append((len(self.sources), partition, offset))

    def note(self, end: int) -> None:
        """Mark items before `end` as sent. Their offsets and those passed over are noted in
        order."""
        start = self.sent
        while self._passed and self._passed[0][0] <= end:
            position, partition, offset = self._passed.popleft()
            self._note_sent(start, position)
            start = max(start, position)
            key = encode_key(self._connector, partition)
            if self._exactly_once:
                self.pending[key] = offset
            else:
                self.tracker.pass_over(key, offset)
        self._note_sent(start, end)
        self.sent = end

    def _note_sent(self, start: int, end: int) -> None:
        sources = self.sources
        while start < end:
            partition = sources[start].source_partition
            if self.with_batches and type(sources[start]) is SourceBatch:
                stop = start + 1
            else:
                stop = self._end_of_run(start, end)
            key = encode_key(self._connector, partition)
            if self._exactly_once:
                self.pending[key] = sources[stop - 1].source_offset
            else:
                self.tracker.submit(key, _offsets(sources[start:stop]))
            start = stop

    def _end_of_run(self, start: int, end: int) -> int:
        """Return the end of the run of records from `start` that share a source partition. It ends
        at a batch, too. Consecutive records usually have the same partition."""
        sources, with_batches = self.sources, self.with_batches
        partition, stop = sources[start].source_partition, start
        for other in islice(sources, start, end):
            if other.source_partition is not partition and other.source_partition != partition:
                break
            if with_batches and type(other) is SourceBatch:
                break
            stop += 1
        return stop


def _offsets(sources: Sequence[Source]) -> Sequence[Partition]:
    first = sources[0]
    if isinstance(first, SourceBatch):
        return first.offsets
    return [item.source_offset for item in sources]
