"""The cost of a round for the herder of a worker that holds much, counted in calls of Python
functions.

Tasks that it has both before and after the round cost no call.
"""

import pytest
from support.calls import counted
from support.herder.world import HerderWorld

from headgate.herder.connectors import Connectors, Instance
from headgate.herder.herder import Herder
from headgate.herder.messages import Command, CreateConnector, Effect, Success
from headgate.ids import TargetState, TaskId
from headgate.topics.config_records import (
    encode_commit,
    encode_connector,
    encode_target_state,
    encode_task,
)

TASKS = 2_000
SOURCE = {"connector.class": "Source", "tasks.max": str(TASKS)}


@pytest.fixture
def world() -> HerderWorld:
    """A worker alone in its group, and one connector with many tasks."""
    world = HerderWorld(checked=False)
    world.log.append(encode_connector("big", {**SOURCE, "name": "big"}))
    for number in range(TASKS):
        world.log.append(encode_task(TaskId("big", number), {"task": str(number), "v": ""}))
    world.log.append(encode_commit("big", TASKS))
    world.add("a")
    world.until_settled()
    assert len(world.running()["a"]) == TASKS
    return world


def created(world: HerderWorld, name: str) -> None:
    call_id = world.call("a", CreateConnector(name, {**SOURCE, "tasks.max": "1", "name": name}))
    world.run()
    assert isinstance(world.answers[call_id][0], Success)
    world.until_settled()


def test_a_new_connector_costs_no_calls_for_what_is_held_already(
    world: HerderWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    handle = Herder.handle

    def watched(herder: Herder, now_ms: int, command: Command) -> list[Effect]:
        nonlocal calls
        more, found = counted(lambda: handle(herder, now_ms, command))
        calls += more
        return found

    monkeypatch.setattr(Herder, "handle", watched)
    created(world, "small")
    assert len(world.running()["a"]) == TASKS + 1
    assert calls < TASKS, "of all commands of two rounds"


def test_connectors_that_do_not_change_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    world = HerderWorld(checked=False)
    names = [f"c{number}" for number in range(100)]
    for name in names:
        world.log.append(encode_connector(name, {**SOURCE, "tasks.max": "1", "name": name}))
        world.log.append(encode_task(TaskId(name, 0), {"task": "0", "v": ""}))
        world.log.append(encode_commit(name, 1))
        if name.endswith("7"):
            world.log.append(encode_target_state(name, TargetState.PAUSED))
    world.add("a")
    world.until_settled()
    looked_at: list[str] = []
    reconcile = Connectors._reconcile

    def noted(connectors: Connectors, instance: Instance) -> None:
        looked_at.append(instance.name)
        reconcile(connectors, instance)

    monkeypatch.setattr(Connectors, "_reconcile", noted)
    created(world, "small")
    assert set(looked_at) == {"small"}
