"""A connector is settled when it runs for the last change or restart. The statuses of the run
before, which are still in the topic, do not count."""

import json
from typing import Any

import pytest
from support.herder.setups import SOURCE, created, one_worker
from support.herder.world import HerderWorld

from headgate.herder import messages as m
from headgate.herder.context import Context
from headgate.herder.restarts import Restarts
from headgate.herder.settings import HerderSettings
from headgate.herder.settled import THE_CONNECTOR, is_entry_settled, outdated
from headgate.herder.statuses import Statuses
from headgate.ids import State, TargetState, TaskId
from headgate.task.messages import TaskEnded, TaskOutcome
from headgate.topics.config_events import RestartRequested
from headgate.topics.config_records import decode, encode_commit, encode_connector, encode_task
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState
from headgate.topics.status import Status, StatusView, decode_status, encode_connector_status

CONFIG = {**SOURCE, "name": "c"}
CHANGED = {**SOURCE, "batch": "2"}


def running() -> HerderWorld:
    world = one_worker()
    created(world)
    world.trace.clear()
    return world


def shown(world: HerderWorld) -> dict[str, Any]:
    call_id = world.call("a", m.ShowConnector("c", ("outdated",)))
    world.run()
    (answer,) = world.answers[call_id]
    assert isinstance(answer, m.Success)
    found: Any = answer.value
    row: dict[str, Any] = found["row"]
    return row


def done(world: HerderWorld, call: m.Call) -> None:
    call_id = world.call("a", call)
    world.run()
    (answer,) = world.answers[call_id]
    assert isinstance(answer, m.Success)


def hold(world: HerderWorld, *kinds: type) -> None:
    world.holds.append(lambda _, effect: isinstance(effect, kinds))


@pytest.mark.parametrize(
    "call",
    [
        m.PutConnectorConfig("c", CHANGED),
        m.PatchConnectorConfig("c", {"batch": "2"}),
        m.RestartConnector("c", include_tasks=True),
    ],
    ids=["put", "patch", "restart"],
)
def test_statuses_of_the_run_before_do_not_count(call: m.Call) -> None:
    """The new run's statuses are slow to come, and those in the topic say RUNNING."""
    world = running()
    assert shown(world)["settled"] and shown(world)["outdated"] == []
    hold(world, m.WriteStatus)
    done(world, call)
    world.advance(1_000)
    row = shown(world)
    assert row["status"]["connector"]["state"] == row["status"]["tasks"][0]["state"] == "RUNNING"
    assert not row["settled"] and set(row["outdated"]) >= {THE_CONNECTOR, 0}
    world.release()
    world.until_settled()
    assert shown(world)["settled"] and shown(world)["outdated"] == []


def test_a_connector_runs_before_its_new_task_configs_do() -> None:
    world = running()
    hold(world, m.GenerateTaskConfigs)
    done(world, m.PutConnectorConfig("c", CHANGED))
    row = shown(world)
    assert row["status"]["connector"]["state"] == row["status"]["tasks"][0]["state"] == "RUNNING"
    assert not row["settled"]
    assert THE_CONNECTOR not in row["outdated"] and 0 in row["outdated"]
    world.release()
    world.until_settled()
    assert shown(world)["settled"]


def test_a_restart_of_what_failed_waits_for_nothing_else() -> None:
    world = running()
    done(world, m.RestartConnector("c", include_tasks=True, only_failed=True))
    world.until_settled()
    assert shown(world)["settled"]
    tasks = {line for line in world.trace if line.startswith("a: start task")}
    assert not tasks


def test_a_failure_before_the_restart_is_outdated() -> None:
    world = running()
    failed = TaskEnded(TaskOutcome.FAILED, "no")
    world.end_task("a", TaskId("c", 0), failed)
    world.run()
    assert shown(world)["outdated"] == []
    hold(world, m.WriteStatus)
    done(world, m.RestartConnector("c", include_tasks=True, only_failed=True))
    row = shown(world)
    assert row["status"]["tasks"][0]["state"] == "FAILED" and 0 in row["outdated"]
    world.release()
    world.until_settled()
    assert shown(world)["settled"]


def test_a_failed_task_that_is_restarted_alone_says_so_at_once() -> None:
    world = running()
    world.end_task("a", TaskId("c", 0), TaskEnded(TaskOutcome.FAILED, "no"))
    world.run()
    hold(world, m.StartTask)
    done(world, m.RestartTask(TaskId("c", 0)))
    assert shown(world)["status"]["tasks"][0]["state"] == "RESTARTING"


def test_there_and_back_within_one_read_is_told() -> None:
    """The connector goes on as it was, so nothing else would be said of it."""
    world = running()
    world.log += [encode_connector("c", CHANGED), encode_connector("c", CONFIG)]
    world.run()
    assert not any("stop connector" in line for line in world.trace)
    assert shown(world)["settled"]


def test_a_paused_connector_with_another_config_is_settled() -> None:
    world = running()
    done(world, m.SetTargetState("c", TargetState.PAUSED))
    world.until_settled()
    done(world, m.PutConnectorConfig("c", CHANGED))
    world.until_settled()
    assert shown(world)["settled"]


def test_one_that_is_created_paused_is_settled_without_tasks() -> None:
    world = one_worker()
    done(world, m.CreateConnector("c", SOURCE, TargetState.PAUSED))
    world.until_settled()
    assert shown(world)["settled"] and shown(world)["status"]["tasks"] == []
    hold(world, m.GenerateTaskConfigs)
    done(world, m.SetTargetState("c", TargetState.STARTED))
    assert not shown(world)["settled"]


@pytest.mark.parametrize("tasks", [1, 0])
def test_resumed_after_a_stop_it_waits_for_its_tasks(tasks: int) -> None:
    world = running()
    done(world, m.SetTargetState("c", TargetState.STOPPED))
    world.until_settled()
    hold(world, m.GenerateTaskConfigs)
    done(world, m.SetTargetState("c", TargetState.STARTED))
    row = shown(world)
    assert (row["status"]["connector"]["state"], row["status"]["tasks"]) == ("RUNNING", [])
    assert not row["settled"]
    if tasks:
        world.release()
    else:
        ((_, effect),) = world.held
        assert isinstance(effect, m.GenerateTaskConfigs)
        world.give("a", m.TaskConfigsGenerated(effect.token, "c", ()))
    world.until_settled()
    row = shown(world)
    assert row["settled"] and len(row["status"]["tasks"]) == tasks


def test_a_wait_can_ask_for_all_that_was_acknowledged() -> None:
    world = running()
    hold(world, m.ReadConfigToEnd)
    call_id = world.call("a", m.ShowConnector("c", to_end=True))
    world.run()
    assert world.answers[call_id] == []
    world.release()
    world.run()
    assert len(world.answers[call_id]) == 1


def test_while_a_restart_waits_for_the_group_statuses_do_not_take_account_of_it() -> None:
    ctx = Context(HerderSettings("w", "u"), 0)
    statuses = Statuses(ctx)
    records = [encode_connector("c", CONFIG)]
    ctx.state = fold(ConfigState(), [decode(8, key, value) for key, value in records])
    restarts = Restarts(ctx, None, None, statuses)  # type: ignore[arg-type]
    told = []
    for request in (None, RestartRequested(7, "c", include_tasks=True, only_failed=False)):
        if request is not None:
            restarts.on_requested(request)
        statuses.write_connector("c", State.RUNNING)
        statuses.write_connector("other", State.RUNNING)
        told += [json.loads(each.value)["config_offset"] for each in ctx.effects]
        ctx.effects.clear()
    assert told == [9, 9, 7, 9]


def test_statuses_that_tell_no_config_offset_are_taken_as_they_are() -> None:
    """Java's workers, and those of an older Headgate."""
    records = [
        encode_connector("c", CONFIG),
        encode_task(TaskId("c", 0), {}),
        encode_commit("c", 1),
        encode_connector("c", CHANGED),
    ]
    state = fold(ConfigState(), [decode(n, key, value) for n, (key, value) in enumerate(records)])
    entry = state.entries["c"]
    java = Status(State.RUNNING, "w", 1)
    ours = Status(State.RUNNING, "w", 1, config_offset=3)
    for status, settled, old in ((java, True, []), (ours, False, [THE_CONNECTOR])):
        view = StatusView({"c": status}, {"c": {0: java}})
        assert is_entry_settled(entry, view, "c") is settled
        assert outdated(entry, view, "c") == old


@pytest.mark.parametrize("given", ["3", None, True, 2.5, [1], {}, -1, -(2**63), 2**63])
def test_an_offset_that_is_none_is_not_told(given: object) -> None:
    value = json.dumps({"state": "RUNNING", "generation": 1, "config_offset": given}).encode()
    event: Any = decode_status("status-connector-c", value)
    assert event.status.config_offset is None


def test_the_offset_comes_back() -> None:
    for status in (Status(State.RUNNING, "w", 1, config_offset=7), Status(State.RUNNING, "w", 1)):
        event: Any = decode_status(*encode_connector_status("c", status))
        assert event.status == status
