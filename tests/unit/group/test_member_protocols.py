"""The member machine in groups whose members offer different protocols."""

from dataclasses import replace

import pytest
from support.group.members import (
    A0,
    A1,
    ME,
    OFFSET,
    SETTINGS,
    VIEW,
    follower,
    holding,
    joined,
    metadata,
)

from headgate.assignment import POLICIES
from headgate.assignment.model import Policy, Round, RoundInput
from headgate.membership import leading
from headgate.membership.codec import CODECS, Assignment, AssignmentError
from headgate.membership.member import Member
from headgate.membership.member_messages import (
    CoordinatorLost,
    MemberOutput,
    MemberSettings,
    MemberState,
    RejoinRequested,
    Start,
    Tick,
    WorkReleased,
    WorkView,
)
from headgate.membership.messages import (
    GroupMember,
    JoinedGroup,
    JoinGroup,
    SyncedGroup,
    SyncGroup,
)
from headgate.membership.protocols import HEADGATE

OFFERS = ("headgate", "sessioned", "compatible", "default")
MIXED = MemberSettings("g", "w", "url-me", delay_ms_max=1_000, protocols=OFFERS)


def test_unknown_or_missing_protocols_are_refused_by_name() -> None:
    for protocols in ((), ("headgate", "cooperative")):
        with pytest.raises(ValueError, match="expected some of headgate, sessioned, compatible"):
            MemberSettings("g", "w", "u", protocols=protocols)


def test_what_it_offers_is_written_in_the_bytes_of_each_protocol() -> None:
    member = Member(MIXED)
    (request,) = member.handle(0, Start(), WorkView(5, 9, {}, ("a",), (A0,)))
    assert isinstance(request, JoinGroup)
    told = {name: CODECS[name].decode_metadata(data) for name, data in request.protocols}
    assert tuple(told) == OFFERS
    assert [data.config_offset for data in told.values()] == [5, 9, 9, 9]
    assert [data.tasks for data in told.values()] == [(A0,), (A0,), (A0,), ()]


def test_java_is_told_of_no_assignment_before_there_was_one_and_after_it_was_given_up() -> None:
    def current(outputs: list[MemberOutput]) -> Assignment | None:
        return CODECS["sessioned"].decode_metadata(dict(offers(outputs))["sessioned"]).last

    member = Member(MIXED)
    assert current(member.handle(0, Start(), VIEW)) is None
    member.handle(0, joined_as(member, "sessioned"), VIEW)
    nothing = Assignment(AssignmentError.NONE, "w-0", "url-0", OFFSET)
    data = CODECS["sessioned"].encode_assignment(nothing)
    member.handle(0, SyncedGroup("g", ME, 1, data), VIEW)
    assert current(member.handle(0, RejoinRequested("r"), VIEW)) == nothing
    member.handle(0, CoordinatorLost("gone"), VIEW)
    assert current(member.handle(0, WorkReleased(), VIEW)) is None


def offers(outputs: list[MemberOutput]) -> tuple[tuple[str, bytes], ...]:
    (join,) = [output for output in outputs if isinstance(output, JoinGroup)]
    return join.protocols


def joined_as(
    member: Member, protocol: str, generation: int = 1, *members: GroupMember
) -> JoinedGroup:
    """This member leads if there are `members`."""
    leader = ME if members else "w-0"
    return JoinedGroup("g", ME, generation, protocol, leader, members, sequence=member._sequence)


def test_what_a_policy_remembers_is_for_its_protocol_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java worker comes and goes: the policy of the one protocol knows no memory of the
    other's."""
    given: list[tuple[str, object | None]] = []

    def spied(name: str) -> Policy:
        def policy(round_input: RoundInput, memory: object | None) -> Round:
            given.append((name, memory))
            return replace(POLICIES[name](round_input, memory), memory=name)

        return policy

    monkeypatch.setattr(leading, "POLICIES", {name: spied(name) for name in POLICIES})
    member = Member(MIXED)
    sent = member.handle(0, Start(), VIEW)
    for generation, protocol in enumerate(
        ["headgate", "headgate", "sessioned", "sessioned", "headgate", "default"], start=1
    ):
        roll = GroupMember(ME, dict(offers(sent))[protocol])
        outputs = member.handle(0, joined_as(member, protocol, generation, roll), VIEW)
        (request,) = [output for output in outputs if isinstance(output, SyncGroup)]
        member.handle(0, SyncedGroup("g", ME, generation, request.assignments[ME]), VIEW)
        assert member.protocol == protocol
        sent = member.handle(0, RejoinRequested("r"), VIEW)
        if protocol == "default":
            sent = member.handle(0, WorkReleased(), VIEW)
    assert given == [
        ("kip415", None),
        ("kip415", "kip415"),
        ("connect", None),
        ("connect", "connect"),
        ("kip415", None),
        ("eager", None),
    ]


@pytest.mark.parametrize("between", ["another leads", "given up", "both", "another protocol"])
def test_apaches_policy_remembers_through_what_is_between(
    between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache's assignor lives as long as its worker.

    It learns whether it knows the last round from the generation: that of the last round which the
    worker completed, leading or not.
    """
    given: list[tuple[object | None, int]] = []

    def policy(round_input: RoundInput, memory: object | None) -> Round:
        given.append((memory, round_input.last_completed_generation))
        done = POLICIES["connect"](round_input, None)
        return replace(done, memory=round_input.generation)

    monkeypatch.setattr(leading, "POLICIES", {**POLICIES, "connect": policy})
    member = Member(MIXED)

    def lead(protocol: str, generation: int, sent: list[MemberOutput]) -> None:
        roll = GroupMember(ME, dict(offers(sent))[protocol])
        outputs = member.handle(0, joined_as(member, protocol, generation, roll), VIEW)
        (request,) = [output for output in outputs if isinstance(output, SyncGroup)]
        member.handle(0, SyncedGroup("g", ME, generation, request.assignments[ME]), VIEW)

    def rejoin() -> list[MemberOutput]:
        return member.handle(0, RejoinRequested("r"), VIEW)

    lead("sessioned", 1, member.handle(0, Start(), VIEW))
    completed, last = 1, "compatible"
    if between in ("another leads", "both"):
        rejoin()
        member.handle(0, joined_as(member, "sessioned", 2), VIEW)
        nothing = Assignment(AssignmentError.NONE, "w-0", "url-0", OFFSET)
        data = CODECS["sessioned"].encode_assignment(nothing)
        member.handle(0, SyncedGroup("g", ME, 2, data), VIEW)
        completed = 2
    if between in ("given up", "both"):
        member.handle(0, CoordinatorLost("gone"), VIEW)
        sent = member.handle(0, WorkReleased(), VIEW)
    else:
        sent = rejoin()
    if between == "another protocol":
        lead("headgate", 2, sent)
        completed, sent = 2, rejoin()
    lead(last, 3, sent)
    assert given == [(None, -1), (1, completed)]


def test_a_leader_goes_on_without_a_member_that_it_cannot_understand() -> None:
    member = Member(SETTINGS)
    (own,) = offers(member.handle(0, Start(), VIEW))
    answer = joined_as(member, HEADGATE, 1, GroupMember(ME, own[1]), GroupMember("w-9", b"?"))
    (request,) = member.handle(0, answer, VIEW)
    assert isinstance(request, SyncGroup) and set(request.assignments) == {ME}
    member.handle(0, SyncedGroup("g", ME, 1, request.assignments[ME]), VIEW)
    assert member.connectors == ("a",) and member.tasks == (A0, A1)
    assert any("w-9" in each and "not JSON: b'?'" in each for each in member.pending)
    assert member.pending == (
        "member w-9 is given nothing, what it says of itself cannot be read: not JSON: b'?'",
    )


@pytest.mark.parametrize("data", [b"", b"\x00\x02"])
def test_an_assignment_that_cannot_be_read_costs_a_pause_and_no_work(data: bytes) -> None:
    """A leader that leaves a member out sends it nothing. Joining again at once would be a loop as
    fast as the coordinator answers."""
    member = follower()
    member.handle(0, RejoinRequested("r"), holding(A0))
    member.handle(0, joined(member, 2), holding(A0))
    assert member.handle(0, SyncedGroup("g", ME, 2, data), holding(A0)) == []
    assert member.state is MemberState.PAUSING
    assert "the leader sent no assignment that can be read" in member.pending[0]
    outputs = member.handle(SETTINGS.error_pause_ms, Tick(), holding(A0))
    assert metadata(outputs).tasks == (A0,)
