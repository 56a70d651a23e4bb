"""A sink with `topics.regex` that Java began has tasks of both kinds in its consumer group while a
topic is created, and then ours alone. Every record is there once."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from support.commands.worker import HeadgateWorker
from support.kafka.broker import Found
from support.kafka.cluster import await_true
from support.kafka.log_topics import LogTopics

from local_kafka.java_connect import JavaWorker, Rest

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

SECONDS = 90
CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
SETTINGS = {
    "key.converter": CONVERTER,
    "value.converter": CONVERTER,
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "500",
    "offset.flush.interval.ms": "500",
    "consumer.metadata.max.age.ms": "500",
    "consumer.session.timeout.ms": "6000",
}


def owners(rest: Rest, logs: LogTopics) -> set[str]:
    """Workers that have a running task of it."""
    body = rest.status(logs.connector).body
    return {task["worker_id"] for task in body.get("tasks", []) if task["state"] == "RUNNING"}


def shares(logs: LogTopics) -> list[set[str]]:
    """Topics that each member of the sink's consumer group has partitions of."""
    client = AdminClient({"bootstrap.servers": logs.address, "log_level": 0})
    group = f"connect-{logs.connector}"
    found = client.describe_consumer_groups([group])[group].result(20)
    return [{p.topic for p in member.assignment.topic_partitions} for member in found.members]


def test_a_topic_that_comes_is_shared_with_java_and_then_taken_over(
    kafka_broker: Found,
    kafka_name: str,
    tmp_path: Path,
    java_worker: Callable[..., JavaWorker],
    headgate_worker: Callable[..., HeadgateWorker],
) -> None:
    logs = LogTopics(kafka_broker.address, kafka_name, tmp_path / "out.txt")
    logs.add("a1", 2, 500)
    logs.add_near(logs.topic("a1-dlq"), f"more-{logs.topic('a1')}", logs.topic("x1"))
    java = java_worker(logs.address, kafka_name, SETTINGS)
    assert java.rest.create(logs.connector, logs.config()).status == 201
    java.rest.await_tasks(logs.connector, ["RUNNING"] * 2, SECONDS)
    await_true("what Java reads", logs.complete, SECONDS)

    ours = headgate_worker(logs.address, kafka_name, SETTINGS)
    both = {worker.url.removeprefix("http://") for worker in (java, ours)}
    await_true("a task each", lambda: owners(ours.rest, logs) == both, SECONDS, ours.tail)
    logs.write("a1", 2, 500)
    logs.add("b1", 2, 500)
    logs.add_near(logs.topic("b1x"))
    topics = {logs.topic("a1"), logs.topic("b1")}
    await_true("fair shares", lambda: shares(logs) == [topics, topics], SECONDS, ours.tail)
    await_true("what both read", logs.complete, SECONDS, ours.tail)
    logs.check()

    java.stop()
    mine = {ours.url.removeprefix("http://")}
    await_true("both tasks here", lambda: owners(ours.rest, logs) == mine, SECONDS, ours.tail)
    logs.write("b1", 2, 500)
    logs.add("c1", 2, 500)
    await_true("what ours read alone", logs.complete, SECONDS, ours.tail)
    time.sleep(1)
    logs.check()
    used = ours.rest.get(f"/connectors/{logs.connector}/topics").body
    assert sorted(used[logs.connector]["topics"]) == sorted({*topics, logs.topic("c1")})
