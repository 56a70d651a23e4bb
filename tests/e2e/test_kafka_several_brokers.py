"""Each of three brokers is killed once, together with the worker that has the task, while records
flow exactly once.

A killed broker may have the group's coordinator, the transaction coordinator or a partition. It
moves to another broker, where the task's old producer is fenced and its successor goes on.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from support.kafka.cluster import (
    QUICK_GROUPS,
    KafkaCluster,
    Watcher,
    await_true,
    create_topic,
    kill,
    quick_properties,
    read_committed,
    states_ever,
)
from support.task.growing_file import GrowingFile

from headgate_kafka.admin.doctor import KafkaDoctor
from headgate_kafka.admin.reach import Admin
from headgate_kafka.admin.topics import InternalTopic, ensure_topics
from headgate_kafka.logs.reading import Topics
from local_kafka.broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

REPLICAS = 3
SAFE = {
    "offsets.topic.replication.factor": str(REPLICAS),
    "transaction.state.log.replication.factor": str(REPLICAS),
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    # All of it on the broker that is killed, now and then, and not a quarter of it.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
STORAGE = {
    f"{topic}.storage.replication.factor": str(REPLICAS) for topic in ("config", "offset", "status")
}
FLOW_S = 90.0
"""Until records flow again, at most."""


def in_sync(address: str) -> int:
    """Return the lowest number of in-sync replicas of any partition."""
    topics = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=20)
    return min(
        len(partition.isrs)
        for topic in topics.topics.values()
        for partition in topic.partitions.values()
    )


@pytest.fixture
def three_brokers(own_broker: Callable[..., Broker]) -> list[Broker]:
    settings = SAFE | QUICK_GROUPS
    first = own_broker(own_controller=True, settings=settings)
    others = [own_broker(beside=first, node_id=number, settings=settings) for number in (3, 4)]
    return [first, *others]


def addresses(brokers: Sequence[Broker]) -> str:
    return ",".join(broker.address for broker in brokers)


def test_who_takes_a_broker_for_the_controller_that_is_gone_asks_another(
    three_brokers: list[Broker],
) -> None:
    """A starting task, a worker and the doctor ask another broker. librdkafka alone would ask the
    dead one again and again."""
    address, gone = addresses(three_brokers), three_brokers[-1]
    create_topic(address, "t", 2, replicas=REPLICAS)
    settings = {"bootstrap.servers": address}
    # Each has a client of its own, which has not looked again for another's sake.
    topics, others = Topics(settings, print), Topics(settings, print)
    admin = Admin(settings, warn=print)
    doctor = KafkaDoctor({**settings, "group.id": "g"}, print)
    for client in (topics.client, others.client, admin.client, doctor._topics.client):
        # Brokers name one or the other.
        await_true(
            "controller",
            lambda client=client: client.list_topics(timeout=10).controller_id == gone.node_id,
            30,
        )
    gone.kill()
    began = time.monotonic()
    assert topics.partitions("t") == 2
    policy = [ConfigResource(ResourceType.TOPIC, "t")]
    assert others.settings(policy)["t"]["cleanup.policy"].value == "delete"
    ensure_topics(
        admin, [InternalTopic("t2", "offset.storage.topic", "offsets", 2, REPLICAS)], warn=print
    )
    assert time.monotonic() - began < 25
    assert len(doctor.brokers().addresses) == 2


def test_each_of_three_brokers_is_killed_with_the_worker_of_the_task(
    three_brokers: list[Broker],
    kafka_cluster: Callable[..., KafkaCluster],
    tmp_path: Path,
) -> None:
    address = addresses(three_brokers)
    create_topic(address, "lines", replicas=REPLICAS)
    cluster = kafka_cluster(address, "g", 2, quick_properties(**STORAGE))
    growing = GrowingFile(tmp_path / "lines.txt", per_second=5_000, at_once=100)
    watcher = Watcher(address, "lines")
    config = {"connector.class": "FileStreamSource", "topic": "lines", "file": str(growing.path)}
    cluster.create("lines", config)

    def why() -> str:
        seen = f"{watcher.count:,} of {len(growing.lines):,}"
        return f"{seen}; {cluster.status('lines')}\n{cluster.tail()}"

    def flowing() -> None:
        """Wait until a line that is written now arrives."""
        written = len(growing.lines)
        await_true("progress", lambda: watcher.count >= written, FLOW_S, why)

    flowing()
    for broker in three_brokers:
        await_true("replicas", lambda: in_sync(address) == REPLICAS, FLOW_S, why)
        await_true("connector", lambda: cluster.running("lines", 1), FLOW_S, why)
        owner = cluster.status("lines")["tasks"][0]["worker_id"]
        broker.kill()
        kill(next(worker.worker() for worker in cluster.workers if worker.worker_id == owner))
        flowing()
        broker.start()
        flowing()
    lines = growing.stop()
    flowing()
    watcher.close()
    await_true("replicas", lambda: in_sync(address) == REPLICAS, FLOW_S, why)
    await_true("connector", lambda: cluster.running("lines", 1), FLOW_S, why)
    found = [value for _, value in read_committed(address, "lines")]
    assert found == [line.encode() for line in lines]
    assert watcher.values == found
    assert "FAILED" not in set().union(*states_ever(address, "g-status", 2).values())
