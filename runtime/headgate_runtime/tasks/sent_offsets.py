"""Source offsets of what a source task has sent and not committed yet."""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import TypeAlias

from headgate.connector.api import Partition, SkippedRecord, SourceRecord
from headgate.connector.batches import SourceBatch
from headgate.task.acks import AckTracker
from headgate.topics.offsets import encode_key

Source: TypeAlias = SourceRecord | SkippedRecord | SourceBatch
"""What was sent was made of it; a skipped record has become a dead letter."""


class SentOffsets:
    """Offsets of the batch that was polled last, as far as it is sent, and of those before it."""

    def __init__(self, connector: str, *, exactly_once: bool) -> None:
        self._connector = connector
        self._exactly_once = exactly_once
        self.sources: list[Source] = []
        """What each item of the batch was made of."""
        self.with_batches = False
        """Some items are batches themselves."""
        self._passed: deque[tuple[int, Partition, Partition]] = deque()
        """Skipped: how many sendable items came before, source partition and offset."""
        self.sent = 0
        """Items of the batch that are sent."""
        self.pending: dict[bytes, Partition] = {}
        """Exactly-once: what the transaction is to commit."""
        self.tracker: AckTracker[bytes, Partition] = AckTracker()

    def begin_batch(self) -> None:
        self.sources, self.sent, self.with_batches = [], 0, False

    def add_batch(self, source: SourceBatch) -> None:
        """An item that is a batch of its own was made of it."""
        self.sources.append(source)
        self.with_batches = True

    def pass_over(self, partition: Partition, offset: Partition) -> None:
        """An offset without a sendable item, behind those that are there by now."""
        self._passed.append((len(self.sources), partition, offset))

    def note(self, end: int) -> None:
        """Items up to `end` are sent: remember their offsets and those passed over, in order."""
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
        """Where records of another source partition, or a batch, come behind that at `start`: one
        record after the other usually is of the same."""
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
