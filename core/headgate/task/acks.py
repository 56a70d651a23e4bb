"""Tracker of acknowledged records: which source offsets may be committed when records are sent
without a transaction.

The log acknowledges records in any order. For each source partition, the offset of the last record
before the first unacknowledged one may be committed. Every record before it is in the log, so a
restart from there loses nothing. Partitions do not wait for each other.

Source: Connect's SubmittedRecords (KAFKA-12226). Differs: records are tracked in runs of one source
partition, so a batch that is acknowledged as a whole costs nothing per record. The offset of a
record that `errors.tolerance` let go is committed too; Connect leaves that to the next record.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

P = TypeVar("P")
O = TypeVar("O")  # noqa: E741


class _Run(Generic[O]):
    """Consecutive records of one source partition; `first` is the number of the first record."""

    __slots__ = ("done", "first", "offsets", "told")

    def __init__(self, first: int, offsets: Sequence[O]) -> None:
        self.first = first
        self.offsets = offsets
        self.done = 0
        """Number of records at the front that are acknowledged."""
        self.told = 0
        """Value of `done` when `take` was last called."""


class AckTracker(Generic[P, O]):
    """Tracks records by number. Numbers count from 0 in the order of `submit`, as in
    `Producer.send`."""

    def __init__(self) -> None:
        self._next = 0
        self._starts: list[int] = []
        self._ends: list[int] = []
        """Acknowledged numbers, as disjoint rising intervals [start, end)."""
        self._queues: dict[P, deque[_Run[O]]] = {}
        self._ready: dict[P, O] = {}

    @property
    def outstanding(self) -> int:
        """Number of records that wait for their own acknowledgement or for that of an earlier
        record."""
        return sum(len(run.offsets) - run.done for queue in self._queues.values() for run in queue)

    def submit(self, partition: P, offsets: Sequence[O]) -> None:
        """Note that records of one source partition were sent; `offsets` are their offsets, in
        order."""
        if offsets:
            self._queues.setdefault(partition, deque()).append(_Run(self._next, offsets))
            self._next += len(offsets)

    def pass_over(self, partition: P, offset: O) -> None:
        """Note a record that is not sent: its offset may be committed once those before it may."""
        queue = self._queues.get(partition)
        if not queue:
            self._ready[partition] = offset
            return
        run: _Run[O] = _Run(-1, (offset,))
        run.done = 1
        queue.append(run)

    def acknowledge(self, first: int, last: int) -> None:
        """Note that records `first` to `last` are in the log, or are given up for good.

        Raises:
            ValueError: They were never submitted.
        """
        if not 0 <= first <= last < self._next:
            raise ValueError(f"records {first} to {last}, submitted were 0 to {self._next - 1}")
        start, end = first, last + 1
        low = bisect_right(self._ends, start - 1)  # the first interval that touches or follows
        high = bisect_right(self._starts, end)
        if low < high:
            start = min(start, self._starts[low])
            end = max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def take(self) -> Mapping[P, O]:
        """Return the offsets that may be committed, for partitions where they changed since the
        last call."""
        for partition, queue in self._queues.items():
            while queue and self._advance(queue[0]):
                self._ready[partition] = queue.popleft().offsets[-1]
            if queue and queue[0].done > queue[0].told:
                queue[0].told = queue[0].done
                self._ready[partition] = queue[0].offsets[queue[0].done - 1]
        self._queues = {partition: queue for partition, queue in self._queues.items() if queue}
        ready, self._ready = self._ready, {}
        return ready

    def put_back(self, offsets: Mapping[P, O]) -> None:
        """Take back offsets that could not be written. `take` returns them again unless it has
        later ones."""
        self._ready = {**offsets, **self._ready}

    def _advance(self, run: _Run[O]) -> bool:
        """Note how much of the front of `run` is acknowledged; return whether all of it is."""
        if run.first >= 0:
            at = bisect_right(self._starts, run.first) - 1
            if at >= 0 and self._ends[at] > run.first:
                run.done = min(self._ends[at] - run.first, len(run.offsets))
        return run.done == len(run.offsets)
