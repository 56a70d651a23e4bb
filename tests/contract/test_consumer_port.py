"""The contract of `RecordLog.consumer` and of the offsets of groups."""

import pytest
from support.embedded.worlds import Transport, World
from support.group.member import GROUP, HandMember, join_all

from headgate.connector.sink_names import TopicPattern
from headgate.ports import (
    Consumer,
    ConsumerRecord,
    ProducerRecord,
    RebalancedError,
    TopicPartition,
    TransportError,
)


def place(world: World, partition: int) -> TopicPartition:
    return world.name("t"), partition


def everything(world: World) -> set[TopicPartition]:
    return {place(world, n) for n in range(4)}


def matching(world: World, pattern: str) -> TopicPattern:
    r"""`pattern` for the part of a name that `World.name` is given. Every one has ``\\d`` and a
    class that only Java reads so."""
    return TopicPattern(world.name("").replace("-", r"\-") + pattern)


def fill(transport: Transport, topic: str, count: int, partitions: int = 1) -> None:
    transport.record_log.create_topic(topic, partitions)
    producer = transport.record_log.producer("c", None, None)
    producer.send(
        [ProducerRecord(topic, n % partitions, None, b"%d" % n) for n in range(count)],
    )
    producer.acks()
    producer.close()


def filled(world: World, per_partition: int = 10) -> Transport:
    transport = world.connect()
    transport.record_log.create_topic(world.name("t"), 4)
    write(world, transport, per_partition)
    return transport


def write(world: World, transport: Transport, per_partition: int) -> None:
    producer = transport.record_log.producer("c", None, None)
    for n in range(per_partition):
        producer.send(
            [ProducerRecord(world.name("t"), p, None, b"%d/%d" % (p, n)) for p in range(4)]
        )
        producer.acks()


def settle(world: World, *consumers: Consumer) -> list[ConsumerRecord]:
    """Poll all in turn until they hold all partitions between them and stay so."""
    records: list[ConsumerRecord] = []
    quiet = 0
    for _ in range(100):
        before = [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            records += consumer.poll(100, 0)
        world.advance(200)
        held = [place for consumer in consumers for place in consumer.assignment()]
        same = before == [consumer.assignment() for consumer in consumers]
        quiet = quiet + 1 if same and sorted(held) == sorted(everything(world)) else 0
        if quiet == 10:
            return records
    raise AssertionError(f"not settled: {[c.assignment() for c in consumers]}")


def drain(world: World, consumer: Consumer, wanted: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    for _ in range(100):
        records += consumer.poll(7, 0)
        if len(records) >= wanted:
            return records
        world.advance(200)
    raise AssertionError(f"{len(records)} records, expected {wanted}")


def test_one_consumer_reads_everything_in_order_per_partition(world: World) -> None:
    transport = filled(world)
    consumer = transport.record_log.consumer(world.name("g"), [world.name("t")], "c")
    records = drain(world, consumer, 40)
    for partition in range(4):
        found = [(r.offset, r.value) for r in records if r.partition == partition]
        assert found == [(n, b"%d/%d" % (partition, n)) for n in range(10)]
    assert consumer.assignment() == everything(world)
    write(world, transport, 1)
    assert len(drain(world, consumer, 4)) == 4


def test_poll_gives_at_most_what_was_asked(world: World) -> None:
    consumer = filled(world).record_log.consumer(world.name("g"), [world.name("t")], "c")
    settle(world, consumer)
    consumer.seek(place(world, 2), 0)
    offsets: list[int] = []
    while len(offsets) < 10:
        found = consumer.poll(7, 5_000)
        assert 0 < len(found) <= 7
        offsets += [r.offset for r in found]
    assert offsets == list(range(10))


def test_two_consumers_share_and_the_second_goes_on_where_was_committed(world: World) -> None:
    transport = filled(world)
    one = transport.record_log.consumer(world.name("g"), [world.name("t")], "one")
    positions: dict[TopicPartition, int] = {}

    def commit(_revoked: object) -> None:
        one.commit(positions)

    one.on_rebalance(lambda _: None, commit)
    for record in drain(world, one, 40):
        positions[record.topic, record.partition] = record.offset + 1
    two = world.connect().record_log.consumer(world.name("g"), [world.name("t")], "two")
    assert settle(world, one, two) == []
    assert len(one.assignment()) == len(two.assignment()) == 2
    assert one.assignment() | two.assignment() == everything(world)
    write(world, transport, 1)
    assert {r.partition for r in drain(world, two, 2)} == {p for _, p in two.assignment()}


def test_revoked_comes_before_another_holds_the_partitions(world: World) -> None:
    transport = filled(world)
    log: list[tuple[str, str, list[TopicPartition]]] = []
    holder: dict[TopicPartition, str] = {}
    consumers: list[Consumer] = []
    for name in ("one", "two", "three"):
        consumer = transport.record_log.consumer(world.name("g"), [world.name("t")], name)

        def assigned(places: object, name: str = name) -> None:
            for place in list(places):  # type: ignore[call-overload]
                assert holder.setdefault(place, name) == name
            log.append((name, "assigned", []))

        def revoked(places: object, name: str = name) -> None:
            for place in list(places):  # type: ignore[call-overload]
                assert holder.pop(place) == name

        consumer.on_rebalance(assigned, revoked)
        consumers.append(consumer)
        settle(world, *consumers)
    assert sorted(holder) == sorted(everything(world))
    consumers[0].close()
    settle(world, *consumers[1:])
    assert "one" not in holder.values()


@pytest.mark.exhaustive_on_kafka
def test_commit_after_a_rebalance_is_refused(world: World) -> None:
    transport = filled(world)
    stuck = transport.record_log.consumer(world.name("g"), [world.name("t")], "stuck")
    settle(world, stuck)
    other = world.connect().record_log.consumer(world.name("g"), [world.name("t")], "other")
    # `stuck` does not poll: its session ends, and its partitions go to `other`.
    for _ in range(world.session_ms // 200 + 20):
        other.poll(100, 0)
        world.advance(200)
    assert other.assignment() == everything(world)
    with pytest.raises(RebalancedError, match="UNKNOWN_MEMBER_ID"):
        stuck.commit({place(world, 0): 1})
    assert transport.record_log.committed(world.name("g")) == {}
    other.commit({place(world, 0): 5})
    # It comes back, is told, and is a member again.
    lost: list[object] = []
    stuck.on_rebalance(lambda _: None, lost.append)
    settle(world, stuck, other)
    assert len(lost) == 1
    assert transport.record_log.committed(world.name("g")) == {place(world, 0): 5}


@pytest.mark.exhaustive_on_kafka
def test_consumer_that_polls_keeps_its_partitions(world: World) -> None:
    consumer = filled(world).record_log.consumer(world.name("g"), [world.name("t")], "c")
    settle(world, consumer)
    lost: list[object] = []
    consumer.on_rebalance(lambda _: None, lost.append)
    for _ in range(6):
        world.advance(world.session_ms // 4)
        consumer.poll(1, 0)
    assert lost == []
    consumer.commit({place(world, 0): 1})


def test_leaver_frees_its_partitions_at_once(world: World) -> None:
    transport = filled(world)
    one = transport.record_log.consumer(world.name("g"), [world.name("t")], "one")
    two = transport.record_log.consumer(world.name("g"), [world.name("t")], "two")
    settle(world, one, two)
    one.close()
    before = world.now_ms()
    settle(world, two)
    assert world.now_ms() - before < world.session_ms
    assert two.assignment() == everything(world)


def test_pause_seek_and_resume(world: World) -> None:
    consumer = filled(world).record_log.consumer(world.name("g"), [world.name("t")], "c")
    drain(world, consumer, 40)
    consumer.seek(place(world, 1), 4)
    consumer.seek(place(world, 2), 9)
    consumer.pause([place(world, 1)])
    assert [(r.partition, r.offset) for r in consumer.poll(100, 5_000)] == [(2, 9)]
    assert consumer.poll(100, 0) == []
    consumer.resume([place(world, 1)])
    assert [r.offset for r in drain(world, consumer, 6)] == [4, 5, 6, 7, 8, 9]


def test_topic_that_appears_later_is_read(world: World) -> None:
    transport = world.connect()
    consumer = transport.record_log.consumer(world.name("g"), [world.name("t")], "c")
    for _ in range(10):
        assert consumer.poll(10, 0) == []
        world.advance(200)
    filled(world)
    assert len(drain(world, consumer, 40)) == 40


PATTERN = r"logs-[a-z&&[^x]]\d"
"""Java's way to say: a letter that is no x, a digit."""


def test_pattern_is_of_whole_names_and_topics_that_come_later_are_read(world: World) -> None:
    transport = world.connect()
    fill(transport, world.name("logs-a1"), 3)
    for near in ("logs-a1-dlq", "more-logs-a1", "logs-x1", "logs-a"):
        fill(transport, world.name(near), 1)
    log = transport.record_log
    consumer = log.consumer(world.name("g"), matching(world, PATTERN), "c")
    first = drain(world, consumer, 3)
    assert consumer.assignment() == {(world.name("logs-a1"), 0)}
    consumer.commit({(world.name("logs-a1"), 0): 2})
    consumer.on_rebalance(
        lambda _: None, lambda _: consumer.commit({(world.name("logs-a1"), 0): 3})
    )
    fill(transport, world.name("logs-b2"), 4, partitions=2)
    fill(transport, world.name("logs-b2-near"), 1)
    later = drain(world, consumer, 4)
    assert {record.topic for record in first} == {world.name("logs-a1")}
    assert sorted((r.topic, r.partition, r.offset) for r in later) == [
        (world.name("logs-b2"), 0, 0),
        (world.name("logs-b2"), 0, 1),
        (world.name("logs-b2"), 1, 0),
        (world.name("logs-b2"), 1, 1),
    ], "what was committed when the partitions were revoked is not read again"
    assert consumer.assignment() == {
        (world.name("logs-a1"), 0),
        (world.name("logs-b2"), 0),
        (world.name("logs-b2"), 1),
    }
    assert log.committed(world.name("g")) == {(world.name("logs-a1"), 0): 3}
    names = {world.name(text) for text in ("logs-a1", "logs-x1")}
    assert names <= set(world.connect().record_log.topic_names())


def test_pattern_that_nothing_matches_yet(world: World) -> None:
    transport = world.connect()
    consumer = transport.record_log.consumer(world.name("g"), matching(world, PATTERN), "c")
    for _ in range(5):
        assert consumer.poll(10, 0) == []
        world.advance(200)
    assert consumer.assignment() == frozenset()
    fill(transport, world.name("logs-c3"), 5)
    assert [record.offset for record in drain(world, consumer, 5)] == list(range(5))
    consumer.close()


def test_two_consumers_of_a_pattern_share_a_topic_that_comes_later(world: World) -> None:
    transport = world.connect()
    fill(transport, world.name("logs-a1"), 4, partitions=2)
    pattern = matching(world, PATTERN)
    group = world.name("g")
    consumers: list[Consumer] = []
    found: list[tuple[str, int, int]] = []

    def poll_all() -> None:
        for number, consumer in enumerate(consumers):
            for record in consumer.poll(100, 0):
                place = record.topic, record.partition
                found.append((*place, record.offset))
                ends[number][place] = record.offset + 1
        world.advance(200)

    ends: list[dict[TopicPartition, int]] = [{}, {}]
    for number in range(2):
        consumer = world.connect().record_log.consumer(group, pattern, f"c{number}")

        def revoked(
            _gone: object,
            consumer: Consumer = consumer,
            mine: dict[TopicPartition, int] = ends[number],
        ) -> None:
            consumer.commit(mine)
            mine.clear()

        consumer.on_rebalance(lambda _: None, revoked)
        consumers.append(consumer)
    topics = [world.name("logs-a1")]
    for later in ("logs-b2", None):
        for _ in range(100):
            poll_all()
            held = [place for consumer in consumers for place in consumer.assignment()]
            if (
                sorted(held) == [(topic, n) for topic in topics for n in range(2)]
                and all(len(consumer.assignment()) == len(topics) for consumer in consumers)
                and len(found) >= 4 * len(topics)
            ):
                break
        else:
            raise AssertionError(f"not shared: {[c.assignment() for c in consumers]}, {found}")
        if later is not None:
            topics.append(world.name(later))
            fill(transport, topics[-1], 4, partitions=2)
    assert sorted(found) == [(topic, n, at) for topic in topics for n in range(2) for at in (0, 1)]


def test_offsets_without_membership(world: World) -> None:
    log = filled(world).record_log
    log.commit_unguarded(world.name("g"), {place(world, 0): 3, place(world, 1): 4})
    log.commit_unguarded(world.name("other"), {place(world, 0): 9})
    assert log.committed(world.name("g")) == {place(world, 0): 3, place(world, 1): 4}
    log.commit_unguarded(world.name("g"), {place(world, 0): None, place(world, 1): 5})
    assert world.connect().record_log.committed(world.name("g")) == {place(world, 1): 5}
    assert log.committed(world.name("never")) == {}
    consumer = log.consumer(world.name("g"), [world.name("t")], "c")
    records = drain(world, consumer, 35)
    assert min(r.offset for r in records if r.partition == 1) == 5


def test_a_partition_that_is_not_there_takes_no_offset(world: World) -> None:
    log = filled(world).record_log
    for absent in ((world.name("t"), 9), (world.name("none"), 0)):
        with pytest.raises(TransportError, match=f"{absent[0]}-{absent[1]}"):
            log.commit_unguarded(world.name("g"), {absent: 3})
    assert log.committed(world.name("g")) == {}


def test_group_of_others_cannot_be_joined(world: World) -> None:
    worker = HandMember(world, world.connect(), "worker")
    join_all(world, worker)
    consumer = filled(world).record_log.consumer(world.name(GROUP), [world.name("t")], "c")
    with pytest.raises(TransportError, match="workers cannot be joined"):
        for _ in range(10):
            consumer.poll(10, 0)
            world.advance(200)
