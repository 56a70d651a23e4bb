"""Dead letters on a real broker are in the transaction of their records, and their topics are
created with the settings that the config names."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from support.depth import first
from support.kafka.body import bench
from support.kafka.cluster import read_committed
from support.kafka.world import KafkaWorld
from support.task.scripted_source import record, run_dry, scripted

from headgate.connector.api import SinkRecord, SinkTask, SkippedRecord
from headgate.task.messages import TaskKind, TaskOutcome

pytestmark = pytest.mark.slow

QUEUE = "errors.deadletterqueue.topic.name"
REPLICAS = "errors.deadletterqueue.topic.replication.factor"


class Taking(SinkTask):
    def put(self, records: Sequence[SinkRecord]) -> None:
        pass


@pytest.mark.parametrize("exactly_once", first(1, [True, False]))
def test_letters_of_a_source_and_topics_by_their_groups(
    kafka_world: KafkaWorld, tmp_path: Path, exactly_once: bool
) -> None:
    world = kafka_world
    plain, table, queue = (world.name(name) for name in ("plain", "table", "letters"))
    given = [record(1, value=1), record(2, value=2), record(3, value="three"), record(4, value=4)]
    given[1].key = "k"  # a compacted topic wants one
    given[0].topic, given[1].topic, given[2].topic = plain, table, plain
    given[3].topic = "a name that no topic has"
    bad = SkippedRecord({"file": "a"}, {"n": 5}, "line 5: no number", raw=b"five")
    config = {
        QUEUE: queue,
        REPLICAS: "1",
        "errors.tolerance": "all",
        "value.converter": "org.apache.kafka.connect.converters.IntegerConverter",
        "topic.creation.groups": "tables",
        "topic.creation.default.partitions": "2",
        "topic.creation.default.replication.factor": "-1",
        "topic.creation.tables.include": ".*-table, other",
        "topic.creation.tables.partitions": "3",
        "topic.creation.tables.cleanup.policy": "compact",
    }
    made = bench(world, tmp_path, scripted([*given, bad]), config, exactly_once=exactly_once)
    run_dry(made)
    assert made.stop().outcome is TaskOutcome.STOPPED, made.reports
    assert [value for _, value in read_committed(world.servers, queue)] == [b"three", b"4", b"five"]
    assert (made.progress.records, made.progress.skipped) == (2, 3)
    admin = AdminClient({"bootstrap.servers": world.servers})
    topics = admin.list_topics(timeout=10).topics
    assert [len(topics[name].partitions) for name in (plain, table, queue)] == [2, 3, 1]
    resource = ConfigResource(ResourceType.TOPIC, table)
    settings = admin.describe_configs([resource])[resource].result(10)
    assert settings["cleanup.policy"].value == "compact"


def test_a_queue_that_cannot_be_created_fails_the_task_by_name(
    kafka_world: KafkaWorld, tmp_path: Path
) -> None:
    """There is one broker, and Connect's default is three replicas. Source:
    DeadLetterQueueReporter."""
    kafka_world.connect().record_log.create_topic(kafka_world.name("t"), 1)
    config = {
        "topics": kafka_world.name("t"),
        QUEUE: kafka_world.name("letters"),
        "errors.tolerance": "all",
    }
    ended = bench(kafka_world, tmp_path, Taking, config, kind=TaskKind.SINK).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "Could not initialize dead letter queue with topic=" in ended.reason
    assert f"{REPLICAS} is 3" in ended.reason


@pytest.mark.parametrize("exactly_once", first(1, [True, False]))
def test_a_record_that_is_too_large_is_named(
    kafka_world: KafkaWorld, tmp_path: Path, exactly_once: bool
) -> None:
    topic = kafka_world.name("t")
    large = record(7, value="x" * 2_000_000)
    large.topic = topic
    made = bench(kafka_world, tmp_path, scripted([large]), {}, exactly_once=exactly_once)
    ended = made.start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    for part in (
        topic,
        "{'file': 'a'}",
        "{'n': 7}",
        "2000",
        "max.message.bytes",
        "max.request.size",
    ):
        assert part in ended.reason, part
