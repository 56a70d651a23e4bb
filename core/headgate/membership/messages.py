"""What members and the group coordinator say to each other. Source: Kafka's classic group protocol,
KIP-415.

The same requests serve the `connect` group of the workers and the consumer groups of sinks:
`metadata`
and `assignment` are opaque bytes to the coordinator.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class GroupError(StrEnum):
    """Why the coordinator refused. The words are those of the Kafka protocol's error table."""

    UNKNOWN_MEMBER_ID = "UNKNOWN_MEMBER_ID"
    ILLEGAL_GENERATION = "ILLEGAL_GENERATION"
    REBALANCE_IN_PROGRESS = "REBALANCE_IN_PROGRESS"
    INCONSISTENT_GROUP_PROTOCOL = "INCONSISTENT_GROUP_PROTOCOL"
    COORDINATOR_NOT_AVAILABLE = "COORDINATOR_NOT_AVAILABLE"
    MEMBER_ID_REQUIRED = "MEMBER_ID_REQUIRED"
    """Answer to a first join: join again with the member id of the answer. Source: KIP-394."""


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Asks to be in the next generation. Answered when all members have joined or the rebalance
    timed out."""

    group: str
    member_id: str
    """Empty in the first join: the answer is `MEMBER_ID_REQUIRED` with the id to join with."""
    client_id: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata), best first."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    sequence: int = 0
    """Rises with every join of this member; a repetition carries the same. So a repetition is told
    from a new join, and one that comes late is known. 0: the transport keeps the order."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinedGroup:
    group: str
    member_id: str
    generation: int
    protocol: str
    leader: str
    members: tuple[GroupMember, ...] = ()
    """In join order; only in the leader's answer."""
    error: GroupError | None = None
    sequence: int = 0
    """`JoinGroup.sequence` of the join that this answers."""


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """The leader brings everybody's assignment, the others wait for theirs."""

    group: str
    member_id: str
    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SyncedGroup:
    group: str
    member_id: str
    generation: int
    assignment: bytes = b""
    error: GroupError | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    group: str
    member_id: str
    generation: int
    sent_ms: int = 0
    """The member's own clock; comes back with the answer and means nothing to others."""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    group: str
    member_id: str
    generation: int
    error: GroupError | None = None
    sent_ms: int = 0
    """`Heartbeat.sent_ms` of the request that this answers."""


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    group: str
    member_id: str


GroupRequest: TypeAlias = JoinGroup | SyncGroup | Heartbeat | LeaveGroup
GroupResponse: TypeAlias = JoinedGroup | SyncedGroup | HeartbeatAnswered
