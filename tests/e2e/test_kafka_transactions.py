"""Behaviour that only a real broker has: open transactions that outlive their producers, markers
and limits."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    NewPartitions,
    ResourceType,
)
from support.embedded.worlds import read_on
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic
from support.kafka.rights import PASSWORD, RIGHTS, USER, allow, make_topics, with_login
from support.kafka.world import KafkaWorld

from headgate.ports import (
    Ack,
    FencedError,
    ProducerRecord,
    RefusedError,
    TooLargeError,
    TransactionOverError,
    TransportError,
    UnknownTopicError,
)
from headgate_kafka.transport import open_transport
from local_kafka.broker import Broker

TESTS = Path(__file__).resolve().parents[1]
END = 1 << 40


@pytest.fixture
def world(kafka_broker: Found) -> Iterator[KafkaWorld]:
    made = KafkaWorld(kafka_broker.address, {"worker.sync.timeout.ms": "1500"})
    yield made
    made.close()


def values(world: KafkaWorld, log: Any, wanted: int = 0) -> list[bytes | None]:
    """Wait a moment for this many values of topic `t`, and return them."""
    for _ in range(100):
        found = [r.value for r in log.read(world.name("t"), 0, 0, END, 1_000_000)]
        if len(found) >= wanted:
            return found
        time.sleep(0.02)
    return found


def foreign(world: KafkaWorld, tid: str) -> Producer:
    """A producer of somebody's, with a transaction begun."""
    producer = Producer(
        {"bootstrap.servers": world.servers, "transactional.id": world.name(tid), "log_level": 0}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    return producer


@contextlib.contextmanager
def task_process(world: KafkaWorld) -> Iterator[subprocess.Popen[str]]:
    """A task in the middle of its transaction, see `support.kafka.processes`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "support.kafka.processes", *world.address, world.name("t")],
        cwd=TESTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


# -- reading to the end --


def test_a_topic_of_aborted_records_alone_has_an_end(world: KafkaWorld) -> None:
    log = world.connect().config_log
    for _ in range(3):
        producer = foreign(world, "aborts")
        producer.produce(world.properties["config.storage.topic"], b"v", b"k", 0)
        producer.flush()
        producer.abort_transaction(10)
    # What ends a transaction in the log may come after its writer was told that it is over.
    await_true("end of three transactions", lambda: log.end() == 6, 10)
    assert read_on(log) == ([], 6)
    assert log.append([("k", b"v")], privileged=False) == 7
    assert [r.offset for r in read_on(log, 6)[0]] == [6]


def test_the_end_behind_a_marker_is_known_at_once(world: KafkaWorld) -> None:
    """librdkafka often tells of an end only when a fetch has waited in vain for half a second."""
    log = world.connect().config_log
    log.claim(1)
    took: list[float] = []
    for _ in range(12):
        log.append([("k", b"v")], privileged=True)
        began = time.monotonic()
        log.end()
        took.append(time.monotonic() - began)
    # One may be slow on a busy machine; without a look at the position four or five are.
    assert sum(seconds > 0.4 for seconds in took) < 2, took


def test_a_record_behind_an_open_transaction_is_waited_for_and_the_reason_told(
    world: KafkaWorld,
) -> None:
    transport = world.connect()
    log = transport.config_log
    log.append([("before", b"v")], privileged=False)
    producer = foreign(world, "open")
    producer.produce(world.properties["config.storage.topic"], b"never", b"k", 0)
    producer.flush()
    log.append([("behind", b"v")], privileged=False)
    with pytest.raises(TransportError, match=r"ends at 3, but nothing .* after 1 .*open trans"):
        read_on(log)
    # A client that only looks is not held up.
    began = time.monotonic()
    assert [r.key for r in log.read(0)[0]] in ([b"before"], [])
    assert time.monotonic() - began < 1
    transport.fencer.fence([world.name("open")])
    assert [r.key for r in read_on(log)[0]] == [b"before", b"behind"]


def test_offsets_are_read_to_the_end_once_the_dead_task_is_fenced(world: KafkaWorld) -> None:
    transport = world.connect()
    transport.record_log.create_topic(world.name("t"), 1)
    transport.offset_log.append([(b"k%d" % n, b"{}") for n in range(20)])
    with task_process(world) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    ended: list[int] = []
    reader = threading.Thread(target=lambda: ended.append(transport.offset_log.end()))
    reader.start()
    time.sleep(1)
    assert ended == []  # its transaction is open
    transport.fencer.fence([world.name("g-c-0")])
    reader.join(20)
    assert ended
    keys = {r.key for r in read_on(transport.offset_log)[0]}
    assert keys == {b"k%d" % n for n in range(20)}
    assert values(world, transport.record_log) == []


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_compacted_topic_with_holes(world: KafkaWorld) -> None:
    topic = world.properties["config.storage.topic"]
    world.alter_topic(
        topic,
        {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "0"},
    )
    log = world.connect().config_log
    for n in range(30):
        log.append([("same", b"%d" % n), (f"k{n}", b"v")], privileged=False)
        time.sleep(0.02)
    deadline = time.monotonic() + 60
    # The first record was `same`; the last segment is never compacted.
    while (found := read_on(world.connect().config_log)[0])[0].offset == 0:
        assert time.monotonic() < deadline, "nothing was compacted"
        log.append([("same", b"again")], privileged=False)
        time.sleep(1)
    end = log.end()
    found, position = read_on(world.connect().config_log)
    assert position == end == found[-1].offset + 1
    assert len(found) < end
    assert {r.key for r in found} == {b"same", *(b"k%d" % n for n in range(30))}


# -- zombies --


def test_a_task_that_is_killed_leaves_nothing(world: KafkaWorld) -> None:
    transport = world.connect()
    transport.record_log.create_topic(world.name("t"), 1)
    with task_process(world) as process:
        process.send_signal(signal.SIGKILL)
    heir = transport.record_log.producer("heir", world.name("g-c-0"), None)
    heir.init()
    assert read_on(transport.offset_log) == ([], 0)
    heir.send([ProducerRecord(world.name("t"), 0, None, b"heir")])
    heir.commit([(b'["c",{"p":1}]', b'{"n":2}')])
    assert values(world, transport.record_log, 1) == [b"heir"]
    assert [r.value for r in read_on(transport.offset_log)[0]] == [b'{"n":2}']


def test_a_zombie_that_wakes_up_is_refused(world: KafkaWorld) -> None:
    transport = world.connect()
    transport.record_log.create_topic(world.name("t"), 1)
    with task_process(world) as zombie:
        os.kill(zombie.pid, signal.SIGSTOP)
        heir = transport.record_log.producer("heir", world.name("g-c-0"), None)
        heir.init()
        heir.send([ProducerRecord(world.name("t"), 0, None, b"heir")])
        heir.commit([(b'["c",{"p":1}]', b'{"n":2}')])
        os.kill(zombie.pid, signal.SIGCONT)
        assert zombie.stdin is not None and zombie.stdout is not None
        zombie.stdin.write("\n")
        zombie.stdin.flush()
        assert zombie.stdout.readline().startswith(f"fenced: {world.name('g-c-0')} was shut out")
    assert values(world, transport.record_log, 1) == [b"heir"]
    assert [r.value for r in read_on(transport.offset_log)[0]] == [b'{"n":2}']


def test_what_was_just_sent_can_be_aborted(world: KafkaWorld) -> None:
    """The abort comes at every moment between the client's knowledge of a record and the
    coordinator's."""
    log = world.connect().record_log
    log.create_topic(world.name("t"), 1)
    producer = log.producer("c", world.name("g-c-0"), None)
    producer.init()
    for n in range(40):
        producer.send([ProducerRecord(world.name("t"), 0, None, b"aborted")])
        time.sleep(n / 20_000)
        producer.abort()
        producer.send([ProducerRecord(world.name("t"), 0, None, b"%d" % n)])
        producer.commit([(b"k", b"v")])
    assert values(world, log, 40) == [b"%d" % n for n in range(40)]


def test_who_was_fenced_is_told_so_although_the_next_one_aborted(world: KafkaWorld) -> None:
    """The coordinator shows the same as after a transaction that took too long."""
    log = world.connect().record_log
    log.create_topic(world.name("t"), 1)
    zombie, heir = (log.producer(name, world.name("g-c-0"), None) for name in ("zombie", "heir"))
    zombie.init()
    zombie.send([ProducerRecord(world.name("t"), 0, None, b"zombie")])
    heir.init()
    heir.send([ProducerRecord(world.name("t"), 0, None, b"heir")])
    heir.abort()
    with pytest.raises(FencedError, match="shut out"):
        zombie.commit([])


# -- not fenced, and yet over --


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_transaction_that_takes_too_long_is_told_apart_from_a_fence(
    kafka_broker: Found,
) -> None:
    world = KafkaWorld(kafka_broker.address, {"producer.transaction.timeout.ms": "2000"})
    transport = world.connect()
    log = transport.record_log
    log.create_topic(world.name("t"), 1)
    slow = log.producer("slow", world.name("slow"), None)
    slow.init()
    slow.send([ProducerRecord(world.name("t"), 0, None, b"slow")])
    shut_out = log.producer("zombie", world.name("g-c-0"), None)
    shut_out.init()
    shut_out.send([ProducerRecord(world.name("t"), 0, None, b"zombie")])
    time.sleep(1)
    transport.fencer.fence([world.name("g-c-0")])
    # The broker looks for such transactions every ten seconds.
    time.sleep(14)
    with pytest.raises(TransactionOverError, match=r"longer than its transaction.timeout.ms of 20"):
        slow.commit([])
    with pytest.raises(TransactionOverError, match=r"transaction.timeout.ms"):
        slow.commit([])
    with pytest.raises(FencedError, match="shut out"):
        shut_out.commit([])
    slow.init()
    slow.send([ProducerRecord(world.name("t"), 0, None, b"again")])
    slow.commit([])
    assert values(world, log, 1) == [b"again"]
    world.close()


def test_a_transaction_longer_than_brokers_allow_is_refused_for_good(kafka_broker: Found) -> None:
    world = KafkaWorld(kafka_broker.address, {"producer.transaction.timeout.ms": "3600000"})
    log = world.connect().record_log
    for number in range(3):
        producer = log.producer("c", world.name(f"g-c-{number}"), None)
        for _ in range(2):
            with pytest.raises(
                RefusedError, match=r"of 3600000 .* transaction\.max\.timeout\.ms\."
            ):
                producer.init()
    world.close()


def test_a_record_that_the_broker_refuses_ends_its_transaction(world: KafkaWorld) -> None:
    log = world.connect().record_log
    log.create_topic(world.name("t"), 1)
    world.alter_topic(world.name("t"), {"max.message.bytes": "1000"})
    producer = log.producer("c", world.name("g-c-0"), None)
    producer.init()
    producer.send([ProducerRecord(world.name("t"), 0, None, os.urandom(5_000))])
    for _ in range(2):
        with pytest.raises(TransactionOverError, match=r"max\.message\.bytes"):
            producer.commit([(b"k", b"v")])
    producer.abort()
    producer.init()
    producer.send([ProducerRecord(world.name("t"), 0, None, b"small")])
    producer.commit([(b"k", b"v")])
    assert values(world, log, 1) == [b"small"]


def test_offsets_wait_for_room_behind_records_that_fill_the_queue(kafka_broker: Found) -> None:
    limit = {"producer.queue.buffering.max.messages": "10"}
    world = KafkaWorld(kafka_broker.address, limit)
    log = world.connect().record_log
    log.create_topic(world.name("t"), 1)
    producer = log.producer("c", world.name("g-c-0"), None)
    producer.init()
    producer.send([ProducerRecord(world.name("t"), 0, None, b"x")] * 10)
    producer.commit([(b"k%d" % n, b"v") for n in range(25)])
    assert len(values(world, log, 10)) == 10
    world.close()


def test_more_offsets_than_the_queue_has_room_for_are_flushed(kafka_broker: Found) -> None:
    world = KafkaWorld(kafka_broker.address, {"queue.buffering.max.messages": "10"})
    log = world.connect().offset_log
    records = [(b"k%d" % n, b"v") for n in range(25)]
    log.append(records)
    assert {r.key for r in read_on(log)[0]} == {key for key, _ in records}
    copies = [(b"copy%d" % n, b"v") for n in range(25)]
    log.writer.append_later(log.topic, copies)
    log.append([(b"last", b"v")])
    assert {r.key for r in read_on(log)[0]} >= {key for key, _ in copies}
    world.close()


@pytest.mark.parametrize("tid", [None, "g-c-0"])
def test_a_topic_that_brokers_make_for_who_asks(world: KafkaWorld, tid: str | None) -> None:
    log = world.connect().record_log
    producer = log.producer("c", tid and world.name(tid), None)
    if tid:
        producer.init()
    producer.send([ProducerRecord(world.name("t"), None, None, b"v")])
    if tid:
        producer.commit([])
    else:
        producer.acks()
    assert values(world, log, 1) == [b"v"]


@pytest.mark.parametrize("tid", [None, "g-c-0"])
def test_a_partition_that_was_added_meanwhile(world: KafkaWorld, tid: str | None) -> None:
    log = world.connect().record_log
    log.create_topic(world.name("t"), 1)
    producer = log.producer("c", tid and world.name(tid), None)
    if tid:
        producer.init()
    producer.send([ProducerRecord(world.name("t"), 0, None, b"before")])
    admin = AdminClient({"bootstrap.servers": world.servers})
    topic = world.name("t")
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)
    # The controller answers before the broker tells clients of them.
    await_true(
        "three partitions", lambda: len(admin.list_topics(topic).topics[topic].partitions) == 3, 10
    )
    producer.send([ProducerRecord(topic, 2, None, b"after")])
    with pytest.raises(ValueError, match=r"partition 3 of .*, expected 0 to 2"):
        producer.send([ProducerRecord(world.name("t"), 3, None, b"v")])
    if tid:
        producer.commit([])
    else:
        assert [ack.error for ack in producer.acks()] == [None]
    after = world.connect().record_log
    await_true("record", lambda: after.read(world.name("t"), 2, 0, END, 10), 5)


@pytest.mark.parametrize("tid", [None, "g-c-0"])
def test_a_topic_that_was_made_anew_with_fewer_partitions(
    kafka_broker: Found, tid: str | None
) -> None:
    """Without transactions the client may learn it from the brokers' refusal. Within one it would
    try until the timeout, unless it is told before."""
    age_ms = "1" if tid else "300000"
    world = KafkaWorld(kafka_broker.address, {"producer.metadata.max.age.ms": age_ms})
    log, topic = world.connect().record_log, world.name("t")
    log.create_topic(topic, 3)
    producer = log.producer("c", tid and world.name(tid), None)
    if tid:
        producer.init()

    def send(number: int) -> None:
        producer.send([ProducerRecord(topic, None, None, b"%d" % number)])
        if tid:
            producer.commit([(b"k", b"%d" % number)])
        else:
            assert producer.acks() == [Ack(number, number)]

    for number in range(3):
        send(number)
    admin = AdminClient({"bootstrap.servers": world.servers})
    admin.delete_topics([topic])[topic].result(10)
    after = world.connect().record_log

    def made_anew() -> bool:
        with contextlib.suppress(KafkaException):  # the old one is there, or brokers were faster
            create_topic(world.servers, topic)
        with contextlib.suppress(UnknownTopicError):
            return bool(after.partitions(topic, age_s_max=0) == 1)
        return False

    await_true("made anew", made_anew, 10)
    for number in range(3, 9):
        send(number)
    assert values(world, after, 6) == [b"%d" % n for n in range(3, 9)]
    world.close()


def test_without_transactions_a_refused_record_is_told_by_its_number(world: KafkaWorld) -> None:
    log = world.connect().record_log
    log.create_topic(world.name("t"), 1)
    world.alter_topic(world.name("t"), {"max.message.bytes": "1000"})
    producer = log.producer("c", None, None)
    told: list[tuple[int, int, bool]] = []
    for size in (10, 5_000, 10):  # refused by the broker
        producer.send([ProducerRecord(world.name("t"), 0, None, os.urandom(size))])
        told += [(ack.first, ack.last, ack.error is None) for ack in producer.acks()]
    assert told == [(0, 0, True), (1, 1, False), (2, 2, True)]
    for size in (10, 2_000_000, 10):  # refused by the client
        producer.send([ProducerRecord(world.name("t"), 0, None, os.urandom(size))])
    good, refused, last = producer.acks()
    assert "MSG_SIZE_TOO_LARGE" in str(refused.error)
    assert (good.first, good.last, refused.first, refused.last) == (3, 3, 4, 4)
    assert (last.first, last.last, last.error) == (5, 5, None)
    assert len(values(world, log, 4)) == 4


# -- the leader --


def test_a_claim_is_only_a_note_where_exactly_once_is_disabled(kafka_broker: Found) -> None:
    world = KafkaWorld(kafka_broker.address, {"exactly.once.source.support": "disabled"})
    one, other = world.connect().config_log, world.connect().config_log
    with pytest.raises(FencedError, match="not claimed"):
        one.append([("k", b"v")], privileged=True)
    one.claim(1)
    other.claim(2)
    assert one.append([("k", b"1")], privileged=True) == 1
    assert other.append([("k", b"2"), ("l", b"2")], privileged=True) == 3  # and no markers
    assert log_values(one) == [b"1", b"2", b"2"]
    world.close()


def log_values(log: Any) -> list[bytes | None]:
    return [r.value for r in read_on(log)[0]]


def test_a_fence_in_the_middle_of_an_append(world: KafkaWorld) -> None:
    """Delivery reports come while the fatal error is pending."""
    log = world.connect().config_log
    log.claim(1)
    log.append([("k", b"0")], privileged=True)
    client = log._leader._client
    begin = client.begin_transaction

    class Overtaken:
        """The client, overtaken when the transaction has begun and sent something."""

        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

        def begin_transaction(self) -> None:
            begin()
            client.produce(world.properties["config.storage.topic"], b"early", b"k", 0)
            client.flush(5)
            world.connect().config_log.claim(2)

    log._leader._client = Overtaken()
    with pytest.raises(FencedError, match="overtaken"):
        log.append([(f"k{n}", b"zombie") for n in range(100)], privileged=True)
    with pytest.raises(FencedError, match="overtaken by a later one"):
        log.append([("k", b"zombie")], privileged=True)
    assert log_values(log) == [b"0"]
    log.claim(3)
    log.append([("k", b"1")], privileged=True)
    assert log_values(log) == [b"0", b"1"]


def test_records_too_large_for_the_topic_are_refused_and_the_claim_given_up(
    world: KafkaWorld,
) -> None:
    world.alter_topic(world.properties["config.storage.topic"], {"max.message.bytes": "1000"})
    log = world.connect().config_log
    log.claim(1)
    with pytest.raises(TooLargeError, match=r"MSG_SIZE_TOO_LARGE.*max\.message\.bytes"):
        log.append([("a", b"v"), ("b", os.urandom(5_000))], privileged=True)
    with pytest.raises(TooLargeError, match="MSG_SIZE_TOO_LARGE"):
        log.append([("b", os.urandom(5_000))], privileged=False)
    assert log_values(log) == []
    with pytest.raises(FencedError, match="given up"):
        log.append([("a", b"v")], privileged=True)
    log.claim(1)
    # The client itself refuses what is larger than it may send.
    with pytest.raises(TooLargeError, match="MSG_SIZE_TOO_LARGE"):
        log.append([("b", os.urandom(5_000_000))], privileged=True)
    log.claim(1)
    log.append([("a", b"v")], privileged=True)
    assert log_values(log) == [b"v"]


# -- rights --


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_missing_right_to_the_transactional_id_is_for_good(
    own_broker: Callable[..., Broker],
) -> None:
    broker = own_broker(users={USER: PASSWORD})
    admin = AdminClient({"bootstrap.servers": broker.address})
    make_topics(admin)
    allow(admin, *RIGHTS)
    transport = open_transport(with_login(broker))
    refused = transport.record_log.producer("c", "workers-other-0", None)
    lacks = (
        "workers-other-0 could not .*User:connect lacks Write on TransactionalId:workers-other-0"
    )
    with pytest.raises(RefusedError, match=lacks):
        refused.init()
    allow(admin, (ResourceType.TRANSACTIONAL_ID, "workers-other-0", AclOperation.WRITE))

    def initialised() -> bool:
        with contextlib.suppress(RefusedError):
            refused.init()
            return True
        return False

    await_true("right at the broker", initialised, 20)
    transport.close()


# -- the broker goes and comes back --


@pytest.mark.slow
def test_a_broker_that_is_killed_in_the_middle(own_broker: Callable[..., Broker]) -> None:
    broker = own_broker(own_controller=True)
    world = KafkaWorld(broker.address, {"worker.sync.timeout.ms": "1500"})
    transport = world.connect()
    log = transport.record_log
    log.create_topic(world.name("t"), 1)
    transport.config_log.claim(1)
    producer = log.producer("c", world.name("g-c-0"), None)
    producer.init()
    consumer = log.consumer(world.name("g"), [world.name("t")], "c")
    for n in range(3):
        producer.send([ProducerRecord(world.name("t"), 0, None, b"%d" % n)])
        producer.commit([(b"k", b"%d" % n)])
    producer.send([ProducerRecord(world.name("t"), 0, None, b"3")])
    broker.kill()
    with pytest.raises(TransportError, match=broker.address):
        transport.config_log.end()
    with pytest.raises(TransportError, match=f"{broker.address}.*(refused|timed out|Timed out)"):
        transport.config_log.append([("k", b"lost?")], privileged=True)
    with pytest.raises(FencedError, match="given up after a failure"):
        transport.config_log.append([("k", b"lost?")], privileged=True)
    broker.start()
    producer.commit([(b"k", b"3")])
    assert values(world, log, 4) == [b"0", b"1", b"2", b"3"]
    transport.config_log.claim(2)
    transport.config_log.append([("k", b"after")], privileged=True)
    assert log_values(transport.config_log)[-1] == b"after"
    assert {r.value for r in read_on(transport.offset_log)[0]} == {b"3"}
    seen: list[bytes | None] = []
    deadline = time.monotonic() + 30
    while len(seen) < 4 and time.monotonic() < deadline:
        seen += [r.value for r in consumer.poll(10, 500)]
    assert seen == [b"0", b"1", b"2", b"3"]
    consumer.close()
    world.close()
