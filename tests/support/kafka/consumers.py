"""Sink consumers on a real broker, for tests: opened, polled, and closed after each test."""

import contextlib
import time
from typing import Any

from support.kafka.world import KafkaWorld

from headgate.ports import ConsumerRecord, ProducerRecord

OPENED: list[Any] = []


COOPERATIVE = {
    "consumer.partition.assignment.strategy": (
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    )
}


def opened(world: KafkaWorld, log: Any) -> Any:
    OPENED.append(log.consumer(world.name("g"), [world.name("t")], "c"))
    return OPENED[-1]


def drain(consumer: Any, wanted: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + 30
    while len(found) < wanted:
        assert time.monotonic() < deadline, found
        found += consumer.poll(100, 200)
    return found


def await_partitions(consumer: Any) -> None:
    deadline = time.monotonic() + 30
    while not consumer.assignment():
        assert time.monotonic() < deadline
        assert consumer.poll(0, 50) == []


def records_of(topic: str, count: int) -> list[ProducerRecord]:
    return [ProducerRecord(topic, n % 2, None, b"%d" % n) for n in range(count)]


def close_opened() -> None:
    """Close all consumers.

    If a failed test leaves a consumer to the garbage collector in the middle of a rebalance,
    librdkafka waits for ever, and all tests after it wait, too.
    """
    for consumer in OPENED:
        with contextlib.suppress(Exception):
            consumer.close()
    OPENED.clear()
