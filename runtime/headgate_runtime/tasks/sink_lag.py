"""The lag of a sink task, computed from what its consumer was told. Nothing is asked over the
network."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from headgate.ports import TopicPartition


@runtime_checkable
class KnowsEnds(Protocol):
    """Extra methods of a `Consumer` whose log would have to be asked for end offsets over a
    network."""

    def known_ends(self) -> Mapping[TopicPartition, int]:
        """Return the end offsets of its partitions, as the consumer was told last."""
        ...

    def known_positions(self) -> Mapping[TopicPartition, int]:
        """Return the last position at which each partition was read to its end."""
        ...


def partition_lag(
    end: int | None,
    committed: int | None,
    position: int | None,
    pending: int | None,
    read_to: int | None,
) -> int | None:
    """Return the number of a partition's records that no commit covers, or None if it is not known.

    Args:
        end: end offset of the partition.
        committed: offset that this run has committed.
        position: offset after the last record that this run has consumed. None: it consumed none.
        pending: consumed records that no commit covers. None: it is not known.
        read_to: the position at which the partition was read to its end.
    """
    if end is None:
        return None
    if committed is not None:
        # After the last record there may be transaction markers, which nobody commits.
        covered = committed if pending or pending is None else max(committed, read_to or 0)
        return max(0, end - covered)
    if position is None:
        position = read_to
    if position is None or pending is None:
        return None
    return pending + max(0, end - position)
