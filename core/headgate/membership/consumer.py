"""The consumer group member machine: a sink task's membership in its consumer group.

::

    OUT --advance--> JOINING --joined--> SYNCING --synced--> STABLE
                        ^                                      |
                        +------- rebalance, or thrown out -----+

Rebalances are eager: a member gives all its partitions back before it joins again, so that no
partition has two readers. Source: Kafka's classic consumer. Differs: only `advance` sends
heartbeats, so a member that is stuck between two polls loses its partitions after the session
timeout. There is no second limit (`max.poll.interval.ms`).

A transport calls `advance` in every poll, with the responses that have arrived, and performs the
outputs in order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias, assert_never

from headgate.assignment.partitions import (
    CONSUMER_PROTOCOL,
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    TopicPartition,
    assign_partitions,
    decode_partitions,
    decode_subscription,
    encode_partitions,
    encode_subscription,
)
from headgate.membership.messages import (
    GroupError,
    GroupRequest,
    GroupResponse,
    Heartbeat,
    HeartbeatAnswered,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    SyncedGroup,
    SyncGroup,
)


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    session_timeout_ms: int = 10_000
    """A member that does not poll for this long loses its partitions to the others."""
    heartbeat_interval_ms: int = 500


@dataclass(frozen=True, slots=True)
class SendRequest:
    request: GroupRequest


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    """Commit the offsets of these partitions now. Other members may have them once the requests
    after this output are sent."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    """Read these partitions from their committed offsets on."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class JoinRefused:
    """A sink task cannot join this group. Trying again does not help."""

    error: GroupError


ConsumerOutput: TypeAlias = SendRequest | PartitionsRevoked | PartitionsAssigned | JoinRefused


class _State(Enum):
    OUT = auto()
    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()


class ConsumerMember:
    """One member of one consumer group."""

    def __init__(
        self, group: str, client_id: str, topics: Sequence[str], settings: ConsumerSettings
    ) -> None:
        self.group = group
        self.member_id = ""
        self.generation = -1
        """Generation in which the partitions were assigned; offsets are committed under it."""
        self.held: tuple[TopicPartition, ...] = ()
        self._client_id = client_id
        self._topics = tuple(topics)
        self._joined_for: tuple[str, ...] = ()
        """Topics in the member's last join request."""
        self._settings = settings
        self._state = _State.OUT
        self._pending: GroupRequest | None = None
        self._sent_ms = 0
        self._sequence = 0
        """Sequence number of the last join."""
        self._owned: tuple[TopicPartition, ...] = ()
        self._counts: Mapping[str, int] = {}
        """As leader: the partition counts by topic that it last assigned for."""
        self._leads = False

    def subscribe(self, topics: Sequence[str]) -> None:
        """Change the topics to read. The member joins again if the group knows other topics of it.
        Source: ConsumerCoordinator.rejoinNeededOrPending."""
        self._topics = tuple(topics)

    def advance(
        self, now_ms: int, responses: Sequence[GroupResponse], partitions: Mapping[str, int]
    ) -> list[ConsumerOutput]:
        """Return what to do now, to be performed in order.

        Args:
            now_ms: Monotonic time.
            responses: Responses that arrived since the last call.
            partitions: Number of partitions of each topic now. A missing topic has none yet.
        """
        out: list[ConsumerOutput] = []
        if self._state is _State.OUT:
            out += self._join(now_ms)
        for response in responses:
            match response:
                case JoinedGroup():
                    out += self._on_joined(now_ms, response, partitions)
                case SyncedGroup():
                    out += self._on_synced(now_ms, response)
                case HeartbeatAnswered():
                    out += self._on_heartbeat(now_ms, response)
                case _:
                    assert_never(response)
        return out + self._on_time(now_ms, partitions)

    def leave(self) -> list[ConsumerOutput]:
        """Give all partitions back and leave. The member may join again by `advance`."""
        out: list[ConsumerOutput] = self._revoke()
        if self.member_id:
            out.append(SendRequest(LeaveGroup(self.group, self.member_id)))
        self._state, self._pending, self.member_id = _State.OUT, None, ""
        self._owned = ()
        return out

    def _on_time(self, now_ms: int, partitions: Mapping[str, int]) -> list[ConsumerOutput]:
        if self._state is _State.STABLE:
            others = self._topics != self._joined_for
            if others or (self._leads and self._counts != self._count(partitions)):
                return self._rejoin(now_ms)
        if now_ms - self._sent_ms < self._settings.heartbeat_interval_ms:
            return []
        if self._state is _State.STABLE:
            return self._send(now_ms, Heartbeat(self.group, self.member_id, self.generation))
        # An answer that does not come was lost, or waits for other members. Repeating the request
        # does no harm, and keeps the session alive.
        return self._send(now_ms, self._pending) if self._pending is not None else []

    def _on_joined(
        self, now_ms: int, response: JoinedGroup, partitions: Mapping[str, int]
    ) -> list[ConsumerOutput]:
        if self._state is not _State.JOINING or response.sequence != self._sequence:
            return []
        if response.error is GroupError.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return self._join(now_ms)
        if response.error is GroupError.INCONSISTENT_GROUP_PROTOCOL:
            return [JoinRefused(response.error)]
        if response.error is GroupError.UNKNOWN_MEMBER_ID:
            return self._rejoin(now_ms, unknown=True)
        if response.error is not None:
            return []
        generation = response.generation
        self.generation = generation
        self._leads = response.leader == self.member_id
        assignments: dict[str, bytes] = {}
        if self._leads:
            self._counts = self._count(partitions)
            members = {m.member_id: decode_subscription(m.metadata) for m in response.members}
            shares = assign_partitions(members, partitions)
            assignments = {member: encode_partitions(share) for member, share in shares.items()}
        self._state = _State.SYNCING
        self._pending = SyncGroup(self.group, self.member_id, generation, assignments)
        return self._send(now_ms, self._pending)

    def _on_synced(self, now_ms: int, response: SyncedGroup) -> list[ConsumerOutput]:
        if self._state is not _State.SYNCING or response.generation != self.generation:
            return []
        if response.error is not None:
            return self._rejoin(now_ms, response.error is GroupError.UNKNOWN_MEMBER_ID)
        self._state, self._pending = _State.STABLE, None
        self.held = self._owned = decode_partitions(response.assignment)
        return [PartitionsAssigned(self.held)]

    def _on_heartbeat(self, now_ms: int, response: HeartbeatAnswered) -> list[ConsumerOutput]:
        stale = response.generation != self.generation
        if self._state is not _State.STABLE or stale or response.error is None:
            return []
        return self._rejoin(now_ms, response.error is GroupError.UNKNOWN_MEMBER_ID)

    def _rejoin(self, now_ms: int, unknown: bool = False) -> list[ConsumerOutput]:
        out = self._revoke()
        if unknown:
            self.member_id = ""
        return out + self._join(now_ms)

    def _revoke(self) -> list[ConsumerOutput]:
        held, self.held = self.held, ()
        return [PartitionsRevoked(held)] if held else []

    def _join(self, now_ms: int) -> list[ConsumerOutput]:
        self._state = _State.JOINING
        self._sequence += 1
        self._joined_for = self._topics
        metadata = encode_subscription(Subscription(self._topics, self._owned))
        self._pending = JoinGroup(
            group=self.group,
            member_id=self.member_id,
            client_id=self._client_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=((CONSUMER_PROTOCOL, metadata),),
            session_timeout_ms=self._settings.session_timeout_ms,
            # A live member polls, and therefore rejoins, within its session timeout.
            rebalance_timeout_ms=self._settings.session_timeout_ms,
            sequence=self._sequence,
        )
        return self._send(now_ms, self._pending)

    def _send(self, now_ms: int, request: GroupRequest) -> list[ConsumerOutput]:
        self._sent_ms = now_ms
        return [SendRequest(request)]

    def _count(self, partitions: Mapping[str, int]) -> Mapping[str, int]:
        return {topic: partitions.get(topic, 0) for topic in self._topics}
