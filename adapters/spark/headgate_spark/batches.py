"""What is in the next batch, and into how many slices it is cut."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.ports import TopicPartition

SLICE_MIN = 20_000
"""Below this many offsets a slice costs more to start than it saves."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `start` <= offset < `end` of one topic-partition; never empty."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start


def next_batch(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int
) -> list[Range]:
    """The range of each partition that has records, `limit` offsets together at most.

    Shares are even, so no partition waits for another; what one does not need the others get.
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
    """Each range in slices, so that about `cores` of them, and no tiny ones, run at a time."""
    total = sum(one.count for one in ranges)
    size = max(-(-total // max(cores, 1)), SLICE_MIN)
    return [_cut_one(one, max(one.count // size, 1)) for one in ranges]


def _cut_one(whole: Range, parts: int) -> list[Range]:
    bounds = [whole.start + whole.count * n // parts for n in range(parts + 1)]
    return [Range(whole.topic, whole.partition, bounds[n], bounds[n + 1]) for n in range(parts)]
