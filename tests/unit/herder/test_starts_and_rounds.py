"""A worker counts its starts, and measures its rebalances."""

import pytest
from support.herder.setups import C0, SOURCE, created, one_worker, two_workers

from headgate.herder.messages import ConnectorFailed, CreateConnector, Rebalances, Startups
from headgate.herder.round_times import RoundTimes
from headgate.task.messages import TaskEnded, TaskOutcome


def test_a_rebalance_lasts_until_work_may_run_again() -> None:
    times = RoundTimes()
    times.look(100, steady=False, outside=True)
    assert times.read(100) == Rebalances()
    times.look(200, steady=False, outside=False)
    times.look(300, steady=False, outside=False)
    assert times.read(300) == Rebalances(began_ms=200)
    times.look(500, steady=True, outside=False)
    times.look(600, steady=True, outside=False)
    assert times.read(600) == Rebalances(1, 300, 300, 500)
    times.look(1_000, steady=False, outside=False)
    times.look(1_100, steady=True, outside=False)
    assert times.read(1_100) == Rebalances(2, 400, 300, 1_100)


def test_what_a_worker_that_leaves_was_waiting_for_is_no_rebalance() -> None:
    times = RoundTimes()
    times.look(200, steady=False, outside=False)
    times.look(300, steady=False, outside=True)
    assert times.read(300) == Rebalances()


def test_the_longest_is_of_the_last_minutes() -> None:
    times = RoundTimes()
    times.look(1_000, steady=False, outside=False)
    times.look(9_000, steady=True, outside=False)
    assert times.read(60_000) == Rebalances(1, 8_000, 8_000, 9_000)
    assert times.read(200_000) == Rebalances(1, 8_000, 0, 9_000)


@pytest.mark.parametrize("told", [True, False], ids=["it is told", "nothing is heard"])
def test_time_without_a_coordinator_is_no_rebalance(told: bool) -> None:
    world = two_workers()
    created(world)
    worker = world.workers["b"]
    before = worker.herder.view().rebalance_times
    worker.cut_off = True
    for _ in range(60):
        if told:
            world.lose_coordinator("b")
        world.advance(60_000)
    during = worker.herder.view()
    assert not during.settled and during.rebalance_times.began_ms is None
    worker.cut_off = False
    world.advance(60_000)
    world.until_settled()
    times = worker.herder.view().rebalance_times
    assert times.count > before.count and times.began_ms is None
    assert times.took_ms - before.took_ms < 60_000 and times.took_ms_max < 60_000


def test_starts_of_a_connector_and_its_tasks() -> None:
    world = one_worker()
    created(world)
    herder = world.workers["a"].herder
    view = herder.view()
    assert view.startups.connectors == 1
    assert view.startups.tasks == len(view.tasks) >= 1
    assert (view.startups.failed_connectors, view.startups.failed_tasks) == (0, 0)
    assert view.rebalance_times.count >= 1
    assert view.rebalance_times.began_ms is None


def test_starts_that_failed() -> None:
    """A task that fails later is none, and so is a connector."""
    world = one_worker()
    world.silent_bodies.add(C0)
    world.call("a", CreateConnector("c", SOURCE))
    world.advance(5_000)
    herder = world.workers["a"].herder
    assert herder.view().startups == Startups(connectors=1)
    world.end_task("a", C0, TaskEnded(TaskOutcome.FAILED, "no"))
    world.advance(1_000)
    assert herder.view().startups == Startups(connectors=1, failed_tasks=1)
    world.give("a", ConnectorFailed("c", 1, "no", None))
    world.advance(1_000)
    assert herder.view().startups == Startups(connectors=1, failed_tasks=1)


def test_a_task_that_fails_after_its_start() -> None:
    world = one_worker()
    created(world)
    world.end_task("a", C0, TaskEnded(TaskOutcome.FAILED, "no"))
    world.advance(1_000)
    assert world.workers["a"].herder.view().startups == Startups(connectors=1, tasks=1)
