"""The member machine as the leader: the input of its rounds, its answers, and its memory."""

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
    sent,
    synced,
)

from headgate.assignment import POLICIES
from headgate.assignment.model import MemberAssignment, Round, RoundInput
from headgate.ids import TaskId
from headgate.membership import leading
from headgate.membership.codec import AssignmentError, Metadata
from headgate.membership.member import Member
from headgate.membership.member_messages import (
    CoordinatorLost,
    MemberOutput,
    MemberSettings,
    MemberState,
    RejoinRequested,
    Start,
    StopEverything,
    Tick,
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


def leader_round(offsets: dict[str, int], view: WorkView = VIEW) -> tuple[Member, SyncGroup]:
    member = Member(SETTINGS)
    member.handle(0, Start(), VIEW)
    members = tuple(
        GroupMember(name, CODEC.encode_metadata(Metadata(f"url-{name}", offset)))
        for name, offset in offsets.items()
    )
    answer = JoinedGroup("g", ME, 1, HEADGATE, ME, members, sequence=member._sequence)
    (request,) = member.handle(0, answer, view)
    assert isinstance(request, SyncGroup)
    return member, request


def test_the_leader_announces_the_offset_of_the_snapshot_it_computed_with() -> None:
    newer = WorkView(OFFSET + 4, OFFSET + 4, {"a": 1, "b": 1})
    member, request = leader_round({ME: OFFSET, "w-0": OFFSET + 1}, newer)
    for data in request.assignments.values():
        assert CODEC.decode_assignment(data).config_offset == OFFSET + 4
    member.handle(0, SyncedGroup("g", ME, 1, request.assignments[ME]), newer)
    assert member.is_leader
    owners = {member.owner_url(work) for work in ("a", "b", A0, TaskId("b", 0))}
    assert owners == {f"url-{ME}", "url-w-0"}
    assert member.owner_url("nothing") is None


def test_a_leader_that_is_behind_sends_everybody_the_error() -> None:
    _, request = leader_round({ME: OFFSET, "w-0": OFFSET + 1})
    for data in request.assignments.values():
        told = CODEC.decode_assignment(data)
        assert told.error is AssignmentError.CONFIG_MISMATCH
        assert told.config_offset == OFFSET + 1
        assert told.change == MemberAssignment() and told.delay_ms == 0


def test_a_leader_names_the_member_that_has_read_further_than_its_topic_has() -> None:
    member = Member(SETTINGS)
    member.handle(0, Start(), VIEW)
    members = tuple(
        GroupMember(name, CODEC.encode_metadata(Metadata(f"url-{name}", offset)))
        for name, offset in {ME: OFFSET, "w-2": OFFSET, "w-3": OFFSET + 1}.items()
    )
    for generation in range(1, 4):
        now_ms = generation * SETTINGS.error_pause_ms
        answer = JoinedGroup("g", ME, generation, HEADGATE, ME, members, sequence=member._sequence)
        (request,) = sent(member.handle(now_ms, answer, VIEW), SyncGroup)
        assert isinstance(request, SyncGroup)
        own = SyncedGroup("g", ME, generation, request.assignments[ME])
        member.handle(now_ms, own, VIEW)
        member.handle(now_ms + SETTINGS.error_pause_ms, Tick(), VIEW)
    assert "nothing after 5, but member url-w-3 has read up to" in member.disagreement.words


def test_a_leader_names_the_member_that_never_reads_as_far_as_it_is_told() -> None:
    """Such a member leaves in between, because it cannot reach the offset. A member that had read
    less once, or is a little behind each time, is not named."""
    member = Member(SETTINGS)
    member.handle(0, Start(), VIEW)
    for generation in range(1, 8):
        assert member.disagreement.words == ""
        view = WorkView(OFFSET + generation, OFFSET + generation, {"a": 2})
        offsets = {ME: view.config_offset, "late": view.config_offset - 1}
        if generation % 2:
            offsets["w-3"] = -1
        members = tuple(
            GroupMember(name, CODEC.encode_metadata(Metadata(f"url-{name}", offset)))
            for name, offset in offsets.items()
        )
        answer = JoinedGroup("g", ME, generation, HEADGATE, ME, members, sequence=member._sequence)
        (request,) = sent(member.handle(generation, answer, view), SyncGroup)
        assert isinstance(request, SyncGroup)
        own = SyncedGroup("g", ME, generation, request.assignments[ME])
        member.handle(generation, own, view)
        member.handle(generation, RejoinRequested("r"), view)
    assert member.disagreement.words.startswith(
        "url-w-3 never read as far as this leader announces"
    )


def lead_strangers(here: str, topics: dict[str, str]) -> tuple[Member, SyncGroup]:
    """Let a member that reads the config topic `here` lead a round.

    The others read `topics`, and report that they have read further and hold what is configured
    here.
    """
    member = Member(replace(SETTINGS, config_topic=here))
    member.handle(0, Start(), VIEW)
    others = [
        Metadata(f"url-{name}", OFFSET + 7, ("a",), (A0, A1), config_topic=topic)
        for name, topic in topics.items()
    ]
    members = tuple(
        GroupMember(name, CODEC.encode_metadata(data))
        for name, data in zip(
            (ME, *topics), (Metadata("url-me", OFFSET, config_topic=here), *others), strict=True
        )
    )
    answer = JoinedGroup("g", ME, 1, HEADGATE, ME, members, sequence=member._sequence)
    (request,) = sent(member.handle(0, answer, VIEW), SyncGroup)
    assert isinstance(request, SyncGroup)
    member.handle(0, SyncedGroup("g", ME, 1, request.assignments[ME]), VIEW)
    return member, request


def test_a_member_that_reads_another_config_topic_has_no_part_in_the_group() -> None:
    """Its report does not count: neither how far it has read nor what it holds."""
    member, request = lead_strangers("'here'", {"w-0": "'there'"})
    assert member.tasks == (A0, A1)
    assert "reads config topic 'here', but url-w-0 reads 'there'" in member.disagreement.words
    told = CODEC.decode_assignment(request.assignments["w-0"])
    assert (told.error, told.config_topic) == (AssignmentError.CONFIG_MISMATCH, "'here'")
    assert told.change == MemberAssignment()
    follows = joined(member, 2)
    member.handle(1, RejoinRequested("r"), VIEW)
    member.handle(1, replace(follows, sequence=member._sequence), VIEW)
    member.handle(1, synced(2), VIEW)
    assert member.disagreement.words == "", "another leads now"


def test_a_leader_that_lost_its_coordinator_speaks_of_strangers_no_more() -> None:
    member, _ = lead_strangers("'here'", {"w-0": "'there'", "v-0": "'there'"})
    assert "url-v-0 reads 'there', url-w-0 reads 'there'" in member.disagreement.words
    member.handle(1, CoordinatorLost("gone"), VIEW)
    assert member.disagreement.words == ""


@pytest.mark.parametrize(
    ("last", "topic"), [((-1, 4, -1), "'there'"), ((3, 4, 5), "'third'"), ((4, 4, 4), "'here'")]
)
def test_a_leader_whose_topic_did_not_have_the_last_round_gives_way(
    last: tuple[int, int, int], topic: str
) -> None:
    """The broker made it the leader though it had come by mistake, a moment before."""
    member = Member(replace(SETTINGS, config_topic="'here'"))
    member.handle(0, Start(), VIEW)
    topics = {ME: "'here'", "v-0": "'there'", "u-0": "'third'"}
    members = tuple(
        GroupMember(
            name,
            CODEC.encode_metadata(
                Metadata(
                    f"url-{name}",
                    OFFSET + 7,
                    delay_left_ms=700,
                    config_topic=read,
                    generation=generation,
                )
            ),
        )
        for (name, read), generation in zip(topics.items(), last, strict=True)
    )
    answer = JoinedGroup("g", ME, 6, HEADGATE, ME, members, sequence=member._sequence)
    view = replace(VIEW, assignment_offset=OFFSET + 7)
    (request,) = sent(member.handle(0, answer, view), SyncGroup)
    assert isinstance(request, SyncGroup)
    told = {name: CODEC.decode_assignment(data) for name, data in request.assignments.items()}
    stays = topic == "'here'"
    named = {name: "" if stays and read == topic else topic for name, read in topics.items()}
    assert {name: told[name].config_topic for name in topics} == named
    refused = [told[name] for name in named if named[name]]
    assert {answer.error for answer in refused} == {AssignmentError.CONFIG_MISMATCH}
    assert {answer.delay_ms for answer in refused} == {700}, "a delay that runs goes on"
    outputs = member.handle(0, SyncedGroup("g", ME, 6, request.assignments[ME]), view)
    assert any(isinstance(output, StopEverything) for output in outputs) is not stays
    words = f"the workers of this group read config topic {topic}, this worker 'here': "
    assert member.disagreement.words.startswith(words) is not stays


@pytest.mark.parametrize(("here", "there"), [("", "'there'"), ("'here'", ""), ("'a'", "'a'")])
def test_a_topic_that_is_not_known_is_taken_for_the_same(here: str, there: str) -> None:
    member, request = lead_strangers(here, {"w-0": there})
    told = CODEC.decode_assignment(request.assignments["w-0"])
    assert (told.error, told.config_topic) == (AssignmentError.CONFIG_MISMATCH, "")
    assert told.config_offset == OFFSET + 7
    assert member.disagreement.words == ""


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'fair', expected one of connect, kip415$"):
        MemberSettings("g", "w", "u", policy="fair")


def test_a_policy_that_would_make_two_owners_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"'eager', expected .* deals out what other members"):
        MemberSettings("g", "w", "u", policy="eager")


def test_a_late_assignment_of_an_earlier_generation_is_not_taken() -> None:
    """The work in it was assigned again in the round for which this member waits."""
    member = follower()
    member.handle(0, RejoinRequested("r"), holding(A0))
    member.handle(0, joined(member, 2), holding(A0))
    assert member.handle(1, synced(1, assigned=(A1,)), holding(A0)) == []
    assert member.state is MemberState.SYNCING and member.tasks == (A0,)


def test_what_a_former_leader_remembers_ends_with_another_leaders_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If it led again with that memory, it would take the owners of an old round for those of the
    last one."""
    real = POLICIES[SETTINGS.policy]
    memories: list[object | None] = []

    def policy(round_input: RoundInput, memory: object | None) -> Round:
        memories.append(memory)
        return real(round_input, memory)

    monkeypatch.setattr(leading, "POLICIES", {SETTINGS.policy: policy})
    member = Member(SETTINGS)

    def lead(generation: int) -> None:
        metadata = member_metadata(sent)
        answer = JoinedGroup(
            "g",
            ME,
            generation,
            HEADGATE,
            ME,
            members=(GroupMember(ME, metadata),),
            sequence=member._sequence,
        )
        (request,) = [r for r in member.handle(0, answer, VIEW) if isinstance(r, SyncGroup)]
        assignment = request.assignments[ME]
        member.handle(0, SyncedGroup("g", ME, generation, assignment), VIEW)

    sent = member.handle(0, Start(), VIEW)
    lead(1)
    sent = member.handle(0, RejoinRequested("r"), VIEW)
    lead(2)
    assert memories[0] is None
    assert memories[1] is not None
    sent = member.handle(0, RejoinRequested("r"), VIEW)
    member.handle(0, joined(member, 3), VIEW)
    member.handle(0, synced(3), VIEW)
    assert member.owner_url("c") is None
    sent = member.handle(0, RejoinRequested("r"), VIEW)
    lead(4)
    assert memories[2] is None


def member_metadata(sent: list[MemberOutput]) -> bytes:
    (join,) = [output for output in sent if isinstance(output, JoinGroup)]
    return dict(join.protocols)[HEADGATE]
