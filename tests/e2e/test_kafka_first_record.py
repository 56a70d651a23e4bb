"""`first_record` of a sink's context, and `last_record`, on a real broker.

Cases: a beginning that was deleted, also while the sink was stopped, and records of a transaction
that was aborted."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from support.kafka.body import bench
from support.kafka.cluster import create_topic
from support.kafka.world import KafkaWorld

from headgate.connector.api import SinkRecord, SinkTask
from headgate.log.looks import last_record, record_time
from headgate.task.messages import TaskKind, TaskOutcome

pytestmark = pytest.mark.slow


class Asking(SinkTask):
    """Asks for the first record of each range, at the first records that it is given."""

    topic: ClassVar[str]
    ranges: ClassVar[Sequence[tuple[int, int]]]
    found: ClassVar[list[int | None]]
    offsets: ClassVar[list[int]]

    def put(self, records: Sequence[SinkRecord]) -> None:
        if records and not self.found:
            asked = (self.context.first_record(self.topic, 0, *each) for each in self.ranges)
            self.found.extend(asked)
        self.offsets.extend(each.offset for each in records)


def asked(
    world: KafkaWorld, folder: Path, topic: str, ranges: Sequence[tuple[int, int]], last: int
) -> tuple[list[int | None], list[int]]:
    """What a task finds in the ranges, and which records it is given up to `last`."""
    members = {"topic": topic, "ranges": ranges, "found": [], "offsets": []}
    task: type[Asking] = type("Given", (Asking,), members)
    made = bench(world, folder, task, {"topics": topic}, kind=TaskKind.SINK)
    made.start().until(lambda: last in task.offsets, 60)
    assert made.stop().outcome is TaskOutcome.STOPPED, made.reports
    return task.found, task.offsets


def write(world: KafkaWorld, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": world.servers, "log_level": 0})
    for number in range(count):
        producer.produce(topic, f"{number}")
    assert producer.flush(30) == 0


def delete(world: KafkaWorld, topic: str, before: int) -> None:
    """What retention does too: the partition begins at `before` then."""
    admin = AdminClient({"bootstrap.servers": world.servers, "log_level": 0})
    for done in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        done.result(30)


def test_it_is_behind_a_beginning_that_was_deleted_while_the_sink_was_stopped(
    kafka_world: KafkaWorld, tmp_path: Path
) -> None:
    """Its group is at 4 by then, which the log has no more."""
    topic = kafka_world.name("t")
    create_topic(kafka_world.servers, topic)
    write(kafka_world, topic, 4)
    ranges = [(0, 4), (2, 4), (0, 99), (4, 99), (3, 3)]
    assert asked(kafka_world, tmp_path, topic, ranges, 3) == ([0, 2, 0, None, None], [0, 1, 2, 3])
    write(kafka_world, topic, 5)
    delete(kafka_world, topic, 6)
    ranges = [(0, 9), (0, 6), (0, 7), (7, 9), (8, 99), (9, 99)]
    found, offsets = asked(kafka_world, tmp_path, topic, ranges, 8)
    assert found == [6, None, 6, 7, 8, None]
    assert offsets == [6, 7, 8]


def test_it_is_none_where_all_was_deleted_and_more_was_written_since(
    kafka_world: KafkaWorld, tmp_path: Path
) -> None:
    topic = kafka_world.name("t")
    create_topic(kafka_world.servers, topic)
    write(kafka_world, topic, 3)
    delete(kafka_world, topic, 3)
    write(kafka_world, topic, 1)
    found, offsets = asked(kafka_world, tmp_path, topic, [(0, 3), (0, 4)], 3)
    assert (found, offsets) == ([None, 3], [3])


def test_records_of_an_aborted_transaction_are_none(
    kafka_world: KafkaWorld, tmp_path: Path
) -> None:
    topic = kafka_world.name("t")
    create_topic(kafka_world.servers, topic)
    known = {"bootstrap.servers": kafka_world.servers, "transactional.id": uuid.uuid4().hex}
    producer = Producer({**known, "log_level": 0})
    producer.init_transactions(30)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for _ in range(2):
            producer.produce(topic, "x")
        assert producer.flush(30) == 0
        end(30)
    # 0 and 1 are aborted, which 2 says; 3 and 4 are committed, which 5 says.
    found, offsets = asked(kafka_world, tmp_path, topic, [(0, 6), (0, 3), (4, 6), (5, 6)], 4)
    assert (found, offsets) == ([3, None, 4, None], [3, 4])
    log = kafka_world.connect().record_log
    last = last_record(log, (topic, 0), 6)
    assert last is not None and last == (4, record_time(log, (topic, 0), 4))
    assert last_record(log, (topic, 0), 3) is None, "two offsets before the end are looked at"
