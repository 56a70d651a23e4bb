"""What a run of ``headgate up`` has moved, counted from the log.

Workers tell how many records a task has moved, and a worker that is killed takes its last word with
it. The log loses nothing: start and end offsets of topics and committed consumer offsets are exact,
as long as only records have offsets, which holds for the embedded one.
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
    """All that are in the log now."""
    new: int
    """Records that came during this run, whoever wrote them."""


@dataclass(frozen=True, slots=True)
class SinkTotal:
    connector: str
    committed: int
    """Records below its committed consumer offsets."""
    new: int
    """Records that the sink committed during this run; below 0 when its offsets were set back."""
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
    """
    Args:
        before: end offsets of the topics when the run began; none of topics that were not there.
        starts: offsets of the first records at its end.
        ends: end offsets then.
        sinks_before: connectors as they were when the run began.
        connectors: the same at its end.
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
    """Sums over partitions, topics sorted."""
    sums: dict[str, int] = {}
    for (topic, _), offset in sorted(offsets.items()):
        sums[topic] = sums.get(topic, 0) + offset
    return sums


def lines(found: Totals) -> list[str]:
    """For people."""
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
