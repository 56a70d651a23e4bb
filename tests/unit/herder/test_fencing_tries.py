"""How often a failing round of fencing is tried, and what its caller is told."""

import json

import pytest
from support.herder.setups import SOURCE, created, one_worker
from support.herder.world import HerderWorld

from headgate.herder.messages import PutConnectorConfig
from headgate.herder.tasks import FENCING_TRIES_MAX

TWO = {**SOURCE, "tasks.max": "2"}
FIVE_MINUTES_MS = 300_000
LACKS = "User:connect needs Write on TransactionalId:headgate-c-0"


def refused(times: int) -> HerderWorld:
    """A worker with a new generation of two tasks, the older of which it may not shut out so
    often."""
    world = one_worker(exactly_once=True)
    created(world, TWO)
    world.fence_errors = [LACKS] * times
    world.trace.clear()
    world.call("a", PutConnectorConfig("c", {**TWO, "v": "2"}))
    world.advance(FIVE_MINUTES_MS)
    return world


def last_status(world: HerderWorld) -> dict[str, str]:
    values = [value for key, value in world.statuses if key == "status-task-c-0"]
    found: dict[str, str] = json.loads(values[-1] or b"{}")
    return found


def rounds(world: HerderWorld) -> int:
    return len([line for line in world.trace if "fence producers" in line])


@pytest.mark.parametrize("times", [1, FENCING_TRIES_MAX - 1])
def test_a_fence_that_is_refused_at_first_leaves_no_task_failed(times: int) -> None:
    world = refused(times)
    assert rounds(world) == times + 1
    assert last_status(world)["state"] == "RUNNING"
    view = world.workers["a"].herder.view()
    assert (view.fencing_rounds, view.failed_fencing_rounds) == (1, times)


def test_a_fence_that_is_refused_again_and_again_fails_the_task_with_the_reason() -> None:
    world = refused(10_000)
    assert rounds(world) == FENCING_TRIES_MAX
    found = last_status(world)
    assert found["state"] == "FAILED"
    assert found["trace"] == f"trace of: Failed to perform zombie fencing: {LACKS}"
