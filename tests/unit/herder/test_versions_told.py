"""A connector's class is not among the worker's plugins. Its start reports the version, which is
then in its statuses."""

import json

from support.herder.setups import SOURCE, two_workers
from support.herder.world import HerderWorld, Worker

from headgate.herder import messages as m
from headgate.herder.tasks_given import tasks_max

CONFIG = {**SOURCE, "connector.class": "module:Class", "tasks.max": "4"}


def statuses(world: HerderWorld) -> dict[str, tuple[str, str | None]]:
    """State and version of each status as it was written last."""
    found: dict[str, tuple[str, str | None]] = {}
    for key, value in world.statuses:
        if value is not None:
            table = json.loads(value)
            found[key] = table["state"], table["version"]
    return found


def told_at_starts(world: HerderWorld, version: str) -> None:
    def start(worker: Worker, effect: m.Effect) -> bool:
        if isinstance(effect, m.StartConnector):
            worker.configs[effect.connector, effect.run] = dict(effect.config)
            told = m.ConnectorStarted(effect.connector, effect.run, version)
            world.give(worker.name, told)
        return isinstance(effect, m.StartConnector)

    world.holds[:] = [start]


def test_the_version_is_in_every_status_on_each_worker() -> None:
    world = two_workers()
    told_at_starts(world, "3.1")
    world.call("a", m.CreateConnector("c", CONFIG))
    world.until_settled()
    assert len(world.running()["b"]) == 2, "of another worker than the connector's"
    found = statuses(world)
    assert len(found) == 5
    assert set(found.values()) == {("RUNNING", "3.1")}


def test_another_class_has_another_version() -> None:
    world = two_workers()
    told_at_starts(world, "3.1")
    world.call("a", m.CreateConnector("c", CONFIG))
    world.until_settled()
    told_at_starts(world, "4.0")
    world.call("a", m.PutConnectorConfig("c", {**CONFIG, "connector.class": "module:Other"}))
    world.until_settled()
    assert statuses(world)["status-connector-c"] == ("RUNNING", "4.0")


def test_task_configs_that_come_at_last_end_the_failure() -> None:
    world = two_workers()
    world.holds.append(lambda _, e: isinstance(e, m.GenerateTaskConfigs))
    world.call("a", m.CreateConnector("c", SOURCE))
    world.run()
    ((worker, asked),) = world.held
    assert isinstance(asked, m.GenerateTaskConfigs)
    none = m.TaskConfigsGenerated(asked.token, "c", error="no database", trace="where")
    world.give(worker.name, none)
    world.run()
    assert statuses(world)["status-connector-c"] == ("FAILED", None)
    world.release()
    world.advance(1_000)
    world.until_settled()
    assert {state for state, _ in statuses(world).values()} == {"RUNNING"}


def test_the_number_of_tasks_has_a_limit_whatever_was_written() -> None:
    """A config that Java's workers took was not validated here."""
    assert tasks_max({"tasks.max": "2147483647"}) == 100_000
    assert tasks_max({"tasks.max": "100000"}) == 100_000
