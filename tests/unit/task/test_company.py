"""A task that crashes its process soon runs alone, and its neighbours share processes again."""

from headgate.ids import TaskId
from headgate.task.company import FORGET_MS, TOGETHER_MS, Company

ROOM = 50
TASKS = [TaskId("c", number) for number in range(ROOM)]


def rooms(company: Company, now_ms: int) -> set[int]:
    return {company.room(now_ms, task) for task in TASKS}


def test_a_task_that_crashes_its_process_is_alone_after_a_few_times() -> None:
    company, bad, group, now, crashes = Company(ROOM), TASKS[17], TASKS, 0, 0
    while len(group) > 1:
        now, crashes = now + 60_000, crashes + 1
        company.crashed(now, group)
        room = company.room(now + 1_000, bad)
        assert all(company.room(now + 1_000, task) == room for task in group)
        assert room <= len(group) // 2
        group = [bad, *(task for task in group if task != bad)][:room]
    assert crashes == 5
    company.crashed(now + 60_000, [bad])
    assert company.room(now + 61_000, bad) == 1
    assert company.room(now + 61_000, TaskId("other", 0)) == ROOM


def test_processes_that_die_together_cast_no_suspicion() -> None:
    company = Company(ROOM)
    company.crashed(1_000, TASKS[:25])
    company.crashed(1_000 + TOGETHER_MS, TASKS[25:])
    assert rooms(company, 10_000) == {ROOM}


def test_a_suspicion_is_forgotten() -> None:
    company = Company(ROOM)
    company.crashed(0, TASKS)
    assert rooms(company, 100) == {25}
    assert rooms(company, FORGET_MS + 99) == {25}
    assert rooms(company, FORGET_MS + 100) == {ROOM}
