"""A leader's claim of the config topic on a real broker, and when the leader may keep its
producer."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from support.kafka.broker import Found
from support.kafka.world import KafkaWorld

from headgate.ports import FencedError, TransportError

RECORD = (("connector-a", b"{}"),)


@pytest.fixture
def world(kafka_broker: Found) -> Iterator[KafkaWorld]:
    made = KafkaWorld(kafka_broker.address, {"worker.sync.timeout.ms": "800"})
    yield made
    made.close()


def test_who_led_the_generation_before_keeps_its_producer(world: KafkaWorld) -> None:
    log: Any = world.connect().config_log
    log.claim(1)
    producer = log._leader._client
    for generation in (2, 3):
        log.claim(generation)
        assert log._leader._client is producer
        log.append(RECORD, privileged=True)


def test_whoever_led_in_between_is_shut_out(world: KafkaWorld) -> None:
    first: Any = world.connect().config_log
    second: Any = world.connect().config_log
    first.claim(1)
    second.claim(2)
    first.claim(3)
    first.append(RECORD, privileged=True)
    with pytest.raises(FencedError):
        second.append(RECORD, privileged=True)


def test_the_same_generation_again_is_a_claim_of_its_own(world: KafkaWorld) -> None:
    """In this way a fenced leader that the group still calls its leader can claim the topic
    again."""
    first: Any = world.connect().config_log
    second: Any = world.connect().config_log
    first.claim(4)
    second.claim(4)
    with pytest.raises(FencedError):
        first.append(RECORD, privileged=True)
    first.claim(4)
    first.append(RECORD, privileged=True)


def test_an_open_transaction_keeps_who_asks_for_the_end_waiting_and_no_reader(
    world: KafkaWorld,
) -> None:
    log: Any = world.connect().config_log
    position = log.end()
    hanging = Producer({"bootstrap.servers": world.servers, "transactional.id": world.name("open")})
    hanging.init_transactions()
    hanging.begin_transaction()
    hanging.produce(world.properties["config.storage.topic"], b"{}", b"connector-open", 0)
    hanging.flush()
    failed = threading.Event()

    def ask() -> None:
        with pytest.raises(TransportError, match="open transaction"):
            log.end()
        failed.set()

    asking = threading.Thread(target=ask)
    asking.start()
    slowest = 0.0
    while not failed.is_set():
        began = time.monotonic()
        assert log.read(position)[0] == []
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.005)
    asking.join()
    assert slowest < 0.5
    hanging.commit_transaction()
    log.end()
    records, _ = log.read(position)
    assert [record.key for record in records] == [b"connector-open"]
