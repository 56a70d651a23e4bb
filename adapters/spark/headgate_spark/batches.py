"""The contents of the next batch, and its division into slices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.ports import TopicPartition

SLICE_MIN = 20_000
"""Least offsets of a slice. A smaller slice costs more to start than it saves."""
FIRST = 200_000
"""Most offsets of a batch until it is known how long one takes."""
WANTED_S = 3.0
"""How long a batch may take, in seconds. A longer one would gain little, and a stop has to wait for
it."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `start` <= offset < `end` of one topic-partition. Never empty."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start


class BatchSize:
    """How many offsets the next batch may have.

    A batch costs a Spark job, and a Python process for each slice, whatever its size. So if many
    records wait, it has as many as are written in `WANTED_S`. That also bounds the memory of a
    slice: an executor holds what it parses in that time.

    Args:
        limit: the most that the user allows.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.now = min(limit, FIRST)

    def took(self, offsets: int, seconds: float) -> None:
        """Note how long a batch took. A batch that was not full says little."""
        if offsets < self.now:
            return
        wanted = int(offsets * WANTED_S / seconds) if seconds > 0 else self._limit
        self.now = min(max(min(wanted, 2 * self.now), FIRST), self._limit)


def next_batch(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int
) -> list[Range]:
    """Return the range of each partition that has records, together at most `limit` offsets.

    Shares are even, so no partition waits for another. Others get what a partition does not need.
    Sorted by topic and partition.
    """
    lags = {
        partition: ends[partition] - start
        for partition, start in sorted(starts.items())
        if ends.get(partition, 0) > start
    }
    taken: dict[TopicPartition, int] = {}
    left = limit
    for waiting, partition in enumerate(sorted(lags, key=lambda one: (lags[one], one))):
        share = max(left // (len(lags) - waiting), 1) if left else 0
        taken[partition] = min(lags[partition], share)
        left -= taken[partition]
    return [
        Range(*partition, starts[partition], starts[partition] + taken[partition])
        for partition in lags
        if taken[partition]
    ]


def cut(ranges: Sequence[Range], cores: int) -> list[list[Range]]:
    """Return each range in slices, so that about `cores` of them, and no tiny ones, run at a
    time."""
    total = sum(one.count for one in ranges)
    size = max(-(-total // max(cores, 1)), SLICE_MIN)
    return [_cut_one(one, max(one.count // size, 1)) for one in ranges]


def _cut_one(whole: Range, parts: int) -> list[Range]:
    bounds = [whole.start + whole.count * n // parts for n in range(parts + 1)]
    return [Range(whole.topic, whole.partition, bounds[n], bounds[n + 1]) for n in range(parts)]
