"""What a study's worker knows of its cluster beyond `World`."""

from typing import Protocol

from headgate.membership.messages import GroupRequest
from headgate.simulation.study.record import Record
from headgate.simulation.world import World


class StudyParts(World, Protocol):
    """The cluster of a study, as its workers see it."""

    record: Record

    def config_grew(self, end: int) -> None:
        """Have the broker tell all workers."""
        ...

    def statuses_grew(self) -> None: ...

    def coordinated(self, request: GroupRequest | None) -> None:
        """Note who has left the group, and have what the coordinator answered sent."""
        ...
