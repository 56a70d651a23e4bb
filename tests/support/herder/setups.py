"""The situations in which most tests of the herder begin."""

from support.herder.world import HerderWorld

from headgate.herder.messages import CreateConnector, Failure, Success
from headgate.ids import TaskId

SOURCE = {"connector.class": "Source", "tasks.max": "1"}
C0 = TaskId("c", 0)


def one_worker(**settings: object) -> HerderWorld:
    world = HerderWorld()
    world.add("a", **settings)
    world.until_settled()
    return world


def two_workers(**settings: object) -> HerderWorld:
    """Return a world with two workers in the group, of which `a` leads."""
    world = one_worker(**settings)
    world.add("b", **settings)
    world.advance(10_000)
    world.until_settled()
    return world


def created(world: HerderWorld, config: dict[str, str] | None = None) -> None:
    call_id = world.call("a", CreateConnector("c", config or SOURCE))
    world.run()
    assert isinstance(world.answers[call_id][0], Success)
    world.until_settled()


def failure(world: HerderWorld, call_id: str) -> Failure:
    (answer,) = world.answers[call_id]
    assert isinstance(answer, Failure)
    return answer
