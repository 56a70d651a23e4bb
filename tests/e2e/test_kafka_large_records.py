"""Records of 40 MB among small ones on a real broker: refused by name while a setting is below
that, and the same on the other side once the settings are raised.

On the embedded log: `tests/e2e/test_large_records_through_the_log.py`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from support.kafka.body import bench
from support.kafka.cluster import read_committed
from support.kafka.world import KafkaWorld
from support.task.scripted_source import record, run_dry, scripted

from headgate.connector.api import SinkRecord, SinkTask, SourceRecord
from headgate.task.messages import TaskKind, TaskOutcome

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
NO_PLACE = "what the log refuses cannot be written there either"


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
        pytest.param(True, RAISED, BY_TOPIC, id="exactly-once-topic"),
        pytest.param(True, TOLERANT, BY_PRODUCER, id="exactly-once-tolerant"),
        pytest.param(True, QUEUE, BY_PRODUCER, id="exactly-once-queue"),
        pytest.param(False, {}, BY_PRODUCER, id="at-least-once-producer"),
        pytest.param(False, RAISED, BY_TOPIC, id="at-least-once-topic"),
        pytest.param(False, QUEUE, (*BY_PRODUCER, NO_PLACE), id="at-least-once-queue"),
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


class Keeping(SinkTask):
    values: ClassVar[list[object]] = []

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.values.extend(each.value for each in records)


class Refusing(SinkTask):
    """Reports what is large."""

    def put(self, records: Sequence[SinkRecord]) -> None:
        reporter = self.context.errant_record_reporter()
        assert reporter is not None
        for each in records:
            if len(str(each.value)) > 1:
                reporter.report(each, ValueError("large"))


def fill(world: KafkaWorld, folder: Path, topic: str, *, exactly_once: bool) -> None:
    world.connect().record_log.create_topic(topic, 1)
    world.alter_topic(topic, {"max.message.bytes": "50000000"})
    made = bench(world, folder, scripted(given(topic)), RAISED, exactly_once=exactly_once)
    run_dry(made)
    assert made.stop().outcome is TaskOutcome.STOPPED, made.reports


@pytest.mark.parametrize("exactly_once", [True, False])
def test_it_arrives_once_the_settings_are_raised(
    kafka_world: KafkaWorld, tmp_path: Path, exactly_once: bool
) -> None:
    """The sink has the settings that it has by default."""
    topic = kafka_world.name("t")
    fill(kafka_world, tmp_path, topic, exactly_once=exactly_once)
    Keeping.values.clear()
    made = bench(kafka_world, tmp_path, Keeping, {"topics": topic}, kind=TaskKind.SINK)
    made.start().until(lambda: len(Keeping.values) >= 3, 120)
    assert made.stop().outcome is TaskOutcome.STOPPED, made.reports
    assert [len(str(value)) for value in Keeping.values] == [1, len(LARGE), 1]
    assert Keeping.values == ["1", LARGE, "3"]


def test_a_dead_letter_that_is_too_large_fails_the_sink(
    kafka_world: KafkaWorld, tmp_path: Path
) -> None:
    topic = kafka_world.name("t")
    fill(kafka_world, tmp_path, topic, exactly_once=False)
    config = named(kafka_world, {"topics": topic, **QUEUE})
    made = bench(kafka_world, tmp_path, Refusing, config, kind=TaskKind.SINK)
    made.start().until(lambda: made.ended, 120)
    ended = made.wait()
    assert ended.outcome is TaskOutcome.FAILED
    queue = kafka_world.name("letters")
    parts = (queue, str(SIZE), *BY_PRODUCER, "Their offsets are not committed")
    assert [part for part in parts if part not in ended.reason] == [], ended.reason


def small_limit(world: KafkaWorld) -> tuple[str, list[SourceRecord]]:
    """A topic for records of 10,000 bytes, and 1,000 small ones, of which one batch is larger."""
    topic = world.name("t")
    world.connect().record_log.create_topic(topic, 1)
    world.alter_topic(topic, {"max.message.bytes": "10000"})
    records = [record(n, value="x" * 100) for n in range(1, 1_001)]
    for each in records:
        each.topic = topic
    return topic, records


def test_only_what_is_too_large_by_itself_is_passed_over(
    kafka_world: KafkaWorld, tmp_path: Path
) -> None:
    """Brokers refuse the whole batch. `errors.tolerance` is for the bad record in it."""
    topic, given = small_limit(kafka_world)
    given[500].value = "y" * 20_000
    made = bench(kafka_world, tmp_path, scripted(given), TOLERANT, exactly_once=False)
    run_dry(made)
    assert made.stop().outcome is TaskOutcome.STOPPED, made.reports
    assert sizes(kafka_world, topic) == [100] * 999
    assert made.progress.skipped == 1
    assert "{'n': 501}" in made.progress.detail


def test_a_transaction_whose_batch_is_too_large_fails_and_says_what_to_set(
    kafka_world: KafkaWorld, tmp_path: Path
) -> None:
    topic, given = small_limit(kafka_world)
    made = bench(kafka_world, tmp_path / "1", scripted(given), TOLERANT, exactly_once=True)
    run_dry(made)
    ended = made.stop()
    assert ended.outcome is TaskOutcome.FAILED
    assert "max.message.bytes (raise that, or set producer.override.batch.size" in ended.reason
    assert sizes(kafka_world, topic) == []
    lower = {"producer.override.batch.size": "5000"}
    made = bench(kafka_world, tmp_path / "2", scripted(given), lower, exactly_once=True)
    run_dry(made)
    assert made.stop().outcome is TaskOutcome.STOPPED, made.reports
    assert sizes(kafka_world, topic) == [100] * 1_000
