"""What `RecordLog`, its producers and `Fencer` promise."""

import pytest
from support.group_member import GROUP, SESSION_MS, HandMember, join_all
from support.worlds import World

from headgate.partitioner import murmur2
from headgate.ports import (
    FencedError,
    MembershipEndedError,
    Producer,
    ProducerRecord,
    RecordLog,
    UnknownTopicError,
)

END = 1 << 40


def values(log: RecordLog, topic: str = "t") -> list[bytes | None]:
    return [
        record.value
        for partition in range(log.partitions(topic))
        for record in log.read(topic, partition, 0, END, 1_000_000)
    ]


def record(value: bytes, partition: int | None = 0) -> ProducerRecord:
    return ProducerRecord("t", partition, None, value)


def ready(log: RecordLog, client_id: str = "c", tid: str = "g-c-0") -> Producer:
    log.create_topic("t", 1)
    producer = log.producer(client_id, tid, None)
    producer.init()
    return producer


# -- topics --


def test_topic_is_made_once(world: World) -> None:
    log = world.connect().record_log
    with pytest.raises(UnknownTopicError, match="'t'"):
        log.partitions("t")
    log.create_topic("t", 3)
    log.create_topic("t", 5)
    assert log.partitions("t") == 3
    assert world.connect().record_log.partitions("t") == 3
    assert log.end_offsets(["t", "none"]) == {("t", 0): 0, ("t", 1): 0, ("t", 2): 0}


def test_record_comes_back_as_it_was_sent(world: World) -> None:
    log = world.connect().record_log
    log.create_topic("t", 2)
    producer = log.producer("c", None, None)
    headers = (("h", b"1"), ("h", b""), ("ü", b"\0\xff"))
    producer.send(
        [
            ProducerRecord("t", 1, b"key", b"value", headers, 1234),
            ProducerRecord("t", 1, None, None, (), 5678),
            ProducerRecord("t", 1, b"", b"", (("h", b"1"),), -1),
        ]
    )
    producer.acks()
    first, second, third = log.read("t", 1, 0, END, 100)
    assert (first.topic, first.partition, first.offset) == ("t", 1, 0)
    assert (first.key, first.value, first.headers) == (b"key", b"value", headers)
    assert first.timestamp_ms == 1234
    assert (second.key, second.value, second.headers, second.offset) == (None, None, (), 1)
    assert (third.key, third.value, third.headers) == (b"", b"", (("h", b"1"),))
    assert third.timestamp_ms == -1
    assert log.end_offsets(["t"]) == {("t", 0): 0, ("t", 1): 3}


def test_read_keeps_within_its_bounds(world: World) -> None:
    log = world.connect().record_log
    producer = ready(log)
    for start in range(0, 30, 3):
        producer.send([record(b"%d" % n) for n in range(start, start + 3)])
        producer.commit([])
    found = log.read("t", 0, 4, 11, 1_000)
    assert [r.offset for r in found] == list(range(4, 11))
    assert [r.value for r in found] == [b"%d" % n for n in range(4, 11)]
    few = log.read("t", 0, 4, END, 2)
    assert 2 <= len(few) <= 4
    assert few[0].offset == 4
    assert log.read("t", 0, 30, END, 5) == []


def test_large_transaction_keeps_its_order(world: World) -> None:
    log = world.connect().record_log
    producer = ready(log)
    sent = [b"%d" % n for n in range(5_001)]
    producer.send([record(value) for value in sent])
    producer.commit([])
    assert values(log) == sent


# -- partitions --


def test_key_decides_the_partition_as_kafka_does(world: World) -> None:
    # Values of org.apache.kafka.common.utils.Utils.murmur2, from Kafka's UtilsTest.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, expected in known.items():
        assert murmur2(key) == expected & 0xFFFFFFFF
    log = world.connect().record_log
    log.create_topic("t", 4)
    producer = log.producer("c", None, None)
    producer.send([ProducerRecord("t", None, key, key) for key in known])
    producer.acks()
    for key in known:
        partition = (murmur2(key) & 0x7FFFFFFF) % 4
        assert key in [r.value for r in log.read("t", partition, 0, END, 10)]


def test_without_key_each_call_goes_to_the_next_partition(world: World) -> None:
    log = world.connect().record_log
    log.create_topic("t", 3)
    producer = log.producer("c", None, None)
    for _ in range(4):
        producer.send([record(b"", None), record(b"", None)])
    producer.acks()
    assert log.end_offsets(["t"]) == {("t", 0): 4, ("t", 1): 2, ("t", 2): 2}


def test_send_refuses_all_or_takes_all(world: World) -> None:
    log = world.connect().record_log
    log.create_topic("t", 1)
    producer = log.producer("c", None, None)
    with pytest.raises(UnknownTopicError):
        producer.send([record(b"1"), ProducerRecord("none", None, None, b"2")])
    with pytest.raises(ValueError, match="expected 0 to 0"):
        producer.send([record(b"1"), record(b"2", 1)])
    producer.send([record(b"3")])
    producer.acks()
    assert values(log) == [b"3"]


# -- without transactions --


def test_acks_count_what_was_sent(world: World) -> None:
    log = world.connect().record_log
    log.create_topic("t", 2)
    producer = log.producer("c", None, None)
    assert producer.acks() == []
    producer.send([record(b"1"), record(b"2", 1)])
    producer.send([record(b"3")])
    [ack] = producer.acks()
    assert (ack.first, ack.last, ack.error) == (0, 2, None)
    assert sorted(v or b"" for v in values(log)) == [b"1", b"2", b"3"]
    producer.send([record(b"4")])
    [ack] = producer.acks()
    assert (ack.first, ack.last) == (3, 3)


# -- transactions --


def test_nothing_is_visible_before_commit(world: World) -> None:
    transport = world.connect()
    producer = ready(transport.record_log)
    producer.send([record(b"1")])
    other = world.connect()
    assert values(other.record_log) == []
    producer.commit([(b"source", b"1")])
    assert values(other.record_log) == [b"1"]
    assert [r.value for r in other.offset_log.read(0)[0]] == [b"1"]


def test_abort_leaves_nothing(world: World) -> None:
    transport = world.connect()
    producer = ready(transport.record_log)
    producer.send([record(b"%d" % n) for n in range(5_000)])
    producer.abort()
    producer.send([record(b"kept")])
    producer.commit([])
    assert values(transport.record_log) == [b"kept"]


def test_zombie_is_refused_with_data_and_offsets_together(world: World) -> None:
    transport = world.connect()
    zombie = ready(transport.record_log, "zombie")
    zombie.send([record(b"zombie")])
    heir = world.connect().record_log.producer("heir", "g-c-0", None)
    heir.init()
    with pytest.raises(FencedError, match="g-c-0"):
        zombie.commit([(b"source", b"zombie")])
    assert values(transport.record_log) == []
    assert transport.offset_log.read(0) == ([], 0)
    heir.send([record(b"heir")])
    heir.commit([(b"source", b"heir")])
    with pytest.raises(FencedError):
        zombie.commit([])
    assert values(transport.record_log) == [b"heir"]


def test_offsets_alone_are_fenced_too(world: World) -> None:
    transport = world.connect()
    zombie = ready(transport.record_log)
    transport.fencer.fence(["g-c-0"])
    with pytest.raises(FencedError):
        zombie.commit([(b"source", b"zombie")])
    assert transport.offset_log.read(0) == ([], 0)


def test_producer_that_was_never_initialised_commits_nothing(world: World) -> None:
    log = world.connect().record_log
    log.create_topic("t", 1)
    producer = log.producer("c", "g-c-0", None)
    producer.send([record(b"1")])
    with pytest.raises(FencedError):
        producer.commit([])
    assert values(log) == []


def test_fencer_shuts_out_all_it_names_and_no_others(world: World) -> None:
    transport = world.connect()
    log = transport.record_log
    named = [ready(log, f"c{n}", f"g-c-{n}") for n in range(2)]
    other = ready(log, "d", "g-d-0")
    transport.fencer.fence(["g-c-0", "g-c-1", "g-never-seen-0"])
    for producer in named:
        producer.send([record(b"zombie")])
        with pytest.raises(FencedError):
            producer.commit([])
    other.send([record(b"other")])
    other.commit([])
    assert values(log) == [b"other"]
    fresh = ready(log, "fresh", "g-never-seen-0")
    fresh.send([record(b"fresh")])
    fresh.commit([])
    assert values(log) == [b"other", b"fresh"]


# -- the membership of the worker --


def test_init_for_an_ended_membership_shuts_nobody_out(world: World) -> None:
    log = world.connect().record_log
    log.create_topic("t", 1)
    one = HandMember(world, world.connect(), "one")
    two = HandMember(world, world.connect(), "two")
    join_all(world, one, two)
    zombie = log.producer("zombie", "g-c-0", (GROUP, one.member_id, one.generation))
    # `one` is silent and removed; its task goes to `two`.
    for _ in range(4):
        world.advance(SESSION_MS // 3)
        two.heartbeat()
    heir = log.producer("heir", "g-c-0", (GROUP, two.member_id, two.generation))
    heir.init()
    with pytest.raises(MembershipEndedError, match="no longer a member of workers"):
        zombie.init()
    heir.send([record(b"heir")])
    heir.commit([])
    assert values(log) == [b"heir"]


def test_init_lets_the_time_of_sessions_pass_itself(world: World) -> None:
    log = world.connect().record_log
    one = HandMember(world, world.connect(), "one")
    join_all(world, one)
    producer = log.producer("c", "g-c-0", (GROUP, one.member_id, one.generation))
    producer.init()
    # Nobody spoke to the coordinator since: the session has ended all the same.
    world.advance(SESSION_MS + 1)
    with pytest.raises(MembershipEndedError):
        producer.init()


def test_init_in_the_name_of_nobody(world: World) -> None:
    log = world.connect().record_log
    with pytest.raises(MembershipEndedError):
        log.producer("c", "g-c-0", (GROUP, "stranger", 1)).init()
