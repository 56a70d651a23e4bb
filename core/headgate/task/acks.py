"""Which source offsets may be committed when records are sent without a transaction.

Records are acknowledged by the log in any order. What may be committed of a source partition is the
offset of the last record of the leading run of acknowledged ones: everything before it is in the
log, so a restart from there loses nothing. Partitions do not wait for each other.

Source: Connect's SubmittedRecords (KAFKA-12226). Differs: records are tracked in runs of one source
partition, so a batch that is acknowledged whole costs nothing per record; a record that the
tolerance let go is passed over, where Connect leaves its offset to the next record.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

P = TypeVar("P")
O = TypeVar("O")  # noqa: E741


class _Run(Generic[O]):
    """Records sent one after the other, all of one partition; `first` is the number of the
    first."""

    __slots__ = ("done", "first", "offsets", "told")

    def __init__(self, first: int, offsets: Sequence[O]) -> None:
        self.first = first
        self.offsets = offsets
        self.done = 0
        """How many of them, from the front, are acknowledged."""
        self.told = 0
        """`done` when `take` last looked."""


class AckTracker(Generic[P, O]):
    """Numbers records as `Producer.send` does: from 0, in the order of `submit`."""

    def __init__(self) -> None:
        self._next = 0
        self._starts: list[int] = []
        self._ends: list[int] = []
        """Acknowledged numbers, as disjoint rising intervals [start, end)."""
        self._queues: dict[P, deque[_Run[O]]] = {}
        self._ready: dict[P, O] = {}

    @property
    def outstanding(self) -> int:
        """Records that wait for an acknowledgement, their own or an earlier one's."""
        return sum(len(run.offsets) - run.done for queue in self._queues.values() for run in queue)

    def submit(self, partition: P, offsets: Sequence[O]) -> None:
        """Records of one source partition were sent; `offsets` are theirs, in that order."""
        if offsets:
            self._queues.setdefault(partition, deque()).append(_Run(self._next, offsets))
            self._next += len(offsets)

    def pass_over(self, partition: P, offset: O) -> None:
        """A record that is not sent: its offset is reached once those before it are."""
        queue = self._queues.get(partition)
        if not queue:
            self._ready[partition] = offset
            return
        run: _Run[O] = _Run(-1, (offset,))
        run.done = 1
        queue.append(run)

    def acknowledge(self, first: int, last: int) -> None:
        """Records `first` to `last` are in the log, or are given up for good.

        Raises:
            ValueError: they were never submitted.
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
        """The committable offsets that changed since the last call."""
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
        """They could not be written: offer them again, unless later ones are there already."""
        self._ready = {**offsets, **self._ready}

    def _advance(self, run: _Run[O]) -> bool:
        """Whether all of `run` is acknowledged; notes how much of its front is."""
        if run.first >= 0:
            at = bisect_right(self._starts, run.first) - 1
            if at >= 0 and self._ends[at] > run.first:
                run.done = min(self._ends[at] - run.first, len(run.offsets))
        return run.done == len(run.offsets)
