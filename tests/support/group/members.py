"""One member machine and the inputs that tests give it."""

from headgate.assignment.model import MemberAssignment
from headgate.ids import TaskId
from headgate.membership.codec import CODECS, Assignment, AssignmentError, Metadata
from headgate.membership.member import Member
from headgate.membership.member_messages import (
    MemberOutput,
    MemberSettings,
    MemberState,
    Start,
    WorkView,
)
from headgate.membership.messages import (
    JoinedGroup,
    JoinGroup,
    SyncedGroup,
)
from headgate.membership.protocols import HEADGATE

CODEC = CODECS[HEADGATE]
ME = "w-1"
OFFSET = 5
VIEW = WorkView(OFFSET, OFFSET, {"a": 2})
A0, A1 = TaskId("a", 0), TaskId("a", 1)
SETTINGS = MemberSettings("g", "w", "url-me", delay_ms_max=1_000)


def holding(*tasks: TaskId, offset: int = OFFSET) -> WorkView:
    return WorkView(offset, offset, {"a": 2}, (), tasks)


def joined(member: Member, generation: int = 1, leader: str = "w-0") -> JoinedGroup:
    return JoinedGroup("g", ME, generation, HEADGATE, leader, sequence=member._sequence)


def synced(
    generation: int = 1,
    assigned: tuple[TaskId, ...] = (),
    revoked: tuple[TaskId, ...] = (),
    offset: int = OFFSET,
    delay_ms: int = 0,
    error: AssignmentError = AssignmentError.NONE,
) -> SyncedGroup:
    change = MemberAssignment(assigned_tasks=assigned, revoked_tasks=revoked)
    assignment = Assignment(error, "w-0", "url-0", offset, change, delay_ms)
    return SyncedGroup("g", ME, generation, CODEC.encode_assignment(assignment))


def follower(now_ms: int = 0) -> Member:
    """Return a member of generation 1 to which task a-0 is assigned."""
    member = Member(SETTINGS)
    member.handle(now_ms, Start(), VIEW)
    member.handle(now_ms, joined(member), VIEW)
    member.handle(now_ms, synced(assigned=(A0,)), VIEW)
    assert member.state is MemberState.STEADY
    return member


def sent(outputs: list[MemberOutput], kind: type) -> list[MemberOutput]:
    return [output for output in outputs if isinstance(output, kind)]


def metadata(outputs: list[MemberOutput]) -> Metadata:
    (request,) = sent(outputs, JoinGroup)
    assert isinstance(request, JoinGroup)
    return CODEC.decode_metadata(request.protocols[0][1])
