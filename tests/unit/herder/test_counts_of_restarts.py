"""The count of restarts goes on on the next owner of a connector or task, also of a paused one."""

import json
from typing import Any

import pytest
from support.herder.setups import C0, SOURCE, created, one_worker, two_workers
from support.herder.world import HerderWorld

from headgate.herder import messages as m
from headgate.herder import tasks
from headgate.herder.context import Context
from headgate.ids import TargetState
from headgate.task.messages import TaskEnded, TaskOutcome

CONFIG = {**SOURCE, "headgate.restart.max": "3", "headgate.restart.backoff.ms": "50"}
CONNECTOR, TASK = "status-connector-c", "status-task-c-0"


def last(world: HerderWorld, key: str) -> tuple[str, str, int]:
    """State, worker and count of the last status."""
    found = [value for each, value in world.statuses if each == key and value is not None]
    status: dict[str, Any] = json.loads(found[-1])
    return status["state"], status["worker_id"], status.get("restarts", 0)


def owner(world: HerderWorld, key: str) -> str:
    return last(world, key)[1]


def fail(world: HerderWorld, key: str) -> None:
    name = owner(world, key)
    if key == TASK:
        ended = TaskEnded(TaskOutcome.FAILED, "no")
        world.end_task(name, C0, ended)
    else:
        run = world.workers[name].herder._connectors._held["c"].run
        world.give(name, m.ConnectorFailed("c", run, "no", None))
    world.advance(10_000)
    world.until_settled()


def target(world: HerderWorld, state: TargetState) -> None:
    (name, *_) = [name for name, worker in world.workers.items() if not worker.dead]
    world.call(name, m.SetTargetState("c", state))
    world.advance(1_000)
    world.until_settled()


def move(world: HerderWorld, key: str) -> str:
    """Kill the owner; the other worker is the next one."""
    former = owner(world, key)
    world.kill(former)
    world.advance(400_000)
    world.until_settled()
    assert owner(world, key) != former
    return owner(world, key)


@pytest.mark.parametrize("failures", [2, 4])
@pytest.mark.parametrize("key", [CONNECTOR, TASK])
def test_one_that_is_paused_moves_with_its_count(key: str, failures: int) -> None:
    """After four failures the budget is used up, and stays so."""
    world = two_workers()
    created(world, CONFIG)
    for _ in range(failures):
        fail(world, key)
    count = min(failures, 3)
    assert last(world, key)[2] == count
    target(world, TargetState.PAUSED)
    new = move(world, key)
    assert last(world, key) == ("PAUSED", new, count)
    target(world, TargetState.STARTED)
    assert last(world, key) == ("RUNNING", new, count)
    fail(world, key)
    assert last(world, key)[0] == ("RUNNING" if count < 3 else "FAILED")


def test_a_user_who_restarts_a_paused_connector_that_has_moved_begins_its_count_anew() -> None:
    world = two_workers()
    created(world, CONFIG)
    fail(world, CONNECTOR)
    target(world, TargetState.PAUSED)
    new = move(world, CONNECTOR)
    world.call(new, m.RestartConnector("c"))
    target(world, TargetState.STARTED)
    assert last(world, CONNECTOR) == ("RUNNING", new, 0)


def test_a_stop_begins_the_count_anew_wherever_the_connector_is_next() -> None:
    world = two_workers()
    created(world, CONFIG)
    fail(world, CONNECTOR)
    target(world, TargetState.STOPPED)
    new = move(world, CONNECTOR)
    target(world, TargetState.STARTED)
    assert last(world, CONNECTOR) == ("RUNNING", new, 0)


def test_a_user_who_restarts_a_task_before_its_first_start_begins_its_count_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker has so much to start that the task waits for its turn."""
    world = two_workers()
    created(world, CONFIG)
    fail(world, TASK)
    former = owner(world, TASK)
    with monkeypatch.context() as context:
        context.setattr(tasks, "STARTS_MAX", 0)
        context.setattr(Context, "after", lambda *_: None)
        world.kill(former)
        world.advance(400_000)
    (new,) = [name for name, worker in world.workers.items() if not worker.dead]
    world.call(new, m.RestartTask(C0))
    world.run()
    world.until_settled()
    assert last(world, TASK) == ("RUNNING", new, 0)


def test_one_that_is_paused_keeps_its_count_when_its_worker_is_started_anew() -> None:
    world = one_worker()
    created(world, CONFIG)
    fail(world, CONNECTOR)
    target(world, TargetState.PAUSED)
    world.kill("a")
    world.add("a2")
    world.advance(400_000)
    world.until_settled()
    assert last(world, CONNECTOR) == ("PAUSED", "a2", 1)
    target(world, TargetState.STARTED)
    assert last(world, CONNECTOR) == ("RUNNING", "a2", 1)
