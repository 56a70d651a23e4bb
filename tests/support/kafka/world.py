"""A world on a real broker, with names of its own and real time."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest
from support.kafka.broker import Found
from support.kafka.cluster import alter_topic
from support.rest.serving import serving_meanwhile

from headgate_kafka.admin.topics import prepare_internal_topics
from headgate_kafka.clients.settings import knowing_cluster
from headgate_kafka.transport import KafkaTransport, open_transport

SESSION_MS = 6_000
"""The least that a broker allows by default."""


def worker_properties(servers: str, name: str) -> dict[str, str]:
    """Return the properties of a worker with topics and a group of its own."""
    return {
        "kind": "kafka",
        "bootstrap.servers": servers,
        "group.id": f"{name}-workers",
        "config.storage.topic": f"{name}-configs",
        "config.storage.replication.factor": "1",
        "offset.storage.topic": f"{name}-offsets",
        "offset.storage.replication.factor": "1",
        "offset.storage.partitions": "5",
        "status.storage.topic": f"{name}-statuses",
        "status.storage.replication.factor": "1",
        "status.storage.partitions": "2",
        "exactly.once.source.support": "enabled",
        "consumer.session.timeout.ms": str(SESSION_MS),
        "consumer.heartbeat.interval.ms": "500",
        "consumer.max.poll.interval.ms": str(SESSION_MS),
        "consumer.metadata.max.age.ms": "1000",
    }


class KafkaWorld:
    knows_memberships = False
    session_ms = SESSION_MS

    def __init__(self, servers: str, properties: Mapping[str, str] | None = None) -> None:
        """`properties` override the `worker_properties` of the world's workers."""
        self.servers = servers
        self._name = f"t{uuid.uuid4().hex[:10]}"
        self.address = (servers, self._name)
        """Arguments for another process that joins this world."""
        self.properties: Mapping[str, str] = {
            **worker_properties(servers, self._name),
            **(properties or {}),
        }
        found = prepare_internal_topics(self.properties, warn=lambda _line: None)
        self.properties = knowing_cluster(self.properties, found.broker_count)
        self._opened: list[KafkaTransport] = []

    def name(self, text: str) -> str:
        return f"{self._name}-{text}"

    def connect(self, url: str = "") -> Any:
        """Open a transport as a worker does, with a subscription to changes."""
        opened = open_transport(self.properties, url=url)
        opened.subscribe(lambda: None)
        self._opened.append(opened)
        return opened

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def advance(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def alter_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        alter_topic(self.servers, topic, settings)

    def await_answers(self) -> None:
        time.sleep(0.3)

    def serving(self, serve: Callable[[], None]) -> AbstractContextManager[None]:
        return serving_meanwhile(serve)

    def close(self) -> None:
        for opened in self._opened:
            opened.close()


@pytest.fixture
def kafka_world(kafka_broker: Found) -> Iterator[KafkaWorld]:
    """A world on the session's broker."""
    made = KafkaWorld(kafka_broker.address)
    yield made
    made.close()
