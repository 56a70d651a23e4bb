"""A task's next run learns whether a run before it has reached its brokers."""

from support.herder.setups import C0, SOURCE, created, one_worker
from support.herder.world import HerderWorld

from headgate.herder.messages import CreateConnector, PutConnectorConfig, RestartTask
from headgate.task.messages import TaskEnded, TaskOutcome

LOST = TaskEnded(TaskOutcome.LOST, "the log could not be reached")
FAILED = TaskEnded(TaskOutcome.FAILED, "no broker was reached")


def reached(world: HerderWorld) -> bool:
    return world.workers["a"].runs[world.run_of("a", C0)].reached


def test_a_run_after_one_that_has_run_is_told_so() -> None:
    world = one_worker()
    created(world)
    assert not reached(world)
    world.end_task("a", C0, LOST)
    world.until_settled()
    assert reached(world)
    world.call("a", RestartTask(C0))
    world.until_settled()
    assert reached(world)


def test_new_task_configs_may_name_other_brokers() -> None:
    world = one_worker()
    created(world)
    world.call("a", PutConnectorConfig("c", {**SOURCE, "v": "2"}))
    world.until_settled()
    assert not reached(world)


def test_a_run_that_ended_before_it_said_anything_has_reached_nobody() -> None:
    world = one_worker()
    world.silent_bodies.add(C0)
    world.call("a", CreateConnector("c", SOURCE))
    world.run()
    world.end_task("a", C0, FAILED)
    world.until_settled()
    world.silent_bodies.clear()
    world.call("a", RestartTask(C0))
    world.until_settled()
    assert not reached(world)
