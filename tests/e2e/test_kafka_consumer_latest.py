"""A sink's consumer that begins at the end of its topics keeps its positions from the start."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from support.kafka.broker import Found
from support.kafka.consumers import (
    COOPERATIVE,
    await_partitions,
    close_opened,
    drain,
    opened,
    records_of,
)
from support.kafka.world import KafkaWorld

from headgate.ports import ProducerRecord


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    yield
    close_opened()


LATEST = [{}, {"consumer.isolation.level": "read_committed"}, COOPERATIVE]


@pytest.fixture(params=LATEST, ids=["eager", "committed", "cooperative"])
def latest(request: pytest.FixtureRequest, kafka_broker: Found) -> Iterator[Any]:
    """A world whose sinks begin at the end of their topics. Topic `t` has ten records in partitions
    0 and 1, and none in 2."""
    reset = {"consumer.auto.offset.reset": "latest", **request.param}
    world = KafkaWorld(kafka_broker.address, reset)
    log = world.connect().record_log
    log.create_topic(world.name("t"), 3)
    producer = log.producer("c", None, None)
    producer.send(records_of(world.name("t"), 20))
    producer.acks()
    yield world, log, producer
    producer.close()
    world.close()


def test_with_latest_a_quiet_partition_has_a_place_from_the_start(latest: Any) -> None:
    """The next owner would otherwise skip records that come while the partition has no owner.
    Connect, too, commits the positions of assigned partitions."""
    world, log, producer = latest
    topic, group = world.name("t"), world.name("g")
    consumer = opened(world, log)
    await_partitions(consumer)
    assert log.committed(group) == {(topic, 0): 10, (topic, 1): 10, (topic, 2): 0}
    producer.send([ProducerRecord(topic, 0, None, b"busy")])
    producer.acks()
    assert [r.value for r in drain(consumer, 1)] == [b"busy"]
    consumer.commit({(topic, 0): 11})
    consumer.close()
    producer.send([ProducerRecord(topic, n, None, b"meanwhile") for n in (1, 2)])
    producer.acks()
    second = opened(world, log)
    found = drain(second, 2)
    assert sorted((r.partition, r.offset) for r in found) == [(1, 10), (2, 0)]
    second.close()
    assert log.committed(group) == {(topic, 0): 11, (topic, 1): 10, (topic, 2): 0}


def test_with_latest_where_a_task_begins_by_itself_is_not_committed_for_it(latest: Any) -> None:
    world, log, _ = latest
    topic = world.name("t")
    consumer = opened(world, log)
    consumer.on_rebalance(lambda _: consumer.seek((topic, 0), 7), lambda _: None)
    assert [(r.partition, r.offset) for r in drain(consumer, 3)] == [(0, 7), (0, 8), (0, 9)]
    consumer.close()
    assert log.committed(world.name("g")) == {(topic, 1): 10, (topic, 2): 0}


def test_with_latest_ends_that_could_not_be_committed_go_with_the_next_commit(
    latest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, log, _ = latest
    topic, group = world.name("t"), world.name("g")
    said: list[str] = []
    monkeypatch.setattr(log, "_warn", said.append)
    consumer = opened(world, log)
    client, consumer._client = consumer._client, Failing(consumer._client)
    await_partitions(consumer)
    assert log.committed(group) == {}
    assert len(said) == 1 and "were not committed" in said[0]
    consumer._client = client
    consumer.seek((topic, 1), 4)
    consumer.commit({(topic, 2): 0})
    assert log.committed(group) == {(topic, 0): 10, (topic, 2): 0}
    consumer.close()


class Failing:
    """A client whose commits reach nobody."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def commit(self, **_given: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))
