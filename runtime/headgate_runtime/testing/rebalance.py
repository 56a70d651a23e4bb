"""Another member of a sink's group, which joins and leaves, so that there is a rebalance."""

from collections.abc import Sequence

from headgate.simulation.memory_clients import MemoryConsumer
from headgate.simulation.memory_transport import MemoryGroup
from headgate_runtime.testing.points import Points
from headgate_runtime.testing.world import World

STAY_MS = 1_000


class OtherMember:
    """A member that joins at a point of the run, holds its share of the partitions for `STAY_MS`,
    and leaves. It reads nothing."""

    def __init__(
        self, world: World, points: Points, group: str, topics: Sequence[str], join_at: int | None
    ) -> None:
        self._world = world
        self._points = points
        self._group = group
        self._topics = topics
        self._join_at = join_at
        self._consumer: MemoryConsumer | None = None
        self._since_ms: int | None = None
        self.joined = 0

    @property
    def is_member(self) -> bool:
        return self._consumer is not None

    @property
    def is_due(self) -> bool:
        """Whether it has still to join or to leave."""
        return self._join_at is not None

    def look(self) -> None:
        if self._join_at is None:
            return
        if self._consumer is None and len(self._points.passed) >= self._join_at:
            group = MemoryGroup(self._world.log)
            self._consumer = MemoryConsumer(
                self._world.log, group, self._group, self._topics, "the-other-member"
            )
        if self._consumer is None:
            return
        self._consumer.poll(0, 0)
        if self._since_ms is None:
            if self._consumer.assignment():
                self._since_ms, self.joined = self._world.now_ms(), 1
        elif self._world.now_ms() - self._since_ms >= STAY_MS:
            self.leave()

    def leave(self) -> None:
        consumer, self._consumer, self._join_at = self._consumer, None, None
        if consumer is not None:
            consumer.close()
