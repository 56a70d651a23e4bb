"""The member machine: every input in every state, and the stories for which its rules exist."""

from dataclasses import replace

import pytest
from support.group.members import (
    A0,
    A1,
    CODEC,
    ME,
    OFFSET,
    SETTINGS,
    VIEW,
    follower,
    holding,
    joined,
    metadata,
    sent,
    synced,
)

from headgate.errors import IllegalTransitionError
from headgate.membership import member_messages as mm
from headgate.membership.codec import Assignment, AssignmentError
from headgate.membership.member import Member
from headgate.membership.member_messages import MemberState
from headgate.membership.messages import (
    GroupError,
    Heartbeat,
    HeartbeatAnswered,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    SyncedGroup,
)
from headgate.membership.protocols import HEADGATE


def refused(kind: type, error: GroupError, generation: int = 1) -> mm.MemberInput:
    if kind is SyncedGroup:
        return SyncedGroup("g", ME, generation, error=error)
    return HeartbeatAnswered("g", ME, generation, error, sent_ms=0)


def in_state(state: MemberState) -> Member:
    member = Member(SETTINGS) if state is MemberState.OUTSIDE else follower()
    held = holding(A0)
    match state:
        case MemberState.OUTSIDE | MemberState.STEADY:
            pass
        case MemberState.STOPPING:
            member.handle(0, mm.CoordinatorLost("gone"), held)
        case _:
            member.handle(0, mm.RejoinRequested("commit read"), held)
            if state is not MemberState.JOINING:
                member.handle(0, joined(member, 2), held)
            if state is MemberState.RELEASING:
                member.handle(0, synced(2, revoked=(A0,)), held)
            elif state is MemberState.CATCHING_UP:
                member.handle(0, synced(2, offset=OFFSET + 1), held)
            elif state is MemberState.PAUSING:
                member.handle(0, synced(2, error=AssignmentError.CONFIG_MISMATCH), held)
    assert member.state is state
    return member


INPUTS: list[mm.MemberInput] = [
    mm.Start(),
    mm.Tick(),
    mm.RejoinRequested("r"),
    mm.CoordinatorLost("r"),
    mm.WorkReleased(),
    mm.CaughtUp(),
    mm.CaughtUp("late"),
    mm.Leave(),
    synced(2),
    JoinedGroup("g", ME, 3, HEADGATE, "w-0", sequence=0),
    *(JoinedGroup("g", ME, -1, "", "", error=error) for error in GroupError),
    *(SyncedGroup("g", ME, 2, error=error) for error in GroupError),
    *(HeartbeatAnswered("g", ME, g, error) for g in (1, 2) for error in (None, *GroupError)),
]


@pytest.mark.parametrize("state", list(MemberState))
@pytest.mark.parametrize("given", INPUTS, ids=str)
def test_every_input_in_every_state(state: MemberState, given: mm.MemberInput) -> None:
    member = in_state(state)
    if isinstance(given, mm.Start) and state is not MemberState.OUTSIDE:
        with pytest.raises(IllegalTransitionError, match="while"):
            member.handle(10, given, VIEW)
        return
    outputs = member.handle(10, given, holding(A0))
    # Whatever it was: it waits for something that comes by itself, or is out, and can say what.
    assert member.state is MemberState.OUTSIDE or member.next_deadline_ms is not None
    assert (member.pending == ()) == (member.state is MemberState.STEADY)
    stops = [output for output in outputs if isinstance(output, mm.StopEverything)]
    assert len(stops) <= 1
    if stops:
        assert member.connectors == () and member.tasks == () and not member.leader
        assert not any(isinstance(output, mm.StartAllowed | JoinGroup) for output in outputs)


def test_the_table_covers_every_input() -> None:
    kinds = {type(given) for given in INPUTS}
    missing = {(s, k) for s in MemberState for k in kinds} - set(Member.TRANSITIONS)
    assert missing == {(s, mm.Start) for s in MemberState if s is not MemberState.OUTSIDE}


def test_first_join_gets_an_id_and_joins_with_it() -> None:
    member = Member(SETTINGS)
    (first,) = member.handle(0, mm.Start(), VIEW)
    assert isinstance(first, JoinGroup) and first.member_id == ""
    answer = JoinedGroup("g", ME, -1, "", "", error=GroupError.MEMBER_ID_REQUIRED, sequence=1)
    (second,) = member.handle(1, answer, VIEW)
    assert isinstance(second, JoinGroup) and second.member_id == ME
    assert second.sequence > first.sequence


def test_a_frozen_member_stops_everything_before_it_believes_anything() -> None:
    """The answers in its mailbox were right when they were sent; others own its work by now."""
    for late in (
        mm.Tick(),
        HeartbeatAnswered("g", ME, 1, None, sent_ms=0),
        mm.RejoinRequested("commit read"),
        synced(1, assigned=(A0, A1)),
    ):
        member = follower()
        outputs = member.handle(SETTINGS.session_timeout_ms, late, holding(A0))
        assert isinstance(outputs[0], mm.StopEverything)
        assert not sent(outputs, mm.StartAllowed) and not sent(outputs, JoinGroup)
        assert member.tasks == ()


def test_a_frozen_member_does_not_take_an_assignment_that_waited_for_it() -> None:
    member = follower()
    member.handle(0, mm.RejoinRequested("r"), holding(A0))
    member.handle(0, joined(member, 2), holding(A0))
    late = synced(2, assigned=(A1,))
    outputs = member.handle(SETTINGS.session_timeout_ms, late, holding(A0))
    assert [type(output) for output in outputs] == [mm.StopEverything]


def test_only_answers_prolong_the_session_and_by_their_sending_time() -> None:
    member = follower()
    (beat,) = member.handle(3_000, mm.Tick(), holding(A0))
    assert beat == Heartbeat("g", ME, 1, 3_000)
    member.handle(6_000, mm.Tick(), holding(A0))
    member.handle(9_000, HeartbeatAnswered("g", ME, 1, None, 3_000), holding(A0))
    assert not sent(member.handle(12_999, mm.Tick(), holding(A0)), mm.StopEverything)
    assert sent(member.handle(13_000, mm.Tick(), holding(A0)), mm.StopEverything)


def test_it_goes_on_beating_while_it_joins() -> None:
    member = follower()
    member.handle(0, mm.RejoinRequested("r"), holding(A0))
    outputs = member.handle(3_000, mm.Tick(), holding(A0))
    assert [type(output) for output in outputs] == [Heartbeat, JoinGroup]
    busy = HeartbeatAnswered("g", ME, 1, GroupError.REBALANCE_IN_PROGRESS, 3_000)
    assert member.handle(3_001, busy, holding(A0)) == []
    assert not sent(member.handle(12_000, mm.Tick(), holding(A0)), mm.StopEverything)


def test_revocation_waits_until_the_work_is_stopped() -> None:
    member = in_state(MemberState.STEADY)
    member.handle(0, mm.RejoinRequested("r"), holding(A0))
    member.handle(0, joined(member, 2), holding(A0))
    outputs = member.handle(0, synced(2, revoked=(A0,)), holding(A0))
    assert [type(output) for output in outputs] == [mm.Assigned, mm.Revoked, mm.StartAllowed]
    # Another round is under way; still it first stops.
    busy = HeartbeatAnswered("g", ME, 2, GroupError.REBALANCE_IN_PROGRESS, 0)
    assert member.handle(10, busy, holding(A0)) == []
    assert metadata(member.handle(20, mm.WorkReleased(), VIEW)).tasks == ()


def test_what_does_not_stop_in_time_is_reported_as_held() -> None:
    member = in_state(MemberState.RELEASING)
    deadline_ms = SETTINGS.rebalance_timeout_ms - SETTINGS.heartbeat_interval_ms
    outputs: list[mm.MemberOutput] = []
    for now_ms in range(3_000, deadline_ms + 1, 3_000):
        outputs = member.handle(now_ms, mm.Tick(), holding(A0))
        member.handle(now_ms, HeartbeatAnswered("g", ME, 2, None, now_ms), holding(A0))
    assert metadata(outputs).tasks == (A0,)


def test_assigned_but_not_started_work_is_held_too() -> None:
    member = follower()
    assert metadata(member.handle(0, mm.RejoinRequested("r"), VIEW)).tasks == (A0,)


def test_a_delay_ends_in_a_planned_round() -> None:
    member = follower()
    member.handle(0, mm.RejoinRequested("r"), holding(A0))
    member.handle(0, joined(member, 2), holding(A0))
    outputs = member.handle(0, synced(2, delay_ms=1_000), holding(A0))
    assert [type(output) for output in outputs] == [mm.Assigned, mm.StartAllowed]
    assert member.pending and member.next_deadline_ms == 1_000
    assert not sent(member.handle(999, mm.Tick(), holding(A0)), JoinGroup)
    told = metadata(member.handle(1_000, mm.Tick(), holding(A0)))
    assert (told.last_delay_ms, told.delay_left_ms) == (1_000, 0)


def test_behind_the_leader_it_reads_before_it_starts() -> None:
    member = in_state(MemberState.CATCHING_UP)
    assert member.handle(10, mm.RejoinRequested("read a commit"), holding(A0)) == []
    outputs = member.handle(20, mm.CaughtUp(), holding(A0, offset=OFFSET + 1))
    assert outputs == [mm.StartAllowed()]


def test_ahead_of_the_leader_it_joins_again_and_starts_nothing() -> None:
    member = in_state(MemberState.CATCHING_UP)
    outputs = member.handle(20, mm.CaughtUp(), holding(A0, offset=OFFSET + 2))
    assert [type(output) for output in outputs] == [JoinGroup]


def test_who_cannot_catch_up_stops_then_leaves_then_comes_back() -> None:
    member = in_state(MemberState.CATCHING_UP)
    (stop,) = member.handle(0, mm.CaughtUp("timed out"), holding(A0))
    assert isinstance(stop, mm.StopEverything) and "timed out" in stop.reason
    assert member.handle(100, mm.WorkReleased(), VIEW) == [LeaveGroup("g", ME)]
    outputs = member.handle(100 + SETTINGS.error_pause_ms, mm.Tick(), VIEW)
    assert sent(outputs, JoinGroup) and member.member_id == ""


def test_a_config_mismatch_keeps_the_work_and_pauses() -> None:
    member = follower()
    member.handle(0, mm.RejoinRequested("r"), holding(A0))
    member.handle(0, joined(member, 2), holding(A0))
    mismatch = synced(2, offset=OFFSET + 3, error=AssignmentError.CONFIG_MISMATCH)
    assigned, catch_up = member.handle(0, mismatch, holding(A0))
    assert isinstance(assigned, mm.Assigned) and assigned.failed and assigned.tasks == (A0,)
    assert catch_up == mm.CatchUp(OFFSET + 3)
    assert not sent(member.handle(SETTINGS.error_pause_ms - 1, mm.Tick(), holding(A0)), JoinGroup)
    assert metadata(member.handle(SETTINGS.error_pause_ms, mm.Tick(), holding(A0))).tasks == (A0,)


def fail_rounds(member: Member, generations: range, offset: int) -> None:
    """Rounds that the leader refuses because it has read less than somebody."""
    for generation in generations:
        now_ms = generation * SETTINGS.error_pause_ms
        member.handle(now_ms, mm.RejoinRequested("r"), VIEW)
        member.handle(now_ms, joined(member, generation), VIEW)
        failed = synced(generation, offset=offset, error=AssignmentError.CONFIG_MISMATCH)
        member.handle(now_ms, failed, VIEW)
        member.handle(now_ms + SETTINGS.error_pause_ms, mm.Tick(), VIEW)


@pytest.mark.parametrize(
    ("offset", "who"),
    [
        (OFFSET + 3, "this worker's config topic has nothing after 5, but a member other than"),
        (OFFSET, "the leader url-0 has not read its config topic up to assignment offset 5"),
    ],
)
def test_rounds_that_fail_one_after_another_are_told_as_two_config_topics(
    offset: int, who: str
) -> None:
    member = follower()
    fail_rounds(member, range(2, 4), offset)
    assert member.disagreement.words == ""
    fail_rounds(member, range(4, 5), offset)
    assert member.disagreement.words.startswith(who)
    assert "config.storage.topic" in member.disagreement.words
    member.handle(9_000, joined(member, 9), VIEW)
    member.handle(9_000, synced(9), VIEW)
    assert member.state is MemberState.STEADY
    assert member.disagreement.words == ""


def test_who_never_reaches_the_offset_of_its_leader_reads_another_config_topic() -> None:
    member, now_ms = Member(SETTINGS), 0
    member.handle(now_ms, mm.Start(), VIEW)
    for generation in range(1, 4):
        assert member.disagreement.words == ""
        member.handle(now_ms, joined(member, generation), VIEW)
        member.handle(now_ms, synced(generation, offset=OFFSET + 3), VIEW)
        member.handle(now_ms, mm.CaughtUp(), VIEW)
        member.handle(now_ms, mm.WorkReleased(), VIEW)
        now_ms += SETTINGS.error_pause_ms
        member.handle(now_ms, mm.Tick(), VIEW)
    assert "nothing after 5, but the leader url-0 has read up to" in member.disagreement.words


def test_who_is_told_that_its_leader_reads_another_config_topic_stops_and_stays_away() -> None:
    member = Member(replace(SETTINGS, config_topic="'mine'"))
    member.handle(0, mm.Start(), VIEW)
    member.handle(0, joined(member), holding(A0))
    told = Assignment(
        AssignmentError.CONFIG_MISMATCH, "w-0", "url-0", OFFSET, config_topic="'theirs'"
    )
    answer = SyncedGroup("g", ME, 1, CODEC.encode_assignment(told))
    outputs = member.handle(0, answer, holding(A0))
    assert [type(output) for output in outputs] == [mm.Assigned, mm.StopEverything]
    assert member.disagreement.words.startswith(
        "the leader url-0 reads config topic 'theirs', this worker 'mine': members of one group"
    )
    (left,) = member.handle(10, mm.WorkReleased(), VIEW)
    assert isinstance(left, LeaveGroup)
    assert member.next_deadline_ms == 10 + SETTINGS.other_topic_pause_ms
    assert sent(member.handle(10 + SETTINGS.other_topic_pause_ms, mm.Tick(), VIEW), JoinGroup)
    member.handle(40_000, joined(member, 3), VIEW)
    mismatch = synced(3, error=AssignmentError.CONFIG_MISMATCH)
    member.handle(40_000, mismatch, VIEW)
    assert member.disagreement.words == "", "one such round is no sign of anything"
    assert member.next_deadline_ms == 40_000 + SETTINGS.error_pause_ms
    member.handle(41_000, mm.Tick(), VIEW)
    member.handle(41_000, joined(member, 4), VIEW)
    member.handle(41_000, synced(4), VIEW)
    assert member.state is MemberState.STEADY
    assert member.disagreement.words == "" and not member.disagreement.elsewhere


def test_who_is_told_that_its_leader_gives_way_keeps_its_work_and_joins_again() -> None:
    member = Member(replace(SETTINGS, config_topic="'mine'"))
    member.handle(0, mm.Start(), holding(A0))
    for generation in range(1, 8):
        member.handle(0, joined(member, generation), holding(A0))
        told = Assignment(
            AssignmentError.CONFIG_MISMATCH, "w-0", "url-0", OFFSET, config_topic="'mine'"
        )
        answer = SyncedGroup("g", ME, generation, CODEC.encode_assignment(told))
        outputs = member.handle(0, answer, holding(A0))
        assert [type(output) for output in outputs] == [mm.Assigned]
        assert member.pending == (
            "pausing before joining: the leader url-0 has another topic: gives way",
        )
        assert member.tasks == (A0,) and member.disagreement.words == ""
        again = refused(HeartbeatAnswered, GroupError.REBALANCE_IN_PROGRESS, generation)
        (join,) = sent(member.handle(10, again, holding(A0)), JoinGroup)
        assert isinstance(join, JoinGroup)
        assert CODEC.decode_metadata(join.protocols[0][1]).generation == generation


def test_a_config_topic_that_cannot_be_read_is_not_another_one() -> None:
    member, now_ms = Member(SETTINGS), 0
    member.handle(now_ms, mm.Start(), VIEW)
    for generation in range(1, 6):
        member.handle(now_ms, joined(member, generation), VIEW)
        member.handle(now_ms, synced(generation, offset=OFFSET + 3), VIEW)
        member.handle(now_ms, mm.CaughtUp("timed out"), VIEW)
        member.handle(now_ms, mm.WorkReleased(), VIEW)
        now_ms += SETTINGS.error_pause_ms
        member.handle(now_ms, mm.Tick(), VIEW)
    assert member.disagreement.words == ""


def test_disowned_it_stops_everything_before_it_joins_as_somebody_new() -> None:
    member = follower()
    unknown = refused(HeartbeatAnswered, GroupError.UNKNOWN_MEMBER_ID)
    (stop,) = member.handle(10, unknown, holding(A0))
    assert isinstance(stop, mm.StopEverything)
    (again,) = member.handle(20, mm.WorkReleased(), VIEW)
    assert isinstance(again, JoinGroup) and again.member_id == ""
    assert metadata([again]).tasks == ()


@pytest.mark.parametrize("error", [GroupError.REBALANCE_IN_PROGRESS, GroupError.ILLEGAL_GENERATION])
def test_a_round_without_it_makes_it_join_with_its_work(error: GroupError) -> None:
    member = follower()
    outputs = member.handle(10, refused(HeartbeatAnswered, error), holding(A0))
    assert metadata(outputs).tasks == (A0,)
    assert member.member_id == ME


def test_a_failed_sync_is_no_completed_generation() -> None:
    member = follower()
    member.handle(0, mm.RejoinRequested("r"), holding(A0))
    member.handle(0, joined(member, 2), holding(A0))
    member.handle(0, refused(SyncedGroup, GroupError.REBALANCE_IN_PROGRESS, 2), holding(A0))
    assert (member.state, member.generation) == (MemberState.JOINING, 1)


def test_a_late_answer_to_an_earlier_join_is_no_answer() -> None:
    """The earlier join said what the member held then. The assignment for it leaves out what was
    held."""
    member = follower()
    member.handle(0, mm.RejoinRequested("r"), holding(A0))
    late = joined(member, 2)
    member.handle(1, mm.CoordinatorLost("gone"), holding(A0))
    member.handle(2, mm.WorkReleased(), VIEW)
    assert member.handle(3, late, VIEW) == []
    assert member.state is MemberState.JOINING


def test_leaving_stops_first() -> None:
    member = follower()
    (stop,) = member.handle(0, mm.Leave(), holding(A0))
    assert isinstance(stop, mm.StopEverything)
    assert member.handle(10, mm.WorkReleased(), VIEW) == [LeaveGroup("g", ME)]
    assert member.state is MemberState.OUTSIDE
    assert follower().handle(0, mm.Leave(), VIEW) == [LeaveGroup("g", ME)]
