"""Producers and consumers on the log in memory."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, assert_never

from headgate.connector.sink_names import SinkTopics, topics_now
from headgate.log.value_columns import records_of
from headgate.membership.consumer import (
    ConsumerMember,
    ConsumerOutput,
    JoinRefused,
    PartitionsAssigned,
    PartitionsRevoked,
    SendRequest,
)
from headgate.ports import (
    Ack,
    ConsumerRecord,
    FencedError,
    Group,
    MembershipEndedError,
    ProducerRecord,
    RebalancedError,
    RecordMetadata,
    TopicPartition,
    TransportError,
    ValueColumn,
)
from headgate.simulation.memory import MemoryCluster
from headgate.task.partitioner import Partitioner

Membership: TypeAlias = tuple[str, str, int]
"""Group, member id, generation."""
_Callback: TypeAlias = Callable[[Sequence[TopicPartition]], None]


class MemoryProducer:
    """A task's producer. Without a transactional id it has no epoch and cannot be shut out."""

    def __init__(
        self,
        cluster: MemoryCluster,
        client_id: str,
        transactional_id: str | None,
        membership: Membership | None,
    ) -> None:
        self._cluster = cluster
        self._client_id = client_id
        self._transactional_id = transactional_id
        self._membership = membership
        self._partitioner = Partitioner()
        self._epoch: int | None = None
        self._open: list[tuple[TopicPartition, ProducerRecord]] = []
        self._sent = 0
        self._acked = 0
        self._keeps_places = False
        self._places: list[tuple[int, RecordMetadata]] = []

    def connect(self) -> None:
        """Nothing to wait for."""

    def init(self) -> None:
        if self._transactional_id is None:
            raise ValueError(f"producer {self._client_id} has no transactional id to initialise")
        self.abort()
        if self._membership is not None:
            group, member_id, generation = self._membership
            self._cluster.tick()
            # Without this a zombie that wakes up would shut out its rightful successor.
            if not self._cluster.coordinator.is_member(group, member_id):
                raise MembershipEndedError(
                    f"{member_id} is no longer a member of {group} (the producer was made in "
                    f"generation {generation}): {self._transactional_id} was left alone"
                )
        self._epoch = self._cluster.next_epoch(self._transactional_id)

    def send(self, records: Sequence[ProducerRecord]) -> None:
        self._open += self._partitioner.places(records, self._cluster.partitions)
        self._sent += len(records)

    def send_values(self, column: ValueColumn) -> None:
        self.send(records_of(column))

    def acks(self) -> Sequence[Ack]:
        if self._transactional_id is not None:
            raise ValueError(
                f"{self._transactional_id} is transactional: its records are committed"
            )
        if self._acked == self._sent:
            return []
        self._append()
        ack = Ack(self._acked, self._sent - 1)
        self._acked = self._sent
        return [ack]

    def commit(self, offsets: Sequence[tuple[bytes, bytes | None]]) -> None:
        if self._transactional_id is None:
            raise ValueError(f"producer {self._client_id} has no transactional id to commit under")
        epoch = self._cluster.producers.get(self._transactional_id)
        if self._epoch is None or epoch != self._epoch:
            self.abort()
            raise FencedError(
                f"{self._transactional_id} has epoch {epoch}, this producer has {self._epoch} "
                f"({self._client_id}): it was shut out, or never initialised"
            )
        self._append()
        self._cluster.offsets.append(offsets, self._cluster.now_ms())
        self._acked = self._sent

    def begin_commit(
        self, offsets: Sequence[tuple[bytes, bytes | None]]
    ) -> Callable[[], None] | None:
        self.commit(offsets)
        return None

    def _append(self) -> None:
        found = self._cluster.append(self._open)
        if self._keeps_places:
            self._places += enumerate(found, self._sent - len(found))
        self._open.clear()

    def keep_places(self) -> None:
        self._keeps_places = True

    def places(self) -> Sequence[tuple[int, RecordMetadata]]:
        found, self._places = self._places, []
        return found

    def abort(self) -> None:
        self._open.clear()
        self._acked = self._sent

    def close(self) -> None:
        self.abort()


def _ignore(_partitions: Sequence[TopicPartition]) -> None:
    return


class MemoryConsumer:
    """A member of a consumer group. Partitions without a committed offset are read from their
    beginning."""

    def __init__(
        self,
        cluster: MemoryCluster,
        way: Group,
        group: str,
        topics: SinkTopics,
        client_id: str,
    ) -> None:
        self._cluster = cluster
        self._way = way
        self._topics = topics
        named = topics_now(topics, lambda: ())
        self._member = ConsumerMember(group, client_id, named, cluster.consumer_settings)
        self._assigned: _Callback = _ignore
        self._revoked: _Callback = _ignore
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    def poll(self, limit: int, timeout_ms: int) -> Sequence[ConsumerRecord]:
        cluster = self._cluster
        end_ms = cluster.now_ms() + timeout_ms
        while True:
            responses = self._way.receive()
            self._member.subscribe(topics_now(self._topics, lambda: cluster.topics))
            counts = {topic: len(logs) for topic, logs in cluster.topics.items()}
            self._perform(self._member.advance(cluster.now_ms(), responses, counts))
            records = self._fetch(limit)
            if records or (not responses and cluster.now_ms() >= end_ms):
                return records
            if responses:
                continue
            if cluster.while_waiting is None:
                return []
            cluster.while_waiting()

    @property
    def membership(self) -> Membership:
        member = self._member
        return member.group, member.member_id, member.generation

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._member.held)

    def on_rebalance(self, assigned: _Callback, revoked: _Callback) -> None:
        self._assigned = assigned
        self._revoked = revoked

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        member = self._member
        self._cluster.tick()
        error = self._cluster.coordinator.check(member.group, member.member_id, member.generation)
        if error is not None:
            raise RebalancedError(
                f"offsets of group {member.group} were not committed: {error.value} for member "
                f"{member.member_id} in generation {member.generation}"
            )
        self._cluster.set_committed(member.group, offsets)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def close(self) -> None:
        """Leave the group. Offsets may still be committed inside `revoked`."""
        self._perform(self._member.leave())

    def _perform(self, outputs: Sequence[ConsumerOutput]) -> None:
        for output in outputs:
            match output:
                case SendRequest(request):
                    self._way.send(request)
                case PartitionsRevoked(partitions):
                    self._revoked(partitions)
                    self._positions.clear()
                    self._paused.clear()
                case PartitionsAssigned(partitions):
                    committed = self._cluster.committed.get(self._member.group, {})
                    self._positions = {place: committed.get(place, 0) for place in partitions}
                    self._assigned(partitions)
                case JoinRefused(error):
                    raise TransportError(
                        f"group {self._member.group} cannot be joined: {error.value}; its members "
                        "are no sink tasks of this cluster, name another group"
                    )
                case _:
                    assert_never(output)

    def _fetch(self, limit: int) -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        for place in [place for place in self._positions if place not in self._paused]:
            topic, partition = place
            start = self._positions[place]
            log = self._cluster.topics[topic][partition]
            taken = log[start : start + limit - len(records)]
            if not taken:
                continue
            records += taken
            # The next poll begins with the others.
            self._positions.pop(place)
            self._positions[place] = taken[-1].offset + 1
            if len(records) >= limit:
                break
        return records
