"""The group coordinator machine: every request in every state, and the cost of a lost message."""

import json

import pytest

from headgate.membership.coordinator import Coordinator, CoordinatorSettings, GroupState
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

SESSION_MS = 10_000
ROUND_MS = 60_000
NO_DELAY = CoordinatorSettings(initial_rebalance_delay_ms=0)


def join(
    member_id: str, sequence: int = 1, protocols: str = "p", kind: str = "connect"
) -> JoinGroup:
    offers = tuple((name, f"{member_id}:{name}:{sequence}".encode()) for name in protocols)
    return JoinGroup("g", member_id, "w", kind, offers, SESSION_MS, ROUND_MS, sequence)


def sync(member_id: str, generation: int, *others: str) -> SyncGroup:
    return SyncGroup("g", member_id, generation, {name: name.encode() for name in others})


def enter(coordinator: Coordinator, name: str, now_ms: int = 0, **how: str) -> str:
    """Join for the first time: both requests. Returns the member id."""
    (answer,) = coordinator.handle(now_ms, join("", **how), name)
    assert isinstance(answer, JoinedGroup) and answer.error is GroupError.MEMBER_ID_REQUIRED
    coordinator.handle(now_ms, join(answer.member_id, **how))
    return answer.member_id


def stable(*names: str, now_ms: int = 0) -> tuple[Coordinator, list[str]]:
    coordinator = Coordinator()
    ids = [enter(coordinator, name, now_ms) for name in names]
    coordinator.tick(now_ms + 300)
    for member_id in reversed(ids):
        coordinator.handle(now_ms + 300, sync(member_id, 1, *ids))
    assert coordinator.state("g") is GroupState.STABLE
    return coordinator, ids


def in_state(state: GroupState) -> tuple[Coordinator, str]:
    """A group with the members w-a (leader) and w-b, and one of them to ask."""
    coordinator, ids = stable("a", "b")
    match state:
        case GroupState.EMPTY:
            for member_id in ids:
                coordinator.handle(1_000, LeaveGroup("g", member_id))
        case GroupState.PREPARING | GroupState.COMPLETING:
            coordinator.handle(1_000, join("w-a", 2))
            if state is GroupState.COMPLETING:
                coordinator.handle(1_000, join("w-b", 2))
        case GroupState.STABLE:
            pass
    assert coordinator.state("g") is state
    return coordinator, "w-a"


def error_of(responses: list[GroupResponse], member_id: str) -> GroupError | None:
    (found,) = [response for response in responses if response.member_id == member_id]
    return found.error


E = GroupError
LEGAL: dict[tuple[GroupState, str], GroupError | str | None] = {
    # "waits": no answer yet; "answered": to all that wait.
    **dict.fromkeys([(s, "join of a stranger") for s in GroupState], E.UNKNOWN_MEMBER_ID),
    **dict.fromkeys([(s, "first join") for s in GroupState], E.MEMBER_ID_REQUIRED),
    **dict.fromkeys([(s, "sync of a stranger") for s in GroupState], E.UNKNOWN_MEMBER_ID),
    **dict.fromkeys([(s, "heartbeat of a stranger") for s in GroupState], E.UNKNOWN_MEMBER_ID),
    **dict.fromkeys([(s, "leave of a stranger") for s in GroupState], "waits"),
    **dict.fromkeys([(s, "leave") for s in GroupState], "waits"),
    **dict.fromkeys([(s, "sync of an old generation") for s in GroupState], E.ILLEGAL_GENERATION),
    **dict.fromkeys([(s, "heartbeat of an old one") for s in GroupState], E.ILLEGAL_GENERATION),
    (GroupState.EMPTY, "join"): E.UNKNOWN_MEMBER_ID,
    (GroupState.EMPTY, "sync"): E.UNKNOWN_MEMBER_ID,
    (GroupState.EMPTY, "sync of an old generation"): E.UNKNOWN_MEMBER_ID,
    (GroupState.EMPTY, "heartbeat"): E.UNKNOWN_MEMBER_ID,
    (GroupState.EMPTY, "heartbeat of an old one"): E.UNKNOWN_MEMBER_ID,
    (GroupState.PREPARING, "join"): "waits",
    (GroupState.PREPARING, "sync"): E.REBALANCE_IN_PROGRESS,
    (GroupState.PREPARING, "heartbeat"): E.REBALANCE_IN_PROGRESS,
    (GroupState.COMPLETING, "join"): "waits",
    (GroupState.COMPLETING, "sync"): None,
    (GroupState.COMPLETING, "heartbeat"): None,
    (GroupState.STABLE, "join"): "waits",
    (GroupState.STABLE, "sync"): None,
    (GroupState.STABLE, "heartbeat"): None,
}
REQUESTS = sorted({what for _, what in LEGAL})


@pytest.mark.parametrize("state", list(GroupState))
@pytest.mark.parametrize("what", REQUESTS)
def test_every_request_in_every_state(state: GroupState, what: str) -> None:
    coordinator, me = in_state(state)
    generation = coordinator.generation("g")
    requests: dict[str, GroupRequest] = {
        "first join": join(""),
        "join": join(me, 9),
        "join of a stranger": join("nobody"),
        "sync": sync(me, generation, "w-a", "w-b"),
        "sync of an old generation": sync(me, generation - 1),
        "sync of a stranger": sync("nobody", generation),
        "heartbeat": Heartbeat("g", me, generation, 7),
        "heartbeat of an old one": Heartbeat("g", me, generation - 1),
        "heartbeat of a stranger": Heartbeat("g", "nobody", generation),
        "leave": LeaveGroup("g", me),
        "leave of a stranger": LeaveGroup("g", "nobody"),
    }
    request = requests[what]
    responses = coordinator.handle(1_500, request, "n")
    expected = LEGAL[state, what]
    asked = "w-n" if what == "first join" else request.member_id
    if expected == "waits":
        assert not [response for response in responses if response.member_id == asked]
    else:
        assert error_of(responses, asked) is expected
    assert Coordinator.from_plain(coordinator.to_plain()).to_plain() == coordinator.to_plain()


def test_workers_that_start_together_make_one_round() -> None:
    coordinator = Coordinator(CoordinatorSettings(initial_rebalance_delay_ms=300))
    for n, name in enumerate("abc"):
        enter(coordinator, name, now_ms=n * 100)
    assert coordinator.next_deadline_ms == 300
    assert not coordinator.tick(299)
    responses = coordinator.tick(300)
    assert [r.member_id for r in responses] == ["w-a", "w-b", "w-c"]
    assert coordinator.generation("g") == 1
    leader = responses[0]
    assert isinstance(leader, JoinedGroup)
    assert leader.leader == "w-a" and [m.member_id for m in leader.members] == ["w-a", "w-b", "w-c"]
    assert all(isinstance(r, JoinedGroup) and not r.members for r in responses[1:])


def test_the_leader_keeps_its_place_and_the_longest_standing_follows_it() -> None:
    coordinator, _ = stable("a", "b", "c")
    coordinator.handle(400, join("w-c", 2))
    coordinator.handle(400, join("w-b", 2))
    coordinator.handle(400, join("w-a", 2))
    assert coordinator.leader("g") == "w-a"
    coordinator.handle(500, LeaveGroup("g", "w-a"))
    coordinator.handle(500, join("w-c", 3))
    coordinator.handle(500, join("w-b", 3))
    assert coordinator.leader("g") == "w-b"
    assert coordinator.generation("g") == 3


def test_silent_members_are_removed_also_while_they_wait() -> None:
    coordinator, _ = stable("a", "b")
    coordinator.handle(400, join("w-b", 2))  # waits for w-a, and then dies
    coordinator.handle(9_000, Heartbeat("g", "w-a", 1))
    coordinator.tick(400 + SESSION_MS)
    assert coordinator.members("g") == ("w-a",)
    assert not coordinator.is_member("g", "w-b")
    assert coordinator.check("g", "w-b", 1) is GroupError.UNKNOWN_MEMBER_ID


def test_who_does_not_join_within_the_rebalance_timeout_is_removed() -> None:
    coordinator, _ = stable("a", "b")
    coordinator.handle(400, join("w-b", 2))
    responses: list[GroupResponse] = []
    for now_ms in range(1_000, 400 + ROUND_MS + 1_000, 1_000):
        responses = coordinator.handle(now_ms, Heartbeat("g", "w-a", 1))
        responses += coordinator.handle(now_ms, join("w-b", 2))
    assert coordinator.members("g") == ("w-b",)
    assert coordinator.generation("g") == 2


def test_a_leader_that_never_syncs_is_removed_and_the_round_is_repeated() -> None:
    coordinator, _ = stable("a", "b")
    coordinator.handle(400, join("w-a", 2))
    coordinator.handle(400, join("w-b", 2))
    assert not coordinator.handle(400, sync("w-b", 2))
    told: list[GroupResponse] = []
    for now_ms in range(1_000, 400 + ROUND_MS + 1_000, 1_000):
        told += coordinator.handle(now_ms, Heartbeat("g", "w-a", 2))
        told += coordinator.handle(now_ms, Heartbeat("g", "w-b", 2))
    assert coordinator.members("g") == ("w-b",)
    errors = [r.error for r in told if isinstance(r, SyncedGroup)]
    assert errors == [GroupError.REBALANCE_IN_PROGRESS]


def test_a_lost_answer_to_a_join_is_given_again_to_who_asks_again() -> None:
    coordinator, _ = stable("a", "b")
    coordinator.handle(400, join("w-a", 2))
    told = coordinator.handle(400, join("w-b", 2))
    again = coordinator.handle(3_400, join("w-a", 2))
    assert again == [response for response in told if response.member_id == "w-a"]
    assert coordinator.generation("g") == 2


def test_a_lost_answer_is_made_good_also_when_the_next_round_has_begun() -> None:
    coordinator, _ = stable("a", "b")
    coordinator.handle(400, join("w-a", 2))
    coordinator.handle(400, join("w-b", 2))  # both are told of generation 2; w-a does not hear it
    coordinator.handle(500, sync("w-b", 2))
    coordinator.handle(600, join("w-b", 3))
    told = coordinator.handle(3_400, join("w-a", 2))
    assert {response.member_id for response in told} == {"w-a", "w-b"}
    assert coordinator.generation("g") == 3


def test_a_slow_copy_of_an_old_join_counts_for_nothing() -> None:
    """The old join says what the member held then. If it counted, work that the member holds now
    would be given away."""
    coordinator, _ = stable("a", "b")
    for sequence in (1, 0):
        if sequence:
            assert not coordinator.handle(400, join("w-b", sequence))
            assert coordinator.state("g") is GroupState.STABLE
    coordinator.handle(500, join("w-b", 2))
    assert not coordinator.handle(500, join("w-b", 1))
    told = coordinator.handle(500, join("w-a", 2))
    leader = next(r for r in told if r.member_id == "w-a")
    assert isinstance(leader, JoinedGroup)
    assert leader.members[1].metadata == b"w-b:p:2"


def test_a_lost_answer_to_a_sync_is_given_again() -> None:
    coordinator, _ = stable("a", "b")
    for _ in range(2):
        (answer,) = coordinator.handle(400, sync("w-b", 1))
        assert isinstance(answer, SyncedGroup) and answer.assignment == b"w-b"


def test_the_answer_to_a_first_join_may_be_lost_without_leaving_a_ghost() -> None:
    coordinator = Coordinator(NO_DELAY)
    coordinator.handle(0, join(""), "lost")
    enter(coordinator, "a")
    assert coordinator.members("g") == ("w-a",)
    coordinator.tick(SESSION_MS)
    (answer,) = coordinator.handle(SESSION_MS, join("w-lost"))
    assert answer.error is GroupError.UNKNOWN_MEMBER_ID


def test_a_first_join_without_a_new_id_is_refused_and_leaves_no_trace() -> None:
    coordinator = Coordinator()
    with pytest.raises(ValueError, match="expected in new_id"):
        coordinator.handle(0, join(""))
    assert coordinator.to_plain() == {}
    assert enter(coordinator, "a") == "w-a"


@pytest.mark.parametrize(
    ("offers", "chosen"), [(["ab", "ab"], "a"), (["ab", "b"], "b"), (["ab", "ba", "ba"], "b")]
)
def test_the_protocol_is_voted_for(offers: list[str], chosen: str) -> None:
    coordinator = Coordinator(CoordinatorSettings(initial_rebalance_delay_ms=1))
    for n, offer in enumerate(offers):
        enter(coordinator, str(n), protocols=offer)
    told = coordinator.tick(1)
    assert {r.protocol for r in told if isinstance(r, JoinedGroup)} == {chosen}


@pytest.mark.parametrize("how", [{"protocols": "x"}, {"protocols": ""}, {"kind": "consumer"}])
def test_who_speaks_nothing_in_common_is_refused(how: dict[str, str]) -> None:
    coordinator, _ = stable("a", "b")
    (answer,) = coordinator.handle(400, join("", **how), "c")
    assert answer.error is GroupError.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.state("g") is GroupState.STABLE


def test_an_empty_group_keeps_its_generation() -> None:
    coordinator, _ = stable("a")
    coordinator.handle(400, LeaveGroup("g", "w-a"))
    assert coordinator.state("g") is GroupState.EMPTY
    assert coordinator.generation("g") == 1
    coordinator.remove_members()
    enter(coordinator, "b", now_ms=500)
    coordinator.tick(800)
    assert coordinator.generation("g") == 2


def test_check_guards_commits_by_member_and_generation() -> None:
    coordinator, _ = stable("a", "b")
    assert coordinator.check("g", "w-a", 1) is None
    assert coordinator.check("g", "w-a", 0) is GroupError.ILLEGAL_GENERATION
    assert coordinator.check("g", "nobody", 1) is GroupError.UNKNOWN_MEMBER_ID
    assert coordinator.check("other", "w-a", 1) is GroupError.UNKNOWN_MEMBER_ID
    coordinator.handle(400, join("w-a", 2))
    assert coordinator.check("g", "w-b", 1) is None, "its partitions are still its own"
    coordinator.handle(400, join("w-b", 2))
    assert coordinator.check("g", "w-b", 2) is GroupError.REBALANCE_IN_PROGRESS


def test_groups_do_not_touch_each_other() -> None:
    coordinator, _ = stable("a")
    other = JoinGroup("h", "", "w", "consumer", (("x", b""),), SESSION_MS, ROUND_MS, 1)
    (answer,) = coordinator.handle(400, other, "a")
    assert answer.error is GroupError.MEMBER_ID_REQUIRED
    assert coordinator.members("h") == ()
    assert coordinator.members("g") == ("w-a",)


def test_state_survives_as_json_at_every_step() -> None:
    coordinator = Coordinator()
    straight = Coordinator()
    steps: list[tuple[int, GroupRequest, str]] = [
        (0, join(""), "a"),
        (0, join("w-a"), ""),
        (10, join(""), "b"),
        (10, join("w-b"), ""),
        (300, Heartbeat("g", "w-a", 0), ""),
        (310, sync("w-b", 1), ""),
        (320, sync("w-a", 1, "w-a", "w-b"), ""),
        (400, join("w-b", 2), ""),
        (500, LeaveGroup("g", "w-a"), ""),
    ]
    for now_ms, request, new_id in steps:
        coordinator = Coordinator.from_plain(json.loads(json.dumps(coordinator.to_plain())))
        assert coordinator.handle(now_ms, request, new_id) == straight.handle(
            now_ms, request, new_id
        )
    assert coordinator.to_plain() == straight.to_plain()


def test_heartbeats_bring_their_sending_time_back() -> None:
    coordinator, _ = stable("a")
    assert coordinator.handle(400, Heartbeat("g", "w-a", 1, 77)) == [
        HeartbeatAnswered("g", "w-a", 1, None, 77)
    ]
