"""Creates, fills and deletes topics of Kafka for the benches."""

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

FLUSH_S = 60.0


def create_topic(
    admin: AdminClient, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None
) -> None:
    new = NewTopic(name, partitions, 1, config=dict(settings or {}))
    admin.create_topics([new])[name].result()


def delete_topic(admin: AdminClient, name: str) -> None:
    admin.delete_topics([name])[name].result()


def fill(address: str, topic: str, records: Iterable[Mapping[str, Any]]) -> int:
    """Write records, each given as arguments of `Producer.produce`. Returns their number.

    Raises:
        RuntimeError: some records were not acknowledged `FLUSH_S` after the last one was sent.
    """
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20})
    count = 0
    for record in records:
        count += 1
        while True:
            try:
                producer.produce(topic, **record)
                break
            except BufferError:
                producer.poll(0.01)
    if left := producer.flush(FLUSH_S):
        raise RuntimeError(f"{left} of {count} records of {topic} were not written in time")
    return count
