"""A task of an exactly-once source waits for the recheck after its producer was initialised."""

import pytest
from support.herder.setups import C0, SOURCE, created, one_worker, two_workers
from support.herder.world import HerderWorld, Worker

from headgate.herder import messages as m
from headgate.ids import TaskId
from headgate.task.messages import FencingRequested, ProducerInitialised, RecheckAnswered

TWO_TASKS = {**SOURCE, "tasks.max": "2"}


def recheck_answers(world: HerderWorld) -> list[str | None]:
    """Answer the tasks' rechecks in this way from now on."""
    told: list[str | None] = []

    def hear(_: Worker, effect: m.Effect) -> bool:
        if isinstance(effect, m.SendTask) and isinstance(effect.command, RecheckAnswered):
            told.append(effect.command.abandon)
        return False

    world.holds.append(hear)
    return told


def test_a_leader_that_says_fenced_without_a_count_in_the_log_is_not_believed() -> None:
    """The older producers may still write: what a task reads back is the log, not an answer."""
    world = two_workers(exactly_once=True)
    created(world, TWO_TASKS)
    told = recheck_answers(world)
    (task,) = [TaskId("c", int(name[-1])) for name in world.running()["b"]]

    def falsely(worker: Worker, effect: m.Effect) -> bool:
        if isinstance(effect, m.CallPeer) and isinstance(effect.call, m.FenceConnector):
            world.give(worker.name, m.PeerAnswered(effect.token, m.Success()))
            return True
        return isinstance(effect, m.FenceProducers)

    world.holds.append(falsely)
    world.call("a", m.PutConnectorConfig("c", {**TWO_TASKS, "file": "another"}))
    world.advance(20_000)
    assert told
    for abandon in told:
        assert abandon is not None
        assert f"source task {task} as no task count record follows" in abandon


@pytest.mark.parametrize("lost", ["revoked", "newer commit"])
def test_a_run_that_was_stopped_meanwhile_is_not_told_to_go_on(lost: str) -> None:
    """Java looks for these here; a run that is being stopped waits for no answer any more."""
    world = one_worker(exactly_once=True)
    world.silent_bodies.add(C0)
    created_without_end(world)
    run = world.run_of("a", C0)
    told = recheck_answers(world)
    world.report("a", run, FencingRequested())
    world.run()
    world.holds.append(lambda _, e: isinstance(e, m.ReadConfigToEnd))
    world.report("a", run, ProducerInitialised())
    world.run()
    (asked,) = [each for each in world.held if isinstance(each[1], m.ReadConfigToEnd)]
    world.holds.pop()
    if lost == "revoked":
        world.workers["a"].cut_off = True
        world.advance(30_000)
        world.workers["a"].cut_off = False
    else:
        world.log.append(("task-c-0", b'{"properties":{"task":"0","v":"new"}}'))
        world.log.append(("commit-c", b'{"tasks":1}'))
    world.held.clear()
    world.perform(*asked)
    world.run()
    assert any("stop run" in line or f"stop {run}" in line for line in world.trace)
    assert told == []


def created_without_end(world: HerderWorld) -> None:
    world.call("a", m.CreateConnector("c", SOURCE))
    world.run()
    world.advance(1_000)
