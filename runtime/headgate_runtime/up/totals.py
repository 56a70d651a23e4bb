"""What a run of ``headgate up`` has moved, counted from the log.

Workers report how many records a task has moved, but the last report of a killed worker is lost.
The log loses nothing. Start and end offsets of topics and committed consumer offsets are exact
counts if only records have offsets, as on the embedded log.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.ports import TopicPartition
from headgate_runtime.up.display import counted
from headgate_runtime.up.snapshot import ConnectorSnapshot

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class TopicTotal:
    topic: str
    records: int
    """Records that are in the log now."""
    new: int
    """Records that were written during this run, by any producer."""


@dataclass(frozen=True, slots=True)
class SinkTotal:
    connector: str
    committed: int
    """Records before its committed consumer offsets."""
    new: int
    """Records that the sink committed during this run. Negative if its offsets were set back."""
    lag: int


@dataclass(frozen=True, slots=True)
class Totals:
    topics: tuple[TopicTotal, ...] = ()
    sinks: tuple[SinkTotal, ...] = ()


def totals(
    before: Offsets,
    starts: Offsets,
    ends: Offsets,
    sinks_before: Iterable[ConnectorSnapshot],
    connectors: Iterable[ConnectorSnapshot],
) -> Totals:
    """Return what moved during a run.

    Args:
        before: end offsets of the topics when the run began, without topics that did not exist.
        starts: offsets of the first records at the run's end.
        ends: end offsets at the run's end.
        sinks_before: connectors at the run's begin.
        connectors: connectors at the run's end.
    """
    was, gone, now = by_topic(before), by_topic(starts), by_topic(ends)
    consumed = {one.name: sum(one.consumed.values()) for one in sinks_before}
    return Totals(
        tuple(
            TopicTotal(topic, now[topic] - gone.get(topic, 0), now[topic] - was.get(topic, 0))
            for topic in now
        ),
        tuple(
            SinkTotal(
                one.name,
                sum(one.consumed.values()),
                sum(one.consumed.values()) - consumed.get(one.name, 0),
                one.lag,
            )
            for one in connectors
            if one.kind == "sink"
        ),
    )


def by_topic(offsets: Offsets) -> dict[str, int]:
    """Return the sums over partitions, sorted by topic."""
    sums: dict[str, int] = {}
    for (topic, _), offset in sorted(offsets.items()):
        sums[topic] = sums.get(topic, 0) + offset
    return sums


def lines(found: Totals) -> list[str]:
    """Return the totals as lines for people."""
    return [
        *(
            f"  topic {one.topic}: {counted(one.records, 'record')} in the log, "
            f"{one.new:,} of them new"
            for one in found.topics
        ),
        *(
            f"  sink {one.connector}: {counted(one.committed, 'record')} committed, "
            f"{one.new:,} of them in this run, lag {one.lag:,}"
            for one in found.sinks
        ),
    ]
