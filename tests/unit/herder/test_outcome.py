"""The outcome that a worker reports for its connector has nothing from before its config."""

from typing import Any

from support.herder.setups import SOURCE, one_worker
from support.herder.world import HerderWorld

from headgate.herder.context import RETRY_DELAY_MS
from headgate.herder.messages import (
    ConnectorFailed,
    ConnectorStarted,
    CreateConnector,
    ErrorKind,
    Failure,
    GenerateTaskConfigs,
    PutConnectorConfig,
    Result,
    StartConnector,
    StopConnector,
    Success,
    TaskConfigsGenerated,
)
from headgate.topics.config_records import encode_connector


def outcome(world: HerderWorld) -> Result | None:
    return world.workers["a"].herder.outcome("c")


def creating(held: tuple[type, ...]) -> tuple[HerderWorld, Any]:
    """A worker that creates `c`, and the first of its effects of the kinds `held`."""
    world = one_worker()
    world.holds.append(lambda _, e: isinstance(e, held))
    assert outcome(world) == Success()  # of what is not configured nothing will come
    world.call("a", CreateConnector("c", SOURCE))
    world.run()
    assert outcome(world) is None
    ((_, effect),) = world.held
    return world, effect


def give(world: HerderWorld, command: Any) -> Result | None:
    """Drop the effects that are held, and give a command in their place. Return the outcome."""
    world.held.clear()
    world.give("a", command)
    world.run()
    return outcome(world)


def test_task_configs_that_come_later_after_all() -> None:
    world, asked = creating((GenerateTaskConfigs,))
    came = give(world, TaskConfigsGenerated(asked.token, "c", error="OSError: away"))
    text = "Connector c gave no task configs: OSError: away"
    assert came == Failure(ErrorKind.INTERNAL, text)
    world.release()
    world.advance(RETRY_DELAY_MS * 2)
    world.until_settled()
    assert outcome(world) == Success()


def test_a_start_that_failed_says_nothing_of_the_next_config() -> None:
    world, start = creating((StartConnector, StopConnector))
    came = give(world, ConnectorFailed("c", start.run, "OSError: away", None))
    text = "Failed to transition connector c to state STARTED: OSError: away"
    assert came == Failure(ErrorKind.INTERNAL, text)
    world.call("a", PutConnectorConfig("c", {**SOURCE, "tasks.max": "2"}))
    world.run()
    assert outcome(world) is None  # the former instance is being stopped
    stopping, world.held = world.held, []
    world.perform(*stopping[0])
    world.run()
    assert [type(effect) for _, effect in world.held] == [StartConnector]
    assert outcome(world) is None
    world.release()
    world.until_settled()
    assert outcome(world) == Success()


def test_a_connector_that_fails_after_its_start() -> None:
    world, start = creating((StartConnector, GenerateTaskConfigs))
    assert give(world, ConnectorStarted("c", start.run)) is None
    came = give(world, ConnectorFailed("c", start.run, "OSError: away", None))
    assert came == Failure(ErrorKind.INTERNAL, "Connector c has failed: OSError: away")


def failed() -> HerderWorld:
    """A connector whose start has failed, and whose instance is still being stopped."""
    world, asked = creating((StartConnector,))
    world.holds.clear()
    world.holds.append(lambda _, e: isinstance(e, StopConnector))
    came = give(world, ConnectorFailed("c", asked.run, "OSError: away", None))
    assert isinstance(came, Failure)
    return world


def test_a_start_that_failed_says_nothing_of_a_namesake() -> None:
    world = failed()
    world.log.extend([("connector-c", None), encode_connector("c", SOURCE)])  # read at once
    world.run()
    assert outcome(world) is None
    world.release()
    world.until_settled()
    assert outcome(world) == Success()


def test_a_start_that_failed_says_nothing_of_its_config_when_that_comes_again() -> None:
    world = failed()
    for config in ({**SOURCE, "v": "2"}, SOURCE):
        world.call("a", PutConnectorConfig("c", config))
        world.run()
    assert outcome(world) is None
    world.release()
    world.until_settled()
    assert outcome(world) == Success()
