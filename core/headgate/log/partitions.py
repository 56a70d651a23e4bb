"""Check of requests against the partitions that a log has."""

from collections.abc import Callable, Mapping, Sequence

from headgate.ports import TopicPartition, TransportError


def check_partitions(
    offsets: Mapping[TopicPartition, int | None],
    end_offsets: Callable[[Sequence[str]], Mapping[TopicPartition, int]],
) -> None:
    """Raise TransportError if an offset is to be set for a partition that does not exist. Deleting
    such an offset is allowed, since its topic may have been deleted."""
    asked = [place for place, offset in offsets.items() if offset is not None]
    known = end_offsets(sorted({topic for topic, _ in asked}))
    absent = [f"{topic}-{number}" for topic, number in asked if (topic, number) not in known]
    if absent:
        raise TransportError(f"the log has no partition {', '.join(absent)}")
