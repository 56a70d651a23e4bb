"""Records of 40 MB among small ones on a real broker, where a setting is below that: refused by
name, or passed over alone.

On the embedded log: `tests/e2e/test_large_records_through_the_log.py`."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.kafka.body import bench
from support.kafka.cluster import read_committed
from support.kafka.world import KafkaWorld
from support.task.scripted_source import record, run_dry, scripted

from headgate.connector.api import SourceRecord
from headgate.task.messages import TaskOutcome

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

LARGE = "é\N{SNOWMAN} " * 6_666_667
SIZE = 40_000_002
RAISED = {"producer.override.max.request.size": "50000000"}
TOLERANT = {"errors.tolerance": "all"}
QUEUE = {
    **TOLERANT,
    "errors.deadletterqueue.topic.name": "letters",
    "errors.deadletterqueue.topic.replication.factor": "1",
}
BY_PRODUCER = ("max.request.size", "max.message.bytes")
BY_TOPIC = ("max.message.bytes",)


def given(topic: str) -> list[SourceRecord]:
    found = [record(1), record(2, value=LARGE), record(3)]
    for one in found:
        one.topic = topic
    return found


def named(world: KafkaWorld, config: Mapping[str, str]) -> dict[str, str]:
    name = "errors.deadletterqueue.topic.name"
    return {**config, **({name: world.name(config[name])} if name in config else {})}


def sizes(world: KafkaWorld, topic: str) -> list[int]:
    return [len(value) for _, value in read_committed(world.servers, topic)]


@pytest.mark.parametrize(
    ("exactly_once", "config", "told"),
    [
        pytest.param(True, {}, BY_PRODUCER, id="exactly-once-producer"),
        pytest.param(True, TOLERANT, BY_PRODUCER, id="exactly-once-tolerant"),
        pytest.param(True, QUEUE, BY_PRODUCER, id="exactly-once-queue"),
        pytest.param(False, {}, BY_PRODUCER, id="at-least-once-producer"),
        pytest.param(False, RAISED, BY_TOPIC, id="at-least-once-topic"),
    ],
)
def test_it_fails_the_task_by_name(
    kafka_world: KafkaWorld,
    tmp_path: Path,
    exactly_once: bool,
    config: dict[str, str],
    told: tuple[str, ...],
) -> None:
    """A transaction cannot leave out one of its records, and a dead letter would be as large."""
    topic, config = kafka_world.name("t"), named(kafka_world, config)
    made = bench(kafka_world, tmp_path, scripted(given(topic)), config, exactly_once=exactly_once)
    made.start().until(lambda: made.ended, 120)
    ended = made.wait()
    assert ended.outcome is TaskOutcome.FAILED
    parts = (topic, str(SIZE), "{'file': 'a'}", "{'n': 2}", *told)
    assert [part for part in parts if part not in ended.reason] == [], ended.reason
    assert sizes(kafka_world, topic) in ([], [1], [1, 1])


@pytest.mark.parametrize("config", [{}, RAISED], ids=["producer", "topic"])
def test_without_transactions_it_costs_itself_alone_where_that_is_tolerated(
    kafka_world: KafkaWorld, tmp_path: Path, config: dict[str, str]
) -> None:
    topic = kafka_world.name("t")
    config = {**config, **TOLERANT}
    made = bench(kafka_world, tmp_path, scripted(given(topic)), config, exactly_once=False)
    run_dry(made)
    assert made.stop().outcome is TaskOutcome.STOPPED, made.reports
    assert sizes(kafka_world, topic) == [1, 1]
    assert made.progress.skipped == 1
    assert str(SIZE) in made.progress.detail and "{'n': 2}" in made.progress.detail
