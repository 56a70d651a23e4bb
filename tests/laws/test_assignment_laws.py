"""Laws of the policy `kip415` over whole histories of a group.

Members join, leave, bounce and freeze, connectors appear and disappear, syncs fail, and leaders
change.
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.group.law_groups import DELAY_MS, Group, configured, happenings, works

from headgate.assignment import connect, kip415
from headgate.assignment.model import MemberWork, Policy, Round, RoundInput, Work
from headgate.ids import TaskId


def check_round(given_: RoundInput, done: Round) -> None:
    reported = Counter(
        work for member in given_.members for work in works(given_, member.member_id)
    )
    after: Counter[Work] = Counter()
    revoked_all: set[Work] = set()
    for name, change in done.members.items():
        assigned = [*change.assigned_connectors, *change.assigned_tasks]
        revoked = {*change.revoked_connectors, *change.revoked_tasks}
        # Added only when no live member holds it; disjoint; revoked is what it has.
        assert not any(reported[work] for work in assigned)
        assert not revoked & set(assigned)
        assert revoked <= set(works(given_, name))
        assert list(change.assigned_tasks) == sorted(change.assigned_tasks, key=task_key)
        revoked_all |= revoked
        after.update(assigned)
        after.update(set(works(given_, name)) - revoked)
    assert all(count == 1 for count in after.values()), "one owner"
    wanted = configured(dict(given_.connectors))
    assert set(after) <= wanted, "deleted work is revoked"
    memory = done.memory
    assert isinstance(memory, kip415.Memory)
    # Nothing lost: everything is owned, or revoked just now, or waits for a delay that runs.
    assert wanted - set(after) - revoked_all == set(memory.waiting)
    assert bool(memory.waiting) == (done.delay_ms > 0)
    assert 0 <= done.delay_ms <= given_.delay_ms_max
    if done.delay_ms:  # nothing is moved only for the balance
        assert all(work not in wanted or reported[work] > 1 for work in revoked_all)


def task_key(task: TaskId) -> tuple[bytes, int]:
    return task.connector.encode("utf-16-be"), task.task


@settings(max_examples=150, deadline=None)
@given(st.lists(happenings, max_size=12), st.sampled_from([0, DELAY_MS]))
def test_every_round_keeps_the_laws(history: list[list[tuple[str, int]]], delay_ms: int) -> None:
    group = Group(delay_ms_max=delay_ms)
    for before in history:
        for what, n in before:
            group.happen(what, n)
        check_round(*group.round(slow=("slow", 0) in before))


@settings(max_examples=100, deadline=None)
@given(st.lists(happenings, max_size=8))
def test_it_settles_balanced_within_the_delay_and_two_rounds_and_stays_put(
    history: list[list[tuple[str, int]]],
) -> None:
    group = Group()
    for before in history:
        for what, n in before:
            group.happen(what, n)
        group.round()
    # From here on nothing happens but what members do by themselves: join at the planned time, and
    # join again after a revocation.
    _, done = group.round()
    group.now_ms += done.delay_ms
    group.round()
    group.round()
    counts = [len(held) for held in group.held.values()]
    assert set().union(*map(set, group.held.values())) == group.configured()
    assert max(counts) - min(counts) <= 1, "balance"
    for _ in range(2):
        before_held = {name: set(held) for name, held in group.held.items()}
        _, done = group.round()
        assert done.delay_ms == 0
        assert {name: set(held) for name, held in group.held.items()} == before_held


@settings(max_examples=60, deadline=None)
@given(st.lists(happenings, min_size=1, max_size=6))
def test_the_order_of_joining_and_of_reporting_does_not_matter(
    history: list[list[tuple[str, int]]],
) -> None:
    group = Group()
    for before in history:
        for what, n in before:
            group.happen(what, n)
        given_ = group.input()
        turned = RoundInput(
            members=tuple(turn(member) for member in reversed(given_.members)),
            leader=given_.leader,
            generation=given_.generation,
            last_completed_generation=given_.last_completed_generation,
            connectors=dict(reversed(given_.connectors.items())),
            delay_ms_max=given_.delay_ms_max,
            now_ms=given_.now_ms,
        )
        assert kip415.assign(given_, group.memory) == kip415.assign(turned, group.memory)
        group.round()


def turn(member: MemberWork) -> MemberWork:
    return MemberWork(
        member.member_id,
        tuple(reversed(member.connectors)),
        tuple(reversed(member.tasks)),
        member.last_delay_ms,
        member.delay_left_ms,
    )


@pytest.mark.parametrize("policy", [kip415.assign, connect.assign])
@settings(max_examples=60, deadline=None)
@given(times_ms=st.lists(st.integers(0, 2_000), min_size=1, max_size=5))
def test_departures_never_extend_a_delay(policy: Policy, times_ms: list[int]) -> None:
    """Whatever members leave after the first, the work is assigned at the time of the first
    departure."""
    group = Group(policy=policy, connectors={"a": 9}, held={f"w{n}": [] for n in range(8)}, came=8)
    group.round()
    group.happen("leave", 3)
    _, first = group.round()
    assert first.delay_ms == DELAY_MS
    for at_ms in sorted(times_ms):
        group.now_ms = min(at_ms, DELAY_MS - 1)
        group.happen("leave", 1)
        if len(group.held) == 1:
            break
        _, done = group.round()
        assert group.leader == "w0"
        assert done.delay_ms == DELAY_MS - group.now_ms
    group.now_ms = DELAY_MS
    _, done = group.round()
    assert done.delay_ms == 0


@settings(max_examples=40, deadline=None)
@given(
    workers=st.integers(2, 4),
    leave=st.integers(1, 3),
    tasks=st.integers(4, 12),
    joins=st.lists(st.integers(0, 3), min_size=1, max_size=3),
)
def test_who_joins_during_a_delay_takes_nothing_from_others(
    workers: int, leave: int, tasks: int, joins: list[int]
) -> None:
    """Others then hold more than their share. Balance waits until the delay is over."""
    held: dict[str, list[Work]] = {f"w{n}": [] for n in range(workers)}
    group = Group(connectors={"a": tasks}, held=held, came=workers)
    group.round()
    group.happen("leave", min(leave, workers - 1))
    _, done = group.round()
    for count in joins:
        for _ in range(count):
            group.happen("join", 1)
        group.now_ms += DELAY_MS // 4
        given_, done = group.round()
        check_round(given_, done)
        assert done.delay_ms
        assert not any(
            change.revoked_connectors or change.revoked_tasks for change in done.members.values()
        )
