"""Consumers that leave their group while it shares its partitions out anew."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from support.kafka_broker import Found
from support.kafka_cluster import await_true
from support.kafka_world import KafkaWorld

from headgate.ports import ProducerRecord, TopicPartition

pytestmark = pytest.mark.slow

PARTITIONS = 4
RECORDS = 10
"""Of each partition."""
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
LATE_S = 2.0
"""Enough for who heartbeats every half second to hear of a rebalance."""


@pytest.fixture(params=[RANGE, COOPERATIVE])
def world(kafka_broker: Found, request: pytest.FixtureRequest) -> Iterator[KafkaWorld]:
    """With topic `t`."""
    strategy = {"consumer.partition.assignment.strategy": request.param}
    made = KafkaWorld(kafka_broker.address, strategy)
    log = made.connect().record_log
    log.create_topic(made.name("t"), PARTITIONS)
    producer = log.producer("c", None, None)
    producer.send(
        [
            ProducerRecord(made.name("t"), n % PARTITIONS, None, b"%d" % n)
            for n in range(PARTITIONS * RECORDS)
        ]
    )
    producer.acks()
    producer.close()
    yield made
    made.close()


class Member:
    def __init__(self, world: KafkaWorld) -> None:
        self.consumer: Any = world.connect().record_log.consumer(
            world.name("g"), [world.name("t")], "c"
        )
        self.begins: dict[int, int] = {}
        """By partition, the first offset it was given."""

    def poll(self) -> None:
        for record in self.consumer.poll(100, 50):
            self.begins.setdefault(record.partition, record.offset)

    def holds(self, count: int) -> bool:
        self.poll()
        return len(self.consumer.assignment()) == count

    def commits_when_revoked(self, offset: int) -> None:
        def commit(gone: Sequence[TopicPartition]) -> None:
            ends: Mapping[TopicPartition, int] = dict.fromkeys(gone, offset)
            self.consumer.commit(ends)

        self.consumer.on_rebalance(lambda _given: None, commit)


def members(world: KafkaWorld) -> list[Any]:
    """Of the consumers' group, as the brokers know them by now."""
    client = AdminClient({"bootstrap.servers": world.servers})
    group = client.describe_consumer_groups([world.name("g")])[world.name("g")].result(10)
    return list(group.members)


def test_who_leaves_when_it_is_to_give_back_can_commit_before(world: KafkaWorld) -> None:
    one = Member(world)
    one.commits_when_revoked(7)
    await_true("partitions", lambda: one.holds(PARTITIONS), 30)
    other = Member(world)
    await_true("second member", lambda: (other.poll(), len(members(world)) == 2)[1], 30)
    until = time.monotonic() + LATE_S
    while time.monotonic() < until:
        other.poll()
    one.consumer.close()
    await_true(
        "all partitions from where the other was",
        lambda: other.holds(PARTITIONS) and other.begins == dict.fromkeys(range(PARTITIONS), 7),
        30,
        lambda: str((other.consumer.assignment(), other.begins)),
    )
    other.consumer.close()


def test_a_static_member_stays_one_when_it_stops(kafka_broker: Found) -> None:
    """It comes back within its session's time, and nothing is shared out anew. Source: KIP-345."""
    world = KafkaWorld(kafka_broker.address, {"consumer.group.instance.id": "one"})
    world.connect().record_log.create_topic(world.name("t"), PARTITIONS)
    one = Member(world)
    await_true("partitions", lambda: one.holds(PARTITIONS), 30)
    one.consumer.close()
    assert [member.group_instance_id for member in members(world)] == ["one"]
    world.close()


def test_who_leaves_when_it_is_to_be_given_partitions_is_given_none(world: KafkaWorld) -> None:
    one = Member(world)
    await_true("partitions", lambda: one.holds(PARTITIONS), 30)
    other = Member(world)
    told: list[Any] = []
    other.consumer.on_rebalance(told.append, told.append)
    other.poll()
    await_true("fewer partitions", lambda: one.holds(PARTITIONS // 2), 30)
    until = time.monotonic() + LATE_S
    while time.monotonic() < until:
        one.poll()
    other.consumer.close()
    assert not any(told)
    await_true("all partitions again", lambda: one.holds(PARTITIONS), 30)
    one.consumer.close()
