"""Delivery is at least once on Kafka while tasks and workers are killed.

Neither a source nor a sink whose partitions move between its tasks loses a record. Offsets never
run ahead of what is delivered.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient
from support.commands.processes import Process
from support.depth import tries
from support.kafka.cluster import (
    QUICK_GROUPS,
    KafkaCluster,
    KeptWorker,
    Watcher,
    await_true,
    create_topic,
    kill,
    quick_properties,
    read_committed,
    states_ever,
)

from local_kafka.broker import Broker

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("HEADGATE_CHAOS_SEED", "0")) or random.SystemRandom().randrange(
    1, 1 << 31
)
KILLS = tries(3, 6)
LINES = 250_000
PARTITIONS = 4
RATE_PER_S = 2_000
AT_LEAST_ONCE = {
    "exactly.once.source.support": "disabled",
    "offset.flush.interval.ms": "200",
    "consumer.session.timeout.ms": "2000",
    "consumer.heartbeat.interval.ms": "300",
    "consumer.metadata.max.age.ms": "1000",
}


@pytest.fixture
def broker(own_broker: Callable[..., Broker]) -> Broker:
    return own_broker(settings=QUICK_GROUPS)


@pytest.fixture
def chance(say: Callable[[str], None]) -> random.Random:
    say(f"seed {SEED}; run it again with HEADGATE_CHAOS_SEED={SEED}")
    return random.Random(SEED)


def kill_something(cluster: KafkaCluster, tasks: list[str], chance: random.Random) -> None:
    """A task's process, or the worker of one."""
    task = chance.choice(tasks)
    running: list[tuple[KeptWorker, Process]] = []

    def look() -> bool:
        running[:] = [(w, p) for w in cluster.workers for p in w.tasks(task)]
        return bool(running)

    await_true(task, look, 60, cluster.tail)
    worker, process = chance.choice(running)
    kill(process if chance.random() < 0.6 else worker.worker())


@pytest.mark.exhaustive
def test_a_source_loses_nothing_without_transactions(
    broker: Broker,
    kafka_cluster: Callable[..., KafkaCluster],
    tmp_path: Path,
    chance: random.Random,
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"line {n}\n" for n in range(LINES)))
    create_topic(broker.address, "lines")
    cluster = kafka_cluster(broker.address, "g", 2, quick_properties(**AT_LEAST_ONCE))
    config = {"connector.class": "FileStreamSource", "tasks.max": "1", "topic": "lines"}
    cluster.create("lines", {**config, "file": str(file), "batch.size": "50"})
    watcher = Watcher(broker.address, "lines")
    try:
        for _ in range(KILLS):
            before = watcher.count
            await_true("progress", lambda n=before: watcher.count > n, 60, cluster.tail)
            time.sleep(chance.uniform(0.1, 0.6))
            kill_something(cluster, ["lines-0"], chance)
        last = b"line %d" % (LINES - 1)
        assert last not in watcher.values, "the records ended too soon"
        await_true("last line", lambda: watcher.values[-1] == last, 120, cluster.tail)
    finally:
        watcher.close()
    found = [value for _, value in read_committed(broker.address, "lines")]
    assert list(dict.fromkeys(found)) == [b"line %d" % n for n in range(LINES)]
    assert len(found) > LINES, "no kill came between the records and their offsets: no proof"
    states = states_ever(broker.address, "g-status", 2)
    assert not any("FAILED" in each for each in states.values()), states


class Feed:
    """Fills a topic of `PARTITIONS` partitions evenly; every value names its place."""

    def __init__(self, address: str, topic: str) -> None:
        self.sent = 0
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": address, "log_level": 0})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.01):
            for _ in range(RATE_PER_S // 100 // PARTITIONS):
                for partition in range(PARTITIONS):
                    self._producer.produce(
                        self._topic, line(partition, self.sent), partition=partition
                    )
                self.sent += 1
            self._producer.poll(0)

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        assert self._producer.flush(30) == 0


def line(partition: int, offset: int) -> str:
    """Return a line of the common length that ends in a mark. So a line that was cut differs from
    all others."""
    return f"{partition}.{offset:08d};"


@contextmanager
def feeding(address: str, topic: str) -> Iterator[Feed]:
    feed = Feed(address, topic)
    try:
        yield feed
    finally:
        feed.end()


class Sink:
    """The output of a file sink, and its consumer group."""

    def __init__(self, broker: Broker, group: str, file: Path) -> None:
        self._client = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        self._group = group
        self._file = file

    def offsets(self) -> dict[int, int]:
        """The committed ones, by partition."""
        wanted = ConsumerGroupTopicPartitions(self._group)
        answer = self._client.list_consumer_group_offsets([wanted])[self._group].result(20)
        return {place.partition: place.offset for place in answer.topic_partitions}

    def shares(self) -> list[int]:
        """Return the number of partitions of each task."""
        answer = self._client.describe_consumer_groups([self._group])[self._group].result(20)
        return sorted(len(member.assignment.topic_partitions) for member in answer.members)

    def lines(self) -> list[str]:
        return self._file.read_text().split("\n") if self._file.exists() else []

    def size(self) -> int:
        return self._file.stat().st_size if self._file.exists() else 0

    def check(self) -> None:
        """Assert that all records before the committed offsets have been delivered."""
        offsets = self.offsets()  # first: the file may only be ahead of them
        lines = set(self.lines())
        for partition, end in offsets.items():
            missing = [n for n in range(end) if line(partition, n) not in lines]
            assert not missing, f"partition {partition} is committed up to {end}: {missing[:5]}"


def test_a_sink_delivers_all_and_commits_only_what_it_delivered(
    broker: Broker,
    kafka_cluster: Callable[..., KafkaCluster],
    tmp_path: Path,
    chance: random.Random,
) -> None:
    create_topic(broker.address, "events", PARTITIONS)
    cluster = kafka_cluster(broker.address, "g", 2, quick_properties(**AT_LEAST_ONCE))
    file = tmp_path / "out.txt"
    config = {"connector.class": "FileStreamSink", "tasks.max": "2", "topics": "events"}
    sink = Sink(broker, "connect-events", file)
    with feeding(broker.address, "events") as feed:
        cluster.create("events", {**config, "file": str(file)})
        for number in range(KILLS):
            before = sink.size()
            await_true("delivery", lambda n=before: sink.size() > n, 60, cluster.tail)
            time.sleep(chance.uniform(0.1, 0.8))
            kill_something(cluster, ["events-0", "events-1"], chance)
            sink.check()
            if number == KILLS // 2:
                check_pause(cluster, sink)
        shared = [PARTITIONS // 2] * 2
        await_true("even shares", lambda: sink.shares() == shared, 60, cluster.tail)
        await_true("RUNNING", lambda: cluster.running("events", 2), 60, cluster.tail)
    wanted = {line(p, n) for p in range(PARTITIONS) for n in range(feed.sent)}
    await_true("all lines", lambda: wanted <= set(sink.lines()), 60, cluster.tail)
    ends = dict.fromkeys(range(PARTITIONS), feed.sent)
    await_true("all offsets", lambda: sink.offsets() == ends, 20, lambda: str(sink.offsets()))
    states = states_ever(broker.address, "g-status", 2)
    assert not any("FAILED" in each for each in states.values()), states


def check_pause(cluster: KafkaCluster, sink: Sink) -> None:
    """Records come, and none is delivered, until the connector is resumed; nor when partitions
    move meanwhile."""

    def paused() -> bool:
        body = cluster.status("events")
        return body is not None and [t["state"] for t in body["tasks"]] == ["PAUSED"] * 2

    await_true("RUNNING", lambda: cluster.running("events", 2), 60, cluster.tail)
    assert cluster.ask("PUT", "/connectors/events/pause") is not None
    await_true("PAUSED", paused, 30, cluster.tail)
    size = sink.size()
    [victim] = [p for worker in cluster.workers for p in worker.tasks("events-0")]
    kill(victim)
    # Its partitions go to the other task; a task that begins with a pause joins no group.
    await_true("one member", lambda: len(sink.shares()) <= 1, 30, cluster.tail)
    await_true("PAUSED", paused, 30, cluster.tail)
    time.sleep(1.0)
    assert sink.size() == size
    assert cluster.ask("PUT", "/connectors/events/resume") is not None
    await_true("delivery after the pause", lambda: sink.size() > size, 30, cluster.tail)
