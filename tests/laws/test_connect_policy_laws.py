"""Laws that Apache's assignors keep over whole histories of a group, quirks included."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from support.group.law_groups import DELAY_MS, Group, configured, happenings, works

from headgate.assignment import connect, eager
from headgate.assignment.model import MemberAssignment, Round, RoundInput, Work
from headgate.ids import TaskId

ROUNDS_TO_SETTLE = 8


def of(change: MemberAssignment) -> tuple[list[Work], list[Work]]:
    """Assigned, revoked."""
    return (
        [*change.assigned_connectors, *change.assigned_tasks],
        [*change.revoked_connectors, *change.revoked_tasks],
    )


def check_round(given_: RoundInput, done: Round) -> None:
    reported = Counter(
        work for member in given_.members for work in works(given_, member.member_id)
    )
    after: Counter[Work] = Counter()
    revoked_all: set[Work] = set()
    for name, change in done.members.items():
        assigned, revoked = of(change)
        assert not any(reported[work] for work in assigned), "given while another has it"
        assert not set(assigned) & set(revoked)
        revoked_all.update(revoked)
        after.update(assigned)
        after.update(set(works(given_, name)) - set(revoked))
    assert all(count == 1 for count in after.values()), "one owner"
    waiting = configured(dict(given_.connectors)) - set(after) - revoked_all
    assert not waiting or done.delay_ms > 0, "nothing waits without a delay"
    assert 0 <= done.delay_ms <= given_.delay_ms_max


@settings(max_examples=150, deadline=None)
@given(st.lists(happenings, max_size=12), st.sampled_from([0, 1, DELAY_MS]))
def test_every_round_keeps_the_laws(history: list[list[tuple[str, int]]], delay_ms: int) -> None:
    group = Group(delay_ms_max=delay_ms, policy=connect.assign)
    for before in history:
        for what, n in before:
            group.happen(what, n)
        check_round(*group.round(slow=("slow", 0) in before))


@settings(max_examples=100, deadline=None)
@given(st.lists(happenings, max_size=8))
def test_it_settles_balanced_and_stays_put(history: list[list[tuple[str, int]]]) -> None:
    group = Group(policy=connect.assign)
    for before in history:
        for what, n in before:
            group.happen(what, n)
        group.round()
    for _ in range(ROUNDS_TO_SETTLE):
        _, done = group.round()
        group.now_ms += done.delay_ms
    assert set().union(*map(set, group.held.values())) == group.configured()
    for kind in (str, TaskId):
        counts = [sum(isinstance(w, kind) for w in held) for held in group.held.values()]
        assert max(counts) - min(counts) <= 1, "balance"
    for _ in range(2):
        before_held = {name: set(held) for name, held in group.held.items()}
        _, done = group.round()
        assert done.delay_ms == 0
        assert {name: set(held) for name, held in group.held.items()} == before_held


@given(
    st.dictionaries(st.text(max_size=3), st.integers(0, 5), max_size=6),
    st.lists(st.text(max_size=3), min_size=1, max_size=6, unique=True),
)
def test_eager_gives_everything_once_and_evenly(
    connectors: dict[str, int], members: list[str]
) -> None:
    group = Group(policy=eager.assign, connectors=connectors, held={name: [] for name in members})
    group.leader = members[0]
    given_, done = group.round()
    check_round(given_, done)
    assert set().union(*map(set, group.held.values())) == group.configured()
    counts = [len(held) for held in group.held.values()]
    assert max(counts) - min(counts) <= 1
    assert done.delay_ms == 0
