"""The cost of a round for its leader, counted in calls of Python functions.

A group may have 100,000 tasks, and its members wait while the leader computes. In Java's protocols
no function is called for each task.
"""

from collections.abc import Mapping

import pytest
from support.calls import counted

from headgate.ids import TaskId, task_ids
from headgate.membership.codec import CODECS, Metadata
from headgate.membership.leading import Leader, Led, Works, changed, lead
from headgate.membership.member_messages import WorkView
from headgate.membership.messages import GroupMember, JoinedGroup

MEMBERS, CONNECTORS, TASKS_EACH = 20, 200, 40
LEADER = "w-0"
NOTHING: Works = ((), ())


def round_of(
    protocol: str, held: Mapping[str, Works], generation: int, before: Led | None
) -> tuple[int, Led]:
    """A round in which members report `held`, and the calls that it took."""
    codec = CODECS[protocol]
    members = tuple(
        GroupMember(name, codec.encode_metadata(Metadata(f"url-{name}", 5, *works)))
        for name, works in held.items()
    )
    joined = JoinedGroup("g", LEADER, generation, protocol, LEADER, members)
    memory = before.memory if before else None
    leader = Leader(f"url-{LEADER}", 0, generation - 1, 300_000, memory, "kip415")
    view = WorkView(5, 5, {f"c-{n}": TASKS_EACH for n in range(CONNECTORS)})
    return counted(lambda: lead(0, joined, leader, view))


@pytest.mark.parametrize(
    ("protocol", "per_task"),
    [
        ("sessioned", 0.5),
        ("headgate", 2.5),  # of JSON each run of one connector's tasks is looked at
    ],
)
def test_a_round_is_led_in_few_calls(protocol: str, per_task: float) -> None:
    ids = [f"w-{n}" for n in range(MEMBERS)]
    calls, first = round_of(protocol, dict.fromkeys(ids, NOTHING), 1, None)
    held = {name: changed(*works, first.changes[name]) for name, works in first.held.items()}
    round_of(protocol, held, 2, first)  # makes the tasks that members report
    again, second = round_of(protocol, held, 2, first)
    assert not any(change.assigned_tasks for change in second.changes.values())
    most = CONNECTORS * TASKS_EACH * per_task
    assert calls < most, "first join"
    assert again < most, "everybody keeps what it has"


def test_who_owns_what_is_worked_out_when_somebody_asks() -> None:
    _, led = round_of("sessioned", {LEADER: NOTHING}, 1, None)
    lazy = {"releasing", "_owners"}
    assert not lazy & vars(led).keys()
    assert led.owner_url(TaskId("c-7", 3)) == f"url-{LEADER}"
    assert led.owner_url(TaskId("c-7", TASKS_EACH)) is None
    assert led.releasing == frozenset()
    assert lazy <= vars(led).keys()


@pytest.mark.parametrize("protocol", ["headgate", "sessioned"])
def test_what_a_round_takes_away_has_no_owner(protocol: str) -> None:
    _, first = round_of(protocol, {LEADER: NOTHING}, 1, None)
    change = first.changes[LEADER]
    held = {LEADER: (change.assigned_connectors, change.assigned_tasks), "w-1": NOTHING}
    _, led = round_of(protocol, held, 2, first)
    gone = {*led.changes[LEADER].revoked_connectors, *led.changes[LEADER].revoked_tasks}
    assert len(gone) == CONNECTORS * (1 + TASKS_EACH) // 2
    for works in held[LEADER]:
        for work in works:
            assert led.owner_url(work) == (None if work in gone else f"url-{LEADER}")


@pytest.mark.parametrize("numbers", [(), (0,), (7, 2, 7), range(100)])
def test_task_ids_are_those_of_the_class(numbers: tuple[int, ...]) -> None:
    made = list(task_ids("c", numbers))
    assert made == [TaskId("c", number) for number in numbers]
    assert {type(task) for task in made} <= {TaskId}
