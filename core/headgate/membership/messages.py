"""Messages between members and the group coordinator. Source: Kafka's classic group protocol,
KIP-415.

The same requests serve the `connect` group of the workers and the consumer groups of sinks.
`metadata` and `assignment` are opaque bytes to the coordinator.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class GroupError(StrEnum):
    """Why the coordinator refused a request. The words are those of the Kafka protocol's error
    table."""

    UNKNOWN_MEMBER_ID = "UNKNOWN_MEMBER_ID"
    ILLEGAL_GENERATION = "ILLEGAL_GENERATION"
    REBALANCE_IN_PROGRESS = "REBALANCE_IN_PROGRESS"
    INCONSISTENT_GROUP_PROTOCOL = "INCONSISTENT_GROUP_PROTOCOL"
    COORDINATOR_NOT_AVAILABLE = "COORDINATOR_NOT_AVAILABLE"
    MEMBER_ID_REQUIRED = "MEMBER_ID_REQUIRED"
    """Answer to a first join: the member must join again with the member id in the answer. Source:
    KIP-394."""


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Request to be in the next generation. It is answered when all members have joined or the
    rebalance timed out."""

    group: str
    member_id: str
    """Empty in the first join; it is answered by `MEMBER_ID_REQUIRED` with the id to join with."""
    client_id: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Offered protocols as (name, metadata), best first."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    sequence: int = 0
    """Number of this join, which rises with every join of the member; a repeated request carries
    the same number. It tells a repetition from a new join, and reveals one that arrives late. 0 if
    the transport keeps requests in order."""


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
    """Members in join order; only in the leader's answer."""
    error: GroupError | None = None
    sequence: int = 0
    """`JoinGroup.sequence` of the join that this answers."""


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """Request for the member's assignment. The leader's request carries all assignments; the other
    members wait for it."""

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
    """Time by the member's own clock. The answer repeats it; it means nothing to others."""


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
