"""How far a sink task is behind, by what its consumer has been told: nobody is asked for it."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from headgate.ports import TopicPartition


@runtime_checkable
class KnowsEnds(Protocol):
    """What a `Consumer` has too whose log would have to be asked for ends over a network."""

    def known_ends(self) -> Mapping[TopicPartition, int]:
        """Ends of its partitions, as it was told last."""
        ...

    def known_positions(self) -> Mapping[TopicPartition, int]:
        """Positions at which partitions were read to their ends, the last of each."""
        ...


def partition_lag(
    end: int | None,
    committed: int | None,
    position: int | None,
    pending: int | None,
    read_to: int | None,
) -> int | None:
    """Records of a partition that no commit covers; None: it is not known.

    Args:
        end: of the partition.
        committed: by this run.
        position: behind what this run has consumed; None: nothing.
        pending: how many consumed records no commit covers; None: it is not known.
        read_to: the position at which the partition was read to its end.
    """
    if end is None:
        return None
    if committed is not None:
        # Behind the last record there may be markers of transactions, which nobody commits.
        covered = committed if pending or pending is None else max(committed, read_to or 0)
        return max(0, end - covered)
    if position is None:
        position = read_to
    if position is None or pending is None:
        return None
    return pending + max(0, end - position)
