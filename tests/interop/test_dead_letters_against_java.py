"""A Java worker and ours write the same dead letters for the same records and the same config."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from support.java.connect import FoundWorker
from support.kafka.cluster import await_true, committed_reader, create_topic, end_offset
from support.kafka.world import KafkaWorld
from support.task.body_bench import BodyBench

from headgate.connector.api import SinkRecord, SinkTask
from headgate.connector.transforms import make_transforms
from headgate.ports import ProducerRecord
from headgate.task.messages import TaskKind
from headgate_kafka.task_transport import open_task_transport

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

PREFIX = "__connect.errors."
OWN = (PREFIX + "connector.name", PREFIX + "exception.message", PREFIX + "exception.stacktrace")
"""Headers that may differ: the name is another, messages and traces are of another language."""


class Taking(SinkTask):
    def put(self, records: Sequence[SinkRecord]) -> None:
        pass


def letters(servers: str, topic: str, count: int) -> list[Any]:
    def are_there() -> bool:
        try:
            return end_offset(servers, topic) >= count
        except KafkaException:
            return False  # nor is the topic

    await_true("dead letters", are_there, 60)
    consumer = committed_reader(servers)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Any] = []
        while len(found) < count:
            found += consumer.consume(count, 1.0)
        return found
    finally:
        consumer.close()


def shape(message: Any) -> tuple[Any, ...]:
    headers = [(name, None if name in OWN else value) for name, value in message.headers() or ()]
    return message.key(), message.value(), message.timestamp(), headers


RECORDS = [
    ProducerRecord("", 0, b"k", b'{"n":1}', (("h", b"v"),), 1_000),
    ProducerRecord("", 0, b"k", b'{"n":', (("h", b"v"), ("h", None)), 2_000),
    ProducerRecord("", 0, None, b"\xff\xfe", (), 3_000),
    ProducerRecord("", 0, b"k", b'{"n":"no number"}', (), 4_000),
]


def config(topic: str, queue: str) -> Mapping[str, str]:
    return {
        "topics": topic,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "transforms": "typed",
        "transforms.typed.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.typed.spec": "n:int32",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": queue,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }


def test_headers_keys_values_and_times_are_equal(
    kafka_world: KafkaWorld, java_connect: FoundWorker, tmp_path: Path
) -> None:
    servers, topic = kafka_world.servers, kafka_world.name("t")
    create_topic(servers, topic)
    producer = kafka_world.connect().record_log.producer("p", None, None)
    for record in RECORDS:
        record.topic = topic
    producer.send(RECORDS)
    producer.acks()
    java_queue, our_queue = kafka_world.name("java"), kafka_world.name("ours")
    name = kafka_world.name("sink")
    of_java = {
        **config(topic, java_queue),
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "file": str(tmp_path / "out.txt"),
        "tasks.max": "1",
    }
    reply = java_connect.rest.post("/connectors", {"name": name, "config": of_java})
    assert reply.status == 201, reply.body
    given = config(topic, our_queue)
    bench = BodyBench(
        tmp_path,
        Taking,
        {**given, "consumer.override.group.id": kafka_world.name("g")},
        kind=TaskKind.SINK,
        chain=make_transforms(given),
        open_transport=lambda spec: open_task_transport(
            kafka_world.properties,
            spec.connector_config,
            connector=spec.task.connector,
            kind="sink",
            exactly_once=False,
        ),
    )
    bench.start()
    try:
        java = letters(servers, java_queue, 3)
        bench.until(lambda: bench.progress.skipped == 3)
        ours = letters(servers, our_queue, 3)
    finally:
        bench.stop()
        java_connect.rest.delete(f"/connectors/{name}")
    assert [shape(one) for one in ours] == [shape(one) for one in java]
    message = PREFIX + "exception.message"
    for one, two in zip(ours, java, strict=True):
        # Python's parser says where it stopped, after Java's words.
        assert dict(one.headers())[message].startswith(dict(two.headers())[message])
