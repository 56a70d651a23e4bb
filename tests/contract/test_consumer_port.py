"""What `RecordLog.consumer` and the offsets of groups promise."""

import pytest
from support.group_member import GROUP, HandMember, join_all
from support.worlds import SESSION_MS, Transport, World

from headgate.ports import (
    Consumer,
    ConsumerRecord,
    ProducerRecord,
    RebalancedError,
    TopicPartition,
    TransportError,
)

ALL = {("t", n) for n in range(4)}


def filled(world: World, per_partition: int = 10) -> Transport:
    transport = world.connect()
    transport.record_log.create_topic("t", 4)
    write(transport, per_partition)
    return transport


def write(transport: Transport, per_partition: int) -> None:
    producer = transport.record_log.producer("c", None, None)
    for n in range(per_partition):
        producer.send([ProducerRecord("t", p, None, b"%d/%d" % (p, n)) for p in range(4)])
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
        quiet = quiet + 1 if same and sorted(held) == sorted(ALL) else 0
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
    consumer = transport.record_log.consumer("g", ["t"], "c")
    records = drain(world, consumer, 40)
    for partition in range(4):
        found = [(r.offset, r.value) for r in records if r.partition == partition]
        assert found == [(n, b"%d/%d" % (partition, n)) for n in range(10)]
    assert consumer.assignment() == ALL
    write(transport, 1)
    assert len(drain(world, consumer, 4)) == 4


def test_poll_gives_at_most_what_was_asked(world: World) -> None:
    consumer = filled(world).record_log.consumer("g", ["t"], "c")
    settle(world, consumer)
    consumer.seek(("t", 2), 0)
    assert len(consumer.poll(7, 0)) == 7
    assert len(consumer.poll(7, 0)) == 3


def test_two_consumers_share_and_the_second_goes_on_where_was_committed(world: World) -> None:
    transport = filled(world)
    one = transport.record_log.consumer("g", ["t"], "one")
    positions: dict[TopicPartition, int] = {}

    def commit(_revoked: object) -> None:
        one.commit(positions)

    one.on_rebalance(lambda _: None, commit)
    for record in drain(world, one, 40):
        positions[record.topic, record.partition] = record.offset + 1
    two = world.connect().record_log.consumer("g", ["t"], "two")
    assert settle(world, one, two) == []
    assert len(one.assignment()) == len(two.assignment()) == 2
    assert one.assignment() | two.assignment() == ALL
    write(transport, 1)
    assert {r.partition for r in two.poll(100, 0)} == {p for _, p in two.assignment()}


def test_revoked_comes_before_another_holds_the_partitions(world: World) -> None:
    transport = filled(world)
    log: list[tuple[str, str, list[TopicPartition]]] = []
    holder: dict[TopicPartition, str] = {}
    consumers: list[Consumer] = []
    for name in ("one", "two", "three"):
        consumer = transport.record_log.consumer("g", ["t"], name)

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
    assert sorted(holder) == sorted(ALL)
    consumers[0].close()
    settle(world, *consumers[1:])
    assert "one" not in holder.values()


def test_commit_after_a_rebalance_is_refused(world: World) -> None:
    transport = filled(world)
    stuck = transport.record_log.consumer("g", ["t"], "stuck")
    settle(world, stuck)
    other = world.connect().record_log.consumer("g", ["t"], "other")
    # `stuck` does not poll: its session ends, and its partitions go to `other`.
    for _ in range(SESSION_MS // 200 + 40):
        other.poll(100, 0)
        world.advance(200)
    assert other.assignment() == ALL
    with pytest.raises(RebalancedError, match="UNKNOWN_MEMBER_ID"):
        stuck.commit({("t", 0): 1})
    assert transport.record_log.committed("g") == {}
    other.commit({("t", 0): 5})
    # It comes back, is told, and is a member again.
    lost: list[object] = []
    stuck.on_rebalance(lambda _: None, lost.append)
    settle(world, stuck, other)
    assert len(lost) == 1
    assert transport.record_log.committed("g") == {("t", 0): 5}


def test_consumer_that_polls_keeps_its_partitions(world: World) -> None:
    consumer = filled(world).record_log.consumer("g", ["t"], "c")
    settle(world, consumer)
    lost: list[object] = []
    consumer.on_rebalance(lambda _: None, lost.append)
    for _ in range(20):
        world.advance(SESSION_MS // 4)
        consumer.poll(1, 0)
    assert lost == []
    consumer.commit({("t", 0): 1})


def test_leaver_frees_its_partitions_at_once(world: World) -> None:
    transport = filled(world)
    one = transport.record_log.consumer("g", ["t"], "one")
    two = transport.record_log.consumer("g", ["t"], "two")
    settle(world, one, two)
    one.close()
    before = world.now_ms()
    settle(world, two)
    assert world.now_ms() - before < SESSION_MS
    assert two.assignment() == ALL


def test_pause_seek_and_resume(world: World) -> None:
    consumer = filled(world).record_log.consumer("g", ["t"], "c")
    drain(world, consumer, 40)
    consumer.seek(("t", 1), 4)
    consumer.seek(("t", 2), 9)
    consumer.pause([("t", 1)])
    assert [(r.partition, r.offset) for r in consumer.poll(100, 0)] == [(2, 9)]
    assert consumer.poll(100, 0) == []
    consumer.resume([("t", 1)])
    assert [r.offset for r in consumer.poll(100, 0)] == [4, 5, 6, 7, 8, 9]


def test_topic_that_appears_later_is_read(world: World) -> None:
    transport = world.connect()
    consumer = transport.record_log.consumer("g", ["t"], "c")
    for _ in range(10):
        assert consumer.poll(10, 0) == []
        world.advance(200)
    filled(world)
    assert len(drain(world, consumer, 40)) == 40


def test_offsets_without_membership(world: World) -> None:
    log = filled(world).record_log
    log.commit_unguarded("g", {("t", 0): 3, ("t", 1): 4})
    log.commit_unguarded("other", {("t", 0): 9})
    assert log.committed("g") == {("t", 0): 3, ("t", 1): 4}
    log.commit_unguarded("g", {("t", 0): None, ("t", 1): 5})
    assert world.connect().record_log.committed("g") == {("t", 1): 5}
    assert log.committed("never") == {}
    consumer = log.consumer("g", ["t"], "c")
    records = drain(world, consumer, 35)
    assert min(r.offset for r in records if r.partition == 1) == 5


def test_group_of_others_cannot_be_joined(world: World) -> None:
    worker = HandMember(world, world.connect(), "worker")
    join_all(world, worker)
    consumer = filled(world).record_log.consumer(GROUP, ["t"], "c")
    with pytest.raises(TransportError, match="workers cannot be joined"):
        for _ in range(10):
            consumer.poll(10, 0)
            world.advance(200)
