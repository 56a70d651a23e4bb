"""A sink's consumer on a real broker keeps its contract with the task body, which asks more than
the port's."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from kafka import KafkaProducer
from support.depth import first
from support.kafka.broker import Found
from support.kafka.consumers import (
    COOPERATIVE,
    OPENED,
    await_partitions,
    close_opened,
    drain,
    opened,
    records_of,
)
from support.kafka.world import SESSION_MS, KafkaWorld

from headgate.connector.sink_names import TopicPattern
from headgate.ports import (
    ConsumerRecord,
    GroupInUseError,
    ProducerRecord,
    RebalancedError,
    TransportError,
)


@pytest.fixture
def world(kafka_world: KafkaWorld) -> KafkaWorld:
    return kafka_world


@pytest.fixture
def log(world: KafkaWorld) -> Any:
    """The log of a world that has topic `t`, with ten records in each of two partitions."""
    found = world.connect().record_log
    topic = world.name("t")
    found.create_topic(topic, 2)
    producer = found.producer("c", None, None)
    producer.send([ProducerRecord(topic, n % 2, None, b"%d" % n) for n in range(20)])
    producer.acks()
    producer.close()
    return found


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    yield
    close_opened()


def test_a_task_that_opens_its_partitions_says_where_they_begin(
    world: KafkaWorld, log: Any
) -> None:
    consumer = opened(world, log)
    place = (world.name("t"), 1)

    def open_partitions(given: Any) -> None:
        assert sorted(given) == sorted(consumer.assignment())
        consumer.seek(place, 7)

    consumer.on_rebalance(open_partitions, lambda _: None)
    found = drain(consumer, 13)
    assert sorted(r.offset for r in found if r.partition == 1) == [7, 8, 9]
    assert sorted(r.offset for r in found if r.partition == 0) == list(range(10))
    consumer.close()


def test_a_poll_that_wants_nothing_loses_nothing(world: KafkaWorld, log: Any) -> None:
    consumer = opened(world, log)
    await_partitions(consumer)
    for _ in range(20):
        assert consumer.poll(0, 50) == []
    found = drain(consumer, 20)
    for partition in range(2):
        assert [r.offset for r in found if r.partition == partition] == list(range(10))
    # Nor does what it kept come after a seek.
    consumer.seek((world.name("t"), 0), 5)
    assert consumer.poll(0, 500) == []
    consumer.seek((world.name("t"), 0), 9)
    assert [r.offset for r in drain(consumer, 1)] == [9]
    consumer.close()


def test_a_poll_gives_no_more_than_max_poll_records(kafka_broker: Found) -> None:
    world = KafkaWorld(kafka_broker.address, {"consumer.max.poll.records": "3"})
    log = world.connect().record_log
    log.create_topic(world.name("t"), 2)
    producer = log.producer("c", None, None)
    producer.send(records_of(world.name("t"), 20))
    producer.acks()
    consumer = opened(world, log)
    sizes: list[int] = []
    seen: list[ConsumerRecord] = []
    deadline = time.monotonic() + 30
    while len(seen) < 20:
        assert time.monotonic() < deadline, sizes
        found = consumer.poll(100, 200)
        sizes.append(len(found))
        seen += found
    producer.close()
    consumer.close()
    world.close()
    assert max(sizes) == 3
    for partition in range(2):
        assert [r.offset for r in seen if r.partition == partition] == list(range(10))


def test_what_was_kept_stays_kept_while_its_partition_is_paused(
    world: KafkaWorld, log: Any
) -> None:
    consumer = opened(world, log)
    await_partitions(consumer)
    for _ in range(10):
        assert consumer.poll(0, 50) == []
    places = sorted(consumer.assignment())
    consumer.pause(places)
    assert consumer.poll(100, 500) == []
    consumer.resume(places)
    assert sorted(r.offset for r in drain(consumer, 20)) == sorted([*range(10), *range(10)])
    consumer.close()


def test_partitions_that_come_during_a_pause_are_paused_from_the_start(
    world: KafkaWorld, log: Any
) -> None:
    """A sink that rests pauses new partitions as they come, and must not get their records."""
    consumer = opened(world, log)
    consumer.on_rebalance(consumer.pause, lambda _: None)
    await_partitions(consumer)
    assert consumer.poll(100, 1_000) == []
    consumer.resume(sorted(consumer.assignment()))
    drain(consumer, 20)
    consumer.close()


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_what_a_task_raises_when_its_partitions_come_goes_to_who_polls(
    world: KafkaWorld, log: Any, kind: type[BaseException]
) -> None:
    consumer = opened(world, log)

    def fail(_places: Any) -> None:
        raise kind("of the task")

    consumer.on_rebalance(fail, lambda _: None)
    with pytest.raises(kind, match="of the task"):
        drain(consumer, 1)
    consumer.on_rebalance(lambda _: None, fail)
    with pytest.raises(kind, match="of the task"):
        consumer.close()


def test_offsets_may_be_committed_while_leaving(world: KafkaWorld, log: Any) -> None:
    consumer = opened(world, log)
    drain(consumer, 20)
    place = (world.name("t"), 0)
    consumer.on_rebalance(lambda _: None, lambda _: consumer.commit({place: 4}))
    consumer.close()
    assert log.committed(world.name("g")) == {place: 4}


@pytest.mark.exhaustive
def test_partitions_that_are_lost_take_no_commit(world: KafkaWorld, log: Any) -> None:
    consumer = opened(world, log)
    drain(consumer, 20)
    place = (world.name("t"), 0)
    refused: list[str] = []

    def revoked(_places: Any) -> None:
        with pytest.raises(RebalancedError, match="UNKNOWN_MEMBER_ID") as caught:
            consumer.commit({place: 4})
        refused.append(str(caught.value))

    consumer.on_rebalance(lambda _: None, revoked)
    time.sleep(SESSION_MS / 1000 * 1.5)  # its limit between two polls
    deadline = time.monotonic() + 20
    while not refused:
        assert time.monotonic() < deadline
        consumer.poll(1, 100)
    consumer.on_rebalance(lambda _: None, lambda _: None)
    assert log.committed(world.name("g")) == {}
    consumer.close()


@pytest.mark.exhaustive
def test_who_polled_too_late_commits_nothing(world: KafkaWorld, log: Any) -> None:
    """The commit is refused also before the next poll. Out of its group, the consumer looks to the
    broker like one without a group, which may commit."""
    consumer = opened(world, log)
    drain(consumer, 20)
    time.sleep(SESSION_MS / 1000 * 1.5)
    with pytest.raises(RebalancedError):
        consumer.commit({(world.name("t"), 0): 4})
    assert log.committed(world.name("g")) == {}
    consumer.close()


def test_offsets_of_a_group_with_members_are_not_set(world: KafkaWorld, log: Any) -> None:
    consumer = opened(world, log)
    drain(consumer, 20)
    place = (world.name("t"), 0)
    with pytest.raises(GroupInUseError, match="a group with members can only be changed by these"):
        log.commit_unguarded(world.name("g"), {place: 4})
    with pytest.raises(GroupInUseError, match=r"could not be deleted"):
        log.commit_unguarded(world.name("g"), {place: None})
    consumer.close()


def test_topics_that_do_not_exist_are_said(world: KafkaWorld, log: Any) -> None:
    group = world.name("g")
    with pytest.raises(TransportError, match="offsets of group") as refused:
        log.commit_unguarded(group, {(world.name("none"), 0): 1})
    assert "members" not in str(refused.value)
    assert log.end_offsets([world.name("none")]) == {}


def test_topics_that_are_gone_have_no_offsets(world: KafkaWorld, log: Any) -> None:
    """A pattern's list of topics may be some minutes old."""
    gone = world.name("gone")
    log.create_topic(gone, 1)
    both = [gone, world.name("t")]
    assert len(log.end_offsets(both)) == 3
    client = AdminClient({"bootstrap.servers": world.servers})
    client.delete_topics([gone])[gone].result(10)
    time.sleep(0.5)
    assert log.end_offsets(both) == {(world.name("t"), n): 10 for n in range(2)}
    assert log.start_offsets(both) == {(world.name("t"), n): 0 for n in range(2)}


def test_all_topics_are_listed_as_often_as_metadata_is_refreshed(kafka_broker: Found) -> None:
    """Planned batches ask before each batch; a large cluster's answer is of megabytes."""
    world = KafkaWorld(kafka_broker.address, {"consumer.metadata.max.age.ms": "2000"})
    log = world.connect().record_log
    begun = time.monotonic()
    before = log.topic_names()
    log.create_topic(world.name("new"), 1)
    while log.topic_names() == before:
        time.sleep(0.05)
    assert time.monotonic() - begun >= 2
    assert set(log.topic_names()) >= {*before, world.name("new")}
    world.close()


def test_partitions_that_a_topic_grows_by_are_seen(world: KafkaWorld, log: Any) -> None:
    """A reader without a group, as planned batches have, would otherwise never read them."""
    topic = world.name("t")
    assert sorted(log.end_offsets([topic])) == [(topic, 0), (topic, 1)]
    grow(world, topic, 3)
    assert log.partitions(topic) == 2, "asked every metadata.max.age.ms"
    deadline = time.monotonic() + 20
    while len(log.end_offsets([topic])) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    grow(world, topic, 4)
    while log.partitions(topic, age_s_max=0) < 4:
        assert time.monotonic() < deadline, "asked now"
    assert log.partitions(topic) == 4


def grow(world: KafkaWorld, topic: str, partitions: int) -> None:
    client = AdminClient({"bootstrap.servers": world.servers})
    client.create_partitions([NewPartitions(topic, partitions)])[topic].result(10)


def test_topics_of_the_brokers_match_only_where_the_sink_takes_them(
    world: KafkaWorld, log: Any
) -> None:
    text = f"__consumer_offsets|{world.name('t')}"
    drain(opened(world, log), 20)  # a group, so that there is a topic of groups
    held: list[set[str]] = []
    for with_internal in (False, True):
        pattern = TopicPattern(text, with_internal)
        consumer = log.consumer(world.name(f"i-{with_internal}"), pattern, "c")
        OPENED.append(consumer)
        consumer.on_rebalance(consumer.pause, lambda _: None)
        await_partitions(consumer)
        held.append({topic for topic, _ in consumer.assignment()})
    assert held == [{world.name("t")}, {world.name("t"), "__consumer_offsets"}]


class Sharing:
    """Consumers of one group, polled in turn; each commits what it gave when it is revoked."""

    def __init__(self) -> None:
        self.consumers: list[Any] = []
        self.found: list[tuple[str, int, int]] = []
        self.rounds: list[list[Any]] = []
        """Of each: what it was given, each time."""

    def add(self, log: Any, group: str, pattern: TopicPattern) -> None:
        consumer = log.consumer(group, pattern, f"c{len(self.consumers)}")
        OPENED.append(consumer)
        rounds: list[Any] = []
        consumer.on_rebalance(rounds.append, lambda gone: self._commit(consumer, gone))
        self.rounds.append(rounds)
        self.consumers.append(consumer)

    def _commit(self, consumer: Any, gone: Any) -> None:
        ends = {}
        for topic, partition, offset in self.found:
            if (topic, partition) in gone:
                ends[topic, partition] = offset + 1
        consumer.commit(ends)

    def await_share(self, each: int, total: int) -> None:
        """Wait until each consumer holds `each` partitions, and `total` records were found in
        all."""
        deadline = time.monotonic() + 40
        while (
            any(len(consumer.assignment()) != each for consumer in self.consumers)
            or len(self.found) < total
        ):
            held = [consumer.assignment() for consumer in self.consumers]
            assert time.monotonic() < deadline, (held, self.rounds, self.found)
            for consumer in self.consumers:
                self.found += [(r.topic, r.partition, r.offset) for r in consumer.poll(100, 50)]


@pytest.mark.parametrize(
    "strategy",
    first(
        1,
        [
            "org.apache.kafka.clients.consumer.RangeAssignor",
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        ],
    ),
)
def test_a_topic_that_one_member_finds_all_look_for(kafka_broker: Found, strategy: str) -> None:
    """The topic is then assigned at once, not minutes later when the last member looks by
    itself."""
    both = {"consumer.partition.assignment.strategy": strategy}
    quick = KafkaWorld(kafka_broker.address, {**both, "consumer.metadata.max.age.ms": "500"})
    slow = KafkaWorld(kafka_broker.address, {**both, "consumer.metadata.max.age.ms": "300000"})
    pattern = TopicPattern(quick.name(r"logs-\d").replace("-", r"\-"))
    log = quick.connect().record_log
    sharing = Sharing()
    try:
        log.create_topic(quick.name("logs-1"), 2)
        producer = log.producer("c", None, None)
        producer.send(records_of(quick.name("logs-1"), 20))
        producer.acks()
        for world in (quick, slow):
            sharing.add(world.connect().record_log, quick.name("g"), pattern)
        sharing.await_share(1, 20)
        before = [len(rounds) for rounds in sharing.rounds]
        log.create_topic(quick.name("logs-2"), 2)
        producer.send(records_of(quick.name("logs-2"), 20))
        producer.acks()
        sharing.await_share(2, 40)
        for rounds, count in zip(sharing.rounds, before, strict=True):
            assert len(rounds) <= count + 2, "a round for who found it, one for all others"
        assert len(set(sharing.found)) == len(sharing.found) == 40
    finally:
        for world in (quick, slow):
            world.close()


def test_topics_that_are_gone_are_given_back(kafka_broker: Found) -> None:
    world = KafkaWorld(kafka_broker.address, {"consumer.metadata.max.age.ms": "300"})
    log = world.connect().record_log
    topics = [world.name("logs-1"), world.name("logs-2")]
    consumer = log.consumer(world.name("g"), TopicPattern(rf"{world.name('logs')}-\d"), "c")
    OPENED.append(consumer)
    client = AdminClient({"bootstrap.servers": world.servers})
    deadline = time.monotonic() + 40
    try:
        for topic in topics:
            log.create_topic(topic, 1)
        for left in (2, 1, 0):
            while len(consumer.assignment()) != left:
                assert time.monotonic() < deadline, (left, consumer.assignment())
                consumer.poll(10, 50)
            if left:
                client.delete_topics([topics[left - 1]])[topics[left - 1]].result(10)
        # Nor does it ask for them any more, which brokers may take for a wish to have them made.
        group = world.name("g")
        assert client.describe_consumer_groups([group])[group].result(10).members == []
        # From nothing on again, also under a name that was there before.
        log.create_topic(topics[0], 1)
        producer = log.producer("c", None, None)
        producer.send([ProducerRecord(topics[0], 0, None, b"new")])
        producer.acks()
        assert [record.value for record in drain(consumer, 1)] == [b"new"]
    finally:
        world.close()


def test_with_the_cooperative_assignor_what_stays_is_not_disturbed(
    kafka_broker: Found,
) -> None:
    world = KafkaWorld(kafka_broker.address, COOPERATIVE)
    log = world.connect().record_log
    topic = world.name("t")
    log.create_topic(topic, 2)
    producer = log.producer("c", None, None)
    producer.send([ProducerRecord(topic, n % 2, None, b"%d" % n) for n in range(20)])
    producer.acks()
    first = opened(world, log)
    came: list[Any] = []
    went: list[Any] = []

    def comes(given: Any) -> None:
        came.append(sorted(given))
        first.pause(given)

    first.on_rebalance(comes, lambda gone: went.append(sorted(gone)))
    await_partitions(first)
    assert came == [[(topic, 0), (topic, 1)]]
    assert first.poll(100, 500) == []
    second = opened(world, log)  # it joins by itself, polled or not
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + 60
    while len(found) < 10:
        assert time.monotonic() < deadline, (came, went, second.assignment())
        assert first.poll(100, 50) == [], "what stays, stays paused"
        found += second.poll(100, 50)
    ((moved,),) = went
    assert {(r.topic, r.partition) for r in found} == {moved} == second.assignment()
    (stayed,) = first.assignment()
    first.resume([stayed])
    assert [r.offset for r in drain(first, 10)] == list(range(10))
    first.commit({stayed: 10})
    second.close()
    while len(first.assignment()) < 2:
        assert time.monotonic() < deadline
        assert first.poll(100, 50) == [], "nothing of it is read twice"
    assert came[1:] == [[], [moved]], "none, when one went for good"
    first.seek(moved, 4)
    first.resume([moved])
    assert [r.offset for r in drain(first, 6)] == list(range(4, 10))
    first.close()
    world.close()


@pytest.mark.exhaustive
def test_brokers_may_share_the_partitions_out(kafka_broker: Found) -> None:
    """KIP-848, whose rebalances are incremental."""
    setting: dict[str, Any] = {
        "consumer.group.protocol": "CONSUMER",
        # These are the brokers' to say then, and refused.
        "consumer.session.timeout.ms": None,
        "consumer.heartbeat.interval.ms": None,
    }
    world = KafkaWorld(kafka_broker.address, setting)
    log = world.connect().record_log
    topic, group = world.name("t"), world.name("g")
    log.create_topic(topic, 2)
    producer = log.producer("c", None, None)
    producer.send(records_of(topic, 20))
    producer.acks()
    first = opened(world, log)
    assert len(drain(first, 20)) == 20
    both = first.assignment()
    first.commit(dict.fromkeys(both, 10))
    second = opened(world, log)
    deadline = time.monotonic() + 60
    while len(first.assignment()) != 1 or len(second.assignment()) != 1:
        assert time.monotonic() < deadline, (first.assignment(), second.assignment())
        assert [*first.poll(100, 50), *second.poll(100, 50)] == []
    assert first.assignment() | second.assignment() == both
    producer.send(records_of(topic, 2))
    producer.acks()
    (moved,) = second.assignment()
    assert [(r.partition, r.offset) for r in drain(second, 1)] == [(moved[1], 10)]
    second.on_rebalance(lambda _: None, lambda _: second.commit({moved: 11}))
    second.close()
    assert [r.offset for r in drain(first, 1)] == [10]
    while first.assignment() != both:
        assert time.monotonic() < deadline
        assert first.poll(100, 50) == []
    assert log.committed(group)[moved] == 11
    first.close()
    producer.close()
    world.close()


class _Raw(str):
    """Text whose UTF-8 is other bytes: what clients write that do not check names."""

    def encode(self, *_: str) -> bytes:
        return b"\xff\xfe"


def test_a_header_whose_name_is_not_utf_8_makes_its_record_alone_unreadable(
    world: KafkaWorld, log: Any
) -> None:
    """confluent_kafka raises SystemError from `Message.headers`, which cost the whole batch."""
    other = KafkaProducer(bootstrap_servers=world.servers)
    other.send(world.name("t"), b"odd", headers=[(_Raw("h"), b"1")], partition=0).get(30)
    other.send(world.name("t"), b"even", headers=[("h", b"2")], partition=0).get(30)
    other.close()
    found = {record.value: record for record in drain(opened(world, log), 22)}
    assert found[b"odd"].unreadable == "the name of a header is not UTF-8"
    assert (found[b"even"].unreadable, found[b"even"].headers) == ("", (("h", b"2"),))
    assert [record.value for record in found.values() if record.unreadable] == [b"odd"]
