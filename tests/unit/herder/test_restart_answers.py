"""The answer to a restart of one connector or task comes once its status is in the topic."""

from typing import Any

import pytest
from support.herder.setups import C0, created, one_worker, two_workers
from support.herder.world import HerderWorld

from headgate.herder import messages as m
from headgate.herder.restart_answers import STATUSES_MS
from headgate.ids import TargetState, TaskId
from headgate.task.messages import TaskEnded, TaskOutcome, TaskReleased

FAILED = TaskEnded(TaskOutcome.FAILED, "no")
ALL = (m.RestartTask(C0), m.RestartConnector("c"))


def running(worlds: Any = one_worker) -> HerderWorld:
    world: HerderWorld = worlds()
    created(world)
    return world


def hold(world: HerderWorld, *kinds: type) -> None:
    world.holds.append(lambda _, effect: isinstance(effect, kinds))


def answered(world: HerderWorld, worker: str, call: m.Call) -> m.Result:
    call_id = world.call(worker, call)
    world.run()
    (answer,) = world.answers[call_id]
    return answer


def first_look(world: HerderWorld, worker: str) -> dict[str, Any]:
    """Return what the first look of a wait sees."""
    answer = answered(world, worker, m.ShowConnector("c", ("outdated",), to_end=True))
    assert isinstance(answer, m.Success)
    found: Any = answer.value
    row: dict[str, Any] = found["row"]
    return row


def task_state(row: dict[str, Any]) -> str:
    state: str = row["status"]["tasks"][0]["state"]
    return state


@pytest.mark.parametrize("call", ALL, ids=lambda call: type(call).__name__)
def test_an_answer_waits_for_its_status(call: m.Call) -> None:
    world = running()
    hold(world, m.WriteStatus)
    call_id = world.call("a", call)
    world.advance(STATUSES_MS - 1)
    assert world.answers[call_id] == []
    world.release()
    world.run()
    assert world.answers[call_id] == [m.Success()]


@pytest.mark.parametrize("call", ALL, ids=lambda call: type(call).__name__)
def test_an_answer_does_not_wait_for_ever(call: m.Call) -> None:
    """The restart itself was made. When all is written, there is no second answer."""
    world = running()
    hold(world, m.WriteStatus)
    call_id = world.call("a", call)
    world.advance(STATUSES_MS)
    assert world.answers[call_id] == [m.Success()]
    world.release()
    world.advance(STATUSES_MS)
    assert world.answers[call_id] == [m.Success()]


@pytest.mark.parametrize("asked", ["a", "b"])
def test_a_wait_on_any_worker_does_not_see_the_run_before(asked: str) -> None:
    """That holds though the worker would read the new statuses late."""
    world = running(two_workers)
    assert first_look(world, asked)["settled"]
    world.workers[asked].statuses_lag = True
    world.silent_bodies.add(C0)
    assert answered(world, asked, m.RestartTask(C0)) == m.Success()
    row = first_look(world, asked)
    assert task_state(row) == "RESTARTING" and not row["settled"]


def test_a_failure_that_is_restarted_is_not_seen_any_more() -> None:
    world = running(two_workers)
    world.end_task("b", C0, FAILED)
    world.run()
    assert task_state(first_look(world, "a")) == "FAILED"
    world.workers["a"].statuses_lag = True
    world.silent_bodies.add(C0)
    assert answered(world, "a", m.RestartTask(C0)) == m.Success()
    assert task_state(first_look(world, "a")) == "RESTARTING"


def test_a_failure_whose_run_is_not_released_yet_neither() -> None:
    world = running()
    world.silent_bodies.add(C0)
    run = world.run_of("a", C0)
    world.report("a", run, FAILED)
    world.run()
    call_id = world.call("a", m.RestartTask(C0))
    world.run()
    assert task_state(first_look(world, "a")) == "FAILED" and world.answers[call_id] == []
    world.workers["a"].runs.pop(run)
    world.report("a", run, TaskReleased())
    world.run()
    assert world.answers[call_id] == [m.Success()]
    assert task_state(first_look(world, "a")) == "RESTARTING"


def test_a_run_before_the_group_was_lost_is_not_seen_either() -> None:
    """The task was stopped then, which readers pass over, and is restarted before it is started."""
    world = running()
    hold(world, m.SendGroup)
    world.lose_coordinator("a")
    world.run()
    assert world.running() == {"a": []}
    call_id = world.call("a", m.RestartTask(C0))
    world.run()
    assert world.answers[call_id] == []
    world.silent_bodies.add(C0)
    world.release()
    world.run()
    assert world.answers[call_id] == [m.Success()]
    row = first_look(world, "a")
    assert task_state(row) == "RESTARTING" and not row["settled"]


def test_a_failed_connector_that_is_restarted_is_not_seen_as_failed() -> None:
    world = running(two_workers)
    world.workers["b"].statuses_lag = True
    failed = m.ConnectorFailed("c", 1, "no", None)
    world.give("a", failed)
    world.run()
    assert first_look(world, "b")["status"]["connector"]["state"] == "FAILED"
    assert answered(world, "b", m.RestartConnector("c")) == m.Success()
    assert first_look(world, "b")["status"]["connector"]["state"] == "RUNNING"


def test_what_is_not_to_run_is_answered_at_once() -> None:
    world = running()
    answered(world, "a", m.SetTargetState("c", TargetState.PAUSED))
    world.until_settled()
    assert answered(world, "a", m.RestartConnector("c")) == m.Success()
    assert answered(world, "a", m.RestartTask(TaskId("c", 0))) == m.Success()
    world.until_settled()
    assert first_look(world, "a")["settled"]
