"""States that once did not heal.

They are beliefs of a frozen worker, events split over two reads or joined in one, and late answers.
(test_random_clusters has what a policy forgets.)
"""

import pytest
from support.herder.setups import SOURCE, created, one_worker, two_workers
from support.herder.world import HerderWorld, Worker

from headgate.herder.messages import (
    ConfigEndRead,
    ConfigRead,
    ConnectorFailed,
    CreateConnector,
    DeleteConnector,
    DescribeStatus,
    ReadConfigToEnd,
    Success,
)
from headgate.ids import TargetState
from headgate.topics.config_records import decode, encode_commit, encode_target_state


def three_tasks() -> HerderWorld:
    world = two_workers()
    created(world, {**SOURCE, "tasks.max": "3"})
    return world


def frozen_leader(world: HerderWorld) -> Worker:
    """`a`, which led, is frozen until `b` leads."""
    former = world.workers["a"]
    assert former.herder.leads
    former.frozen = True
    world.advance(30_000)
    assert world.workers["b"].herder.leads
    return former


def test_a_leader_that_wakes_up_does_not_deny_what_its_successor_made() -> None:
    world = three_tasks()
    former = frozen_leader(world)
    world.call("b", CreateConnector("x", SOURCE))
    world.advance(5_000)
    call_id = world.call("a", DeleteConnector("x"))
    former.frozen = False
    world.advance(30_000)
    assert world.answers[call_id] == [Success()]
    assert former.herder.state.entry("x") is None


def test_a_leader_that_does_not_know_it_looks_before_it_denies() -> None:
    """By its own clock the leader's session is not over, so only the log shows that another one
    leads."""
    world = three_tasks()
    world.holds.append(lambda _, e: isinstance(e, ReadConfigToEnd))
    call_id = world.call("a", DeleteConnector("x"))
    world.run()
    world.log.append(("connector-x", b'{"properties":{"connector.class":"Source"}}'))
    world.release()
    world.until_settled()
    assert world.answers[call_id] == [Success()]


@pytest.mark.parametrize("batches", [(1, 2), (2, 1), (3,), (1, 1, 1)])
def test_stopped_and_resumed_however_it_is_read(batches: tuple[int, ...]) -> None:
    """Java's leaders write the empty commit and the state in two transactions."""
    world = three_tasks()
    records = [
        encode_commit("c", 0),
        encode_target_state("c", TargetState.STOPPED),
        encode_target_state("c", TargetState.STARTED),
    ]
    for count in batches:
        world.log += records[:count]
        del records[:count]
        world.run()
    world.advance(120_000)
    assert sum(len(tasks) for tasks in world.running().values()) == 3


@pytest.mark.parametrize("at_once", [True, False])
def test_a_namesake_of_what_failed_is_tried(at_once: bool) -> None:
    """The connector is deleted and created again with the same config, in one read of its owner or
    in two."""
    world = one_worker()
    world.add("b")
    world.advance(10_000)
    world.until_settled()
    for name in ("x", "y"):
        world.call("a", CreateConnector(name, SOURCE))
    world.advance(8_000)
    owner = world.workers["b"]
    name = next(n for n in ("x", "y") if n in owner.herder.view().connectors)
    run = owner.herder._connectors._held[name].run
    world.give("b", ConnectorFailed(name, run, "db down", "trace: db down"))
    world.advance(100)
    owner.frozen = at_once
    for call in (DeleteConnector(name), CreateConnector(name, SOURCE)):
        world.call("a", call)
        world.advance(300)
    owner.frozen = False
    world.advance(60_000)
    call_id = world.call("a", DescribeStatus(name))
    world.run()
    (answer,) = world.answers[call_id]
    assert isinstance(answer, Success)
    assert isinstance(answer.value, dict)
    assert answer.value["connector"]["state"] == "RUNNING"
    assert [task["state"] for task in answer.value["tasks"]] == ["RUNNING"]


def test_an_end_of_the_log_that_was_read_for_an_earlier_round_says_nothing_of_this_one() -> None:
    world = three_tasks()
    behind = world.workers["b"]
    world.holds.append(lambda worker, e: worker is behind and isinstance(e, ReadConfigToEnd))
    news, lags = world._read_news, [True]
    world._read_news = (  # type: ignore[method-assign]
        lambda worker: None if lags[0] and worker is behind else news(worker)
    )
    world.call("a", CreateConnector("y", SOURCE))
    world.advance(4_000)
    ((_, first),) = world.held
    assert isinstance(first, ReadConfigToEnd)
    world.call("a", CreateConnector("z", SOURCE))
    world.advance(4_000)
    assert len(world.held) == 2
    end = next(n for n, (key, _) in enumerate(world.log) if key == "connector-z")
    events = tuple(
        decode(n, world.log[n][0].encode(), world.log[n][1]) for n in range(behind.read, end)
    )
    behind.read = end
    world.trace.clear()
    world.give("b", ConfigRead(events))
    world.give("b", ConfigEndRead(first.token))
    world.run()
    assert not [line for line in world.trace if line.startswith("b: stop")]
    lags[0] = False
    world.release()
    world.advance(20_000)
    assert sum(len(tasks) for tasks in world.running().values()) == 5
