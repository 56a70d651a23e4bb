"""A consumer leaves its group while a rebalance is under way."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from support.depth import first
from support.kafka.broker import Found
from support.kafka.cluster import await_true
from support.kafka.world import KafkaWorld
from support.task.body_bench import BodyBench

from headgate.connector.api import SinkRecord, SinkTask
from headgate.ports import (
    ProducerRecord,
    RebalancedError,
    RefusedError,
    TopicPartition,
    TransportError,
)
from headgate.task import sink
from headgate.task.messages import TaskKind, TaskOutcome
from headgate_runtime.tasks.sink_body import SinkPerformer

pytestmark = pytest.mark.slow

PARTITIONS = 4
RECORDS = 10
"""Of each partition."""
STRATEGY = "consumer.partition.assignment.strategy"
WAYS: Mapping[str, Mapping[str, Any]] = {
    "range": {STRATEGY: "org.apache.kafka.clients.consumer.RangeAssignor"},
    "cooperative": {STRATEGY: "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"},
    "brokers": {
        "consumer.group.protocol": "consumer",
        # These are the brokers' to say then, and refused.
        "consumer.session.timeout.ms": None,
        "consumer.heartbeat.interval.ms": None,
    },
}
"""How partitions are shared out."""
LATE_S = 2.0
"""Enough for who heartbeats every half second to hear of a rebalance."""


@pytest.fixture(params=first(1, WAYS))
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(kafka_broker: Found, way: str) -> Iterator[KafkaWorld]:
    """A world with topic `t`."""
    made = KafkaWorld(kafka_broker.address, WAYS[way])
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
    """Return the members of the consumers' group, as the brokers now know them."""
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
    """A static member comes back within its session timeout, without a rebalance. Source:
    KIP-345."""
    world = KafkaWorld(kafka_broker.address, {"consumer.group.instance.id": "one"})
    world.connect().record_log.create_topic(world.name("t"), PARTITIONS)
    one = Member(world)
    await_true("partitions", lambda: one.holds(PARTITIONS), 30)
    one.consumer.close()
    assert [member.group_instance_id for member in members(world)] == ["one"]
    world.close()


@pytest.mark.parametrize("sharing", first(1, ["range", "brokers"]))
def test_of_two_static_members_with_one_id_one_stops_with_the_reason(
    kafka_broker: Found, sharing: str
) -> None:
    """Otherwise both tasks start again for ever, each fenced by the other (karafka #1173). With the
    brokers' own protocol the second one waits, and the first is left alone."""
    twins = {**WAYS[sharing], "consumer.group.instance.id": "one"}
    world = KafkaWorld(kafka_broker.address, twins)
    world.connect().record_log.create_topic(world.name("t"), PARTITIONS)
    one = Member(world)
    await_true("partitions", lambda: one.holds(PARTITIONS), 30)
    other = Member(world)
    stopped: dict[str, TransportError] = {}

    def one_has_stopped() -> bool:
        for name, member in (("one", one), ("other", other)):
            try:
                member.poll()
            except TransportError as error:
                stopped[name] = error
        return bool(stopped)

    await_true("one has stopped", one_has_stopped, 60)
    ((name, error),) = stopped.items()
    # Only a fenced task has failed: the second may come after one that was killed.
    expected = ("one", True) if sharing == "range" else ("other", False)
    assert (name, isinstance(error, RefusedError)) == expected
    text = str(error)
    for words in ("'one'", "group.instance.id", "tasks.max"):
        assert words in text
    left = other if name == "one" else one
    await_true("all partitions", lambda: left.holds(PARTITIONS), 60)
    if name == "one":
        with pytest.raises((RefusedError, RebalancedError)):
            one.consumer.commit({(world.name("t"), 0): 1})
    one.consumer.close()
    other.consumer.close()
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


class Collecting(SinkTask):
    """`values`: what all tasks of a test were given."""

    values: Counter[str]

    def start(self, config: Mapping[str, str]) -> None:
        pass

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.values.update(str(record.value) for record in records)


class Churn:
    """Sink tasks of one group that are stopped and started again, one at a time, while records
    come."""

    def __init__(self, world: KafkaWorld, folder: Path, members: int) -> None:
        self.values = Counter[str]()
        self.sent = 0
        self.stops = 0
        self._world = world
        self._folder = folder
        self._task = type("Collecting", (Collecting,), {"values": self.values})
        self._benches = [self._started() for _ in range(members)]
        self._over = threading.Event()
        self._writer = threading.Thread(target=self._write)
        self._writer.start()

    def _started(self) -> BodyBench:
        return BodyBench(
            self._folder,
            self._task,
            {
                "topics": self._world.name("t"),
                "consumer.override.group.id": self._world.name("g"),
            },
            kind=TaskKind.SINK,
            limit_ms=600_000,
            settings={
                "offset.flush.interval.ms": "3600000",
                "task.shutdown.graceful.timeout.ms": "60000",
            },
            open_transport=lambda _spec: self._world.connect(),
        ).start()

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._world.servers})
        while not self._over.wait(0.02):
            for _ in range(10):
                producer.produce(self._world.name("t"), b"value %d" % self.sent)
                self.sent += 1
            producer.poll(0)
        producer.flush()

    def go_on(self, random: Random) -> None:
        at = random.randrange(len(self._benches))
        assert self._benches[at].stop().outcome is TaskOutcome.STOPPED
        self.stops += 1
        self._benches[at] = self._started()
        time.sleep(random.random() / 4)

    def await_all(self) -> None:
        self._over.set()
        self._writer.join()
        await_true("all records", lambda: len(self.values) >= self.sent + PARTITIONS * RECORDS, 60)

    def close(self) -> None:
        self._over.set()
        for bench in self._benches:
            bench.stop()
        self._writer.join()


@pytest.mark.exhaustive
def test_tasks_that_are_stopped_while_partitions_are_shared_out_double_nothing(
    way: str, world: KafkaWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the default assignor all partitions are revoked, and committed, before the new
    assignment. With the cooperative one a commit during the rebalance is refused, and tried
    again."""
    tried_again: list[int] = []
    serve = SinkPerformer._serve_group

    def seen(performer: SinkPerformer, timeout_ms: int) -> None:
        tried_again.append(timeout_ms)
        serve(performer, timeout_ms)

    monkeypatch.setattr(SinkPerformer, "_serve_group", seen)
    # What others hold up for longer comes twice, and they may: the machine is a busy one.
    monkeypatch.setattr(sink, "LAST_COMMIT_MS", 10_000)
    wanted = 3 if way == "cooperative" else 0
    churn = Churn(world, tmp_path, 4)
    random = Random(5)
    until = time.monotonic() + 120
    try:
        while churn.stops < 20 or len(tried_again) < wanted:
            churn.go_on(random)
            assert time.monotonic() < until, f"{len(tried_again)} of {churn.stops} were refused"
        churn.await_all()
    finally:
        churn.close()
    assert {value: count for value, count in churn.values.items() if count > 1} == {}
