"""Planned batches read ranges of a topic in which some offsets have no record: transaction markers,
aborted records, and records that retention deleted."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from support.kafka.broker import Found
from support.kafka.world import worker_properties

from headgate.ports import RecordLog, TransportError
from headgate_runtime.transports.select import open_elsewhere, opener_argument

pytestmark = pytest.mark.slow

SOON_S = 5.0
"""Far less than a reader waits for what does not come."""


class Topic:
    """A topic of one partition that transactions write, read as an executor reads it."""

    def __init__(self, servers: str, name: str) -> None:
        self.name = name
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.admin.create_topics([NewTopic(name, 1, 1)])[name].result()
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
        self._producer.init_transactions()
        argument = opener_argument(worker_properties(servers, name), {}, "lake")
        self._opened = open_elsewhere(argument)
        self.log: RecordLog = self._opened.record_log

    def begin(self, count: int) -> None:
        self._producer.begin_transaction()
        for n in range(count):
            self._producer.produce(self.name, str(n), partition=0)
        self._producer.flush()

    def commit(self, count: int) -> None:
        self.begin(count)
        self._producer.commit_transaction()

    def abort(self, count: int = 0) -> None:
        if count:
            self.begin(count)
        self._producer.abort_transaction()

    def ends_at(self, end: int) -> bool:
        """The marker of a transaction comes a moment after its producer was answered."""
        until = time.monotonic() + SOON_S
        while (seen := self.log.end_offsets([self.name])[self.name, 0]) != end:
            assert time.monotonic() < until, f"the topic ends at {seen}, expected {end}"
            time.sleep(0.01)
        return True

    def read(self, start: int, end: int) -> list[int]:
        """Offsets of the records; in time, or the range would hold up its batch."""
        began = time.monotonic()
        found = [r.offset for r in self.log.read(self.name, 0, start, end, 1_000)]
        assert time.monotonic() - began < SOON_S
        return found

    def close(self) -> None:
        self._opened.close()


@pytest.fixture
def topic(kafka_broker: Found, kafka_name: str) -> Iterator[Topic]:
    made = Topic(kafka_broker.address, kafka_name)
    yield made
    made.close()


def test_the_end_of_a_plan_is_reached_wherever_it_is(topic: Topic) -> None:
    topic.commit(3)  # 0 to 2, marker 3
    topic.abort(2)  # 4 and 5, marker 6
    topic.commit(1)  # 7, marker 8
    assert topic.ends_at(9)
    assert topic.read(0, 9) == [0, 1, 2, 7]
    # In any order, and with an end before, in and after what has no records.
    for start, end, offsets in (
        (8, 9, []),
        (3, 4, []),
        (4, 7, []),
        (3, 7, []),
        (5, 8, [7]),
        (2, 5, [2]),
        (0, 3, [0, 1, 2]),
        (3, 9, [7]),
    ):
        assert topic.read(start, end) == offsets, (start, end)


def test_ranges_in_any_order_are_read_without_waiting(topic: Topic) -> None:
    """A fetch beyond the end would keep the next one waiting for `fetch.max.wait.ms`, 500 ms."""
    for _ in range(20):
        topic.commit(9)
    assert topic.ends_at(200)
    began = time.monotonic()
    for start in range(180, -10, -10):
        assert len(topic.read(start, start + 10)) == 9
    assert time.monotonic() - began < SOON_S


def test_an_open_transaction_is_not_planned(topic: Topic) -> None:
    topic.commit(3)
    topic.begin(5)
    assert topic.ends_at(4)
    assert topic.read(0, 4) == topic.read(0, 9) == [0, 1, 2]
    # A topic may end in what was aborted.
    topic.abort()
    assert topic.ends_at(10)
    assert topic.read(4, 10) == []


def test_what_retention_took_is_not_passed_over(topic: Topic) -> None:
    topic.commit(10)
    assert topic.ends_at(11)
    assert topic.log.start_offsets([topic.name, "no-such-topic"]) == {(topic.name, 0): 0}
    place = TopicPartition(topic.name, 0, 6)
    topic.admin.delete_records([place])[place].result()
    assert topic.log.start_offsets([topic.name]) == {(topic.name, 0): 6}
    assert topic.read(6, 11) == [6, 7, 8, 9]
    with pytest.raises(TransportError, match=r"begins at offset 6 by now, .* from 5 on is gone"):
        topic.read(5, 11)


def test_offsets_are_set_and_deleted_without_a_member(topic: Topic) -> None:
    topic.commit(3)
    group = f"connect-{topic.name}"
    assert topic.log.committed(group) == {}
    topic.log.commit_unguarded(group, {(topic.name, 0): 4})
    assert topic.log.committed(group) == {(topic.name, 0): 4}
    topic.log.commit_unguarded(group, {(topic.name, 0): 2})
    assert topic.log.committed(group) == {(topic.name, 0): 2}
    topic.log.commit_unguarded(group, {(topic.name, 0): None})
    assert topic.log.committed(group) == {}


def test_client_settings_of_the_connector_hold_on_executors(
    kafka_broker: Found, kafka_name: str
) -> None:
    """The connector's records may be on another cluster than the worker's topics."""
    worker = worker_properties("127.0.0.1:1", kafka_name)
    overrides = {
        f"{role}.override.bootstrap.servers": kafka_broker.address for role in ("admin", "consumer")
    }
    admin = AdminClient({"bootstrap.servers": kafka_broker.address})
    admin.create_topics([NewTopic(kafka_name, 1, 1)])[kafka_name].result()
    producer = Producer({"bootstrap.servers": kafka_broker.address})
    producer.produce(kafka_name, "x", partition=0)
    producer.flush()
    opened = open_elsewhere(opener_argument(worker, overrides, "lake"))
    try:
        assert [r.value for r in opened.record_log.read(kafka_name, 0, 0, 1, 10)] == [b"x"]
    finally:
        opened.close()
