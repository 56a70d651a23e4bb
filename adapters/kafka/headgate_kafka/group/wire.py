"""Translation between the core's group messages and kafka-python's requests and responses."""

from collections.abc import Mapping
from typing import Any, Final

from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

from headgate.membership.messages import (
    GroupError,
    GroupMember,
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
from headgate_kafka.group.link import CodeError

ANSWERS: Final[Mapping[int, GroupError]] = {
    22: GroupError.ILLEGAL_GENERATION,
    23: GroupError.INCONSISTENT_GROUP_PROTOCOL,
    25: GroupError.UNKNOWN_MEMBER_ID,
    27: GroupError.REBALANCE_IN_PROGRESS,
    79: GroupError.MEMBER_ID_REQUIRED,
}
"""Error codes that the member's state machine handles itself."""
_JOIN_VERSION_MAX: Final = 7
"""Later versions add a reason, and a field for static members."""
_SYNC_VERSION_MAX: Final = 4
"""Version 5 requires the protocol type and name of the join once more."""


def encode(request: GroupRequest) -> Any:
    match request:
        case JoinGroup():
            protocol = JoinGroupRequest.JoinGroupRequestProtocol
            return JoinGroupRequest(
                group_id=request.group,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                member_id=request.member_id,
                group_instance_id=None,
                protocol_type=request.protocol_type,
                protocols=[protocol(name=name, metadata=data) for name, data in request.protocols],
                max_version=_JOIN_VERSION_MAX,
            )
        case SyncGroup():
            assignment = SyncGroupRequest.SyncGroupRequestAssignment
            return SyncGroupRequest(
                group_id=request.group,
                generation_id=request.generation,
                member_id=request.member_id,
                group_instance_id=None,
                assignments=[
                    assignment(member_id=member_id, assignment=data)
                    for member_id, data in request.assignments.items()
                ],
                max_version=_SYNC_VERSION_MAX,
            )
        case Heartbeat():
            return HeartbeatRequest(
                group_id=request.group,
                generation_id=request.generation,
                member_id=request.member_id,
                group_instance_id=None,
            )
        case LeaveGroup():
            # Older brokers read `member_id`, newer ones `members`.
            identity = LeaveGroupRequest.MemberIdentity
            return LeaveGroupRequest(
                group_id=request.group,
                member_id=request.member_id,
                members=[
                    identity(member_id=request.member_id, group_instance_id=None, reason=None)
                ],
            )


def decode(request: GroupRequest, response: Any) -> GroupResponse | None:
    """Return the core's message for a response. None: the member awaits no answer to its leave.

    Raises:
        CodeError: the response has an error code that is not in `ANSWERS`.
    """
    code: int = response.error_code
    error = ANSWERS.get(code)
    if code and error is None:
        raise CodeError(type(request).__name__, code)
    match request:
        case JoinGroup():
            return JoinedGroup(
                group=request.group,
                member_id=response.member_id or request.member_id,
                generation=response.generation_id,
                protocol=response.protocol_name or "",
                leader=response.leader,
                members=tuple(
                    GroupMember(member.member_id, bytes(member.metadata))
                    for member in response.members
                ),
                error=error,
                sequence=request.sequence,
            )
        case SyncGroup():
            return SyncedGroup(
                request.group,
                request.member_id,
                request.generation,
                bytes(response.assignment or b""),
                error,
            )
        case Heartbeat():
            return HeartbeatAnswered(
                request.group, request.member_id, request.generation, error, request.sent_ms
            )
        case LeaveGroup():
            return None
