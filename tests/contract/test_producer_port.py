"""The contract of `RecordLog`, of its producers, and of `Fencer`."""

from collections.abc import Callable

import pytest
from support.embedded.worlds import World, read_on
from support.group.member import GROUP, SESSION_MS, HandMember, join_all

from headgate.ports import (
    FencedError,
    MembershipEndedError,
    Producer,
    ProducerRecord,
    RecordLog,
    RecordMetadata,
    RefusedError,
    RowNumbers,
    UnknownTopicError,
    ValueColumn,
)
from headgate.task.partitioner import murmur2

END = 1 << 40


def values(world: World, log: RecordLog) -> list[bytes | None]:
    return [
        record.value
        for partition in range(log.partitions(world.name("t")))
        for record in log.read(world.name("t"), partition, 0, END, 1_000_000)
    ]


def check_soon(world: World, read: Callable[[], object], expected: object) -> None:
    """Check a condition that holds soon. A commit cannot be undone, but readers may see it a moment
    later: a broker answers the producer before it has written the markers into all partitions."""
    for _ in range(500):
        if read() == expected:
            return
        world.advance(20)
    assert read() == expected


def check_values(world: World, log: RecordLog, expected: list[bytes]) -> None:
    check_soon(world, lambda: values(world, log), expected)


def record(world: World, value: bytes, partition: int | None = 0) -> ProducerRecord:
    return ProducerRecord(world.name("t"), partition, None, value)


def ready(world: World, log: RecordLog, client_id: str = "c", tid: str = "g-c-0") -> Producer:
    log.create_topic(world.name("t"), 1)
    producer = log.producer(client_id, world.name(tid), None)
    producer.init()
    return producer


# -- topics --


def test_topic_is_made_once(world: World) -> None:
    log = world.connect().record_log
    with pytest.raises(UnknownTopicError, match=world.name("t")):
        log.partitions(world.name("t"))
    log.create_topic(world.name("t"), 3)
    log.create_topic(world.name("t"), 5)
    assert log.partitions(world.name("t")) == 3
    assert world.connect().record_log.partitions(world.name("t")) == 3
    assert log.end_offsets([world.name("t"), world.name("none")]) == {
        (world.name("t"), 0): 0,
        (world.name("t"), 1): 0,
        (world.name("t"), 2): 0,
    }


def test_a_topic_has_as_many_partitions_as_a_new_one_gets(world: World) -> None:
    log = world.connect().record_log
    log.create_topic(world.name("t"), None)
    assert log.partitions(world.name("t")) == 1
    with pytest.raises(ValueError, match="0 partitions, expected at least 1"):
        log.create_topic(world.name("other"), 0)


@pytest.mark.parametrize("name", ["a b", "a/b", "..", "", "ü", "a\n", "x" * 250])
def test_a_name_that_no_topic_may_have_is_refused(world: World, name: str) -> None:
    log = world.connect().record_log
    before = set(log.topic_names())
    with pytest.raises(RefusedError, match="topic "):
        log.create_topic(name, 1)
    assert name not in set(log.topic_names()) - before


def test_record_comes_back_as_it_was_sent(world: World) -> None:
    log = world.connect().record_log
    log.create_topic(world.name("t"), 2)
    producer = log.producer("c", None, None)
    headers = (("h", b"1"), ("h", b""), ("ü", b"\0\xff"), ("h", None), ("", b"x"), ("", None))
    producer.send(
        [
            ProducerRecord(world.name("t"), 1, b"key", b"value", headers, 1234),
            ProducerRecord(world.name("t"), 1, None, None, (), 5678),
            ProducerRecord(world.name("t"), 1, b"", b"", (("h", b"1"),), -1),
        ]
    )
    producer.acks()
    first, second, third = log.read(world.name("t"), 1, 0, END, 100)
    assert (first.topic, first.partition, first.offset) == (world.name("t"), 1, 0)
    assert (first.key, first.value, first.headers) == (b"key", b"value", headers)
    assert first.timestamp_ms == 1234
    assert (second.key, second.value, second.headers, second.offset) == (None, None, (), 1)
    assert (third.key, third.value, third.headers) == (b"", b"", (("h", b"1"),))
    assert third.timestamp_ms == -1
    assert log.end_offsets([world.name("t")]) == {(world.name("t"), 0): 0, (world.name("t"), 1): 3}


def test_read_keeps_within_its_bounds(world: World) -> None:
    log = world.connect().record_log
    topic = world.name("t")
    producer = ready(world, log)
    for start in range(0, 30, 3):
        producer.send([record(world, b"%d" % n) for n in range(start, start + 3)])
        producer.commit([])
    check_values(world, log, [b"%d" % n for n in range(30)])
    # Between the records may be what a log keeps of its transactions.
    at = [r.offset for r in log.read(topic, 0, 0, END, 1_000)]
    assert len(at) == 30
    found = log.read(topic, 0, at[4], at[11], 1_000)
    assert [r.offset for r in found] == at[4:11]
    assert [r.value for r in found] == [b"%d" % n for n in range(4, 11)]
    few = log.read(topic, 0, at[4], END, 2)
    assert 2 <= len(few) <= 4
    assert few[0].offset == at[4]
    unknown = world.name("unknown")
    starts = log.start_offsets([topic, unknown])
    assert starts == dict.fromkeys(log.end_offsets([topic, unknown]), at[0])
    [end] = log.end_offsets([topic]).values()
    assert end > at[-1]
    assert log.read(topic, 0, end, END, 5) == []


def test_large_transaction_keeps_its_order(world: World) -> None:
    log = world.connect().record_log
    producer = ready(world, log)
    sent = [b"%d" % n for n in range(5_001)]
    producer.send([record(world, value) for value in sent])
    producer.commit([])
    check_values(world, log, sent)


@pytest.mark.parametrize("tid", [None, "g-c-0"])
def test_a_producer_tells_where_its_records_went(world: World, tid: str | None) -> None:
    log = world.connect().record_log
    log.create_topic(world.name("t"), 2)
    other = log.producer("other", None, None)
    other.send([record(world, b"before", 1)])
    other.acks()
    assert other.places() == []
    producer = log.producer("c", None if tid is None else world.name(tid), None)
    producer.keep_places()
    if tid is not None:
        producer.init()
        producer.send([record(world, b"never seen")])
        producer.abort()
    first = 0 if tid is None else 1

    def settled() -> list[tuple[int, RecordMetadata]]:
        assert producer.places() == []
        if tid is None:
            producer.acks()
        else:
            producer.commit(())
        return sorted(producer.places())

    def there(place: RecordMetadata) -> bytes | None:
        for _ in range(500):
            found = log.read(place.topic, place.partition, place.offset, place.offset + 1, 1)
            if found:
                return found[0].value
            world.advance(20)
        raise AssertionError(f"nothing at {place}")

    producer.send([record(world, b"0", 0), record(world, b"1", 1)])
    producer.send([record(world, b"2", 0)])
    places = settled()
    assert [number for number, _ in places] == [first, first + 1, first + 2]
    assert [there(place) for _, place in places] == [b"0", b"1", b"2"]
    producer.send([record(world, b"%d" % n, 1) for n in range(5_000)])
    places = settled()
    assert [number for number, _ in places] == list(range(first + 3, first + 5_003))
    assert [there(places[n][1]) for n in (0, 1_999, 2_000, 4_999)] == [
        b"0",
        b"1999",
        b"2000",
        b"4999",
    ]


@pytest.mark.parametrize("tid", [None, "g-c-0"])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_column_of_values_is_the_records_that_it_stands_for(
    world: World, tid: str | None, keeps: bool
) -> None:
    log = world.connect().record_log
    topic, numbers = world.name("t"), RowNumbers(range(7, 10))
    log.create_topic(topic, 2)
    producer = log.producer("c", None if tid is None else world.name(tid), None)
    if keeps:
        producer.keep_places()
    if tid is not None:
        producer.init()
    headers = (("f", b"a"), ("n", numbers), ("", None))
    producer.send([record(world, b"before")])
    producer.send_values(ValueColumn(topic, 0, b"k", [b"0", b"", b"2"], headers, 1234))
    producer.send_values(ValueColumn(topic, 0, None, [b"3", b"4"], (("f", b"b"),), 5))
    producer.send_values(ValueColumn(topic, 0, None, [b"5"], (), 6))
    producer.send_values(ValueColumn(topic, 0, None, []))
    producer.send([record(world, b"after")])
    if tid is None:
        assert [(ack.first, ack.last, ack.error) for ack in producer.acks()] == [(0, 7, None)]
    else:
        producer.commit(())
    assert len(producer.places()) == (8 if keeps else 0)
    check_values(world, log, [b"before", b"0", b"", b"2", b"3", b"4", b"5", b"after"])
    found = log.read(topic, 0, 0, END, 100)[1:-1]
    expected = [
        *((b"k", (("f", b"a"), ("n", b"%d" % n), ("", None)), 1234) for n in (7, 8, 9)),
        *[(None, (("f", b"b"),), 5)] * 2,
        (None, (), 6),
    ]
    assert [(one.key, one.headers, one.timestamp_ms) for one in found] == expected


def test_a_column_goes_to_one_partition_as_one_call_does(world: World) -> None:
    log = world.connect().record_log
    topic = world.name("t")
    log.create_topic(topic, 3)
    producer = log.producer("c", world.name("g-c-0"), None)
    producer.init()
    for _ in range(4):
        producer.send_values(ValueColumn(topic, None, None, [b"", b""]))
    producer.commit(())

    def last_values() -> list[tuple[int, bytes | None]]:
        read = [log.read(topic, at, 0, END, 100) for at in range(3)]
        return [(len(records), records[-1].value if records else None) for records in read]

    expected: list[tuple[int, bytes | None]] = [(4, b""), (2, b""), (2, b"")]
    check_soon(world, last_values, expected)
    producer.send_values(ValueColumn(topic, None, b"foobar", [b"by key"]))
    producer.commit(())
    at = (murmur2(b"foobar") & 0x7FFFFFFF) % 3
    expected[at] = (expected[at][0] + 1, b"by key")
    check_soon(world, last_values, expected)


def test_a_column_is_refused_before_anything_of_it_is_sent(world: World) -> None:
    log = world.connect().record_log
    log.create_topic(world.name("t"), 1)
    producer = log.producer("c", world.name("g-c-0"), None)
    producer.init()
    with pytest.raises(UnknownTopicError):
        producer.send_values(ValueColumn(world.name("none?"), None, None, [b"1"]))
    with pytest.raises(ValueError, match="expected 0 to 0"):
        producer.send_values(ValueColumn(world.name("t"), 1, None, [b"2"]))
    producer.send([record(world, b"3")])
    producer.commit(())
    check_values(world, log, [b"3"])


# -- partitions --


def test_key_decides_the_partition_as_kafka_does(world: World) -> None:
    # Values of org.apache.kafka.common.utils.Utils.murmur2, from Kafka's UtilsTest.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, expected in known.items():
        assert murmur2(key) == expected & 0xFFFFFFFF
    log = world.connect().record_log
    log.create_topic(world.name("t"), 4)
    producer = log.producer("c", None, None)
    producer.send([ProducerRecord(world.name("t"), None, key, key) for key in known])
    producer.acks()
    for key in known:
        partition = (murmur2(key) & 0x7FFFFFFF) % 4
        assert key in [r.value for r in log.read(world.name("t"), partition, 0, END, 10)]


def test_without_key_each_call_goes_to_the_next_partition(world: World) -> None:
    log = world.connect().record_log
    log.create_topic(world.name("t"), 3)
    producer = log.producer("c", None, None)
    for _ in range(4):
        producer.send([record(world, b"", None), record(world, b"", None)])
    producer.acks()
    assert log.end_offsets([world.name("t")]) == {
        (world.name("t"), 0): 4,
        (world.name("t"), 1): 2,
        (world.name("t"), 2): 2,
    }


def test_send_refuses_all_or_takes_all(world: World) -> None:
    log = world.connect().record_log
    log.create_topic(world.name("t"), 1)
    producer = log.producer("c", None, None)
    with pytest.raises(UnknownTopicError):
        # Kafka's brokers, too, make no topic of this name because they are asked for it.
        producer.send([record(world, b"1"), ProducerRecord(world.name("none?"), None, None, b"2")])
    with pytest.raises(ValueError, match="expected 0 to 0"):
        producer.send([record(world, b"1"), record(world, b"2", 1)])
    producer.send([record(world, b"3")])
    producer.acks()
    check_values(world, log, [b"3"])


# -- without transactions --


def test_acks_count_what_was_sent(world: World) -> None:
    log = world.connect().record_log
    log.create_topic(world.name("t"), 2)
    producer = log.producer("c", None, None)
    assert producer.acks() == []
    producer.send([record(world, b"1"), record(world, b"2", 1)])
    producer.send([record(world, b"3")])
    [ack] = producer.acks()
    assert (ack.first, ack.last, ack.error) == (0, 2, None)
    assert sorted(v or b"" for v in values(world, log)) == [b"1", b"2", b"3"]
    producer.send([record(world, b"4")])
    [ack] = producer.acks()
    assert (ack.first, ack.last) == (3, 3)


# -- transactions --


def test_nothing_is_visible_before_commit(world: World) -> None:
    transport = world.connect()
    producer = ready(world, transport.record_log)
    producer.send([record(world, b"1")])
    other = world.connect()
    assert values(world, other.record_log) == []
    producer.commit([(b"source", b"1")])
    check_values(world, other.record_log, [b"1"])
    assert [r.value for r in read_on(other.offset_log)[0]] == [b"1"]


def test_a_commit_that_was_begun_is_one_once_its_end_was_awaited(world: World) -> None:
    transport = world.connect()
    producer = ready(world, transport.record_log)
    for n in range(3):
        producer.send([record(world, b"%d" % n)])
        await_end(producer.begin_commit([(b"source", b"%d" % n)]))
    await_end(producer.begin_commit([]))
    check_values(world, transport.record_log, [b"0", b"1", b"2"])
    assert [r.value for r in read_on(transport.offset_log)[0]][-1] == b"2"
    producer.send([record(world, b"aborted")])
    producer.abort()
    producer.send([record(world, b"3")])
    producer.commit([])
    check_values(world, transport.record_log, [b"0", b"1", b"2", b"3"])


def test_a_commit_that_was_begun_by_a_zombie_is_refused(world: World) -> None:
    transport = world.connect()
    zombie = ready(world, transport.record_log, "zombie")
    zombie.send([record(world, b"zombie")])
    ready(world, world.connect().record_log, "heir")
    with pytest.raises(FencedError, match="g-c-0"):
        await_end(zombie.begin_commit([(b"source", b"zombie")]))
    with pytest.raises(FencedError):
        await_end(zombie.begin_commit([]))
    assert values(world, transport.record_log) == []
    assert read_on(transport.offset_log)[0] == []
    zombie.close()


def await_end(committed: Callable[[], None] | None) -> None:
    if committed is not None:
        committed()


def test_abort_leaves_nothing(world: World) -> None:
    transport = world.connect()
    producer = ready(world, transport.record_log)
    producer.send([record(world, b"%d" % n) for n in range(5_000)])
    producer.abort()
    producer.send([record(world, b"kept")])
    producer.commit([])
    check_values(world, transport.record_log, [b"kept"])


@pytest.mark.parametrize("keeps", [False, True])
def test_zombie_is_refused_with_data_and_offsets_together(world: World, keeps: bool) -> None:
    """A zombie is refused also if its delivery reports come in while it is fenced."""
    transport = world.connect()
    zombie = ready(world, transport.record_log, "zombie")
    if keeps:
        zombie.keep_places()
    zombie.send([record(world, b"zombie")])
    heir = world.connect().record_log.producer("heir", world.name("g-c-0"), None)
    heir.init()
    with pytest.raises(FencedError, match="g-c-0"):
        zombie.commit([(b"source", b"zombie")])
    assert values(world, transport.record_log) == []
    assert read_on(transport.offset_log)[0] == []
    heir.send([record(world, b"heir")])
    heir.commit([(b"source", b"heir")])
    with pytest.raises(FencedError):
        zombie.commit([])
    assert zombie.places() == []
    check_values(world, transport.record_log, [b"heir"])


def test_who_only_connects_shuts_out_nobody(world: World) -> None:
    transport = world.connect()
    producer = ready(world, transport.record_log)
    producer.send([record(world, b"1")])
    heir = world.connect().record_log.producer("heir", world.name("g-c-0"), None)
    heir.connect()
    producer.commit([(b"source", b"1")])
    check_values(world, transport.record_log, [b"1"])
    heir.init()
    with pytest.raises(FencedError):
        producer.commit([(b"source", b"2")])
    heir.send([record(world, b"2")])
    heir.commit([])
    check_values(world, transport.record_log, [b"1", b"2"])


def test_offsets_alone_are_fenced_too(world: World) -> None:
    transport = world.connect()
    zombie = ready(world, transport.record_log)
    transport.fencer.fence([world.name("g-c-0")])
    with pytest.raises(FencedError):
        zombie.commit([(b"source", b"zombie")])
    assert read_on(transport.offset_log)[0] == []


def test_producer_that_was_never_initialised_commits_nothing(world: World) -> None:
    log = world.connect().record_log
    log.create_topic(world.name("t"), 1)
    producer = log.producer("c", world.name("g-c-0"), None)
    with pytest.raises(FencedError):
        producer.send([record(world, b"1")])
        producer.commit([])
    assert values(world, log) == []


def test_fencer_shuts_out_all_it_names_and_no_others(world: World) -> None:
    transport = world.connect()
    log = transport.record_log
    named = [ready(world, log, f"c{n}", f"g-c-{n}") for n in range(2)]
    other = ready(world, log, "d", "g-d-0")
    transport.fencer.fence([world.name("g-c-0"), world.name("g-c-1"), world.name("g-never-seen-0")])
    for producer in named:
        producer.send([record(world, b"zombie")])
        with pytest.raises(FencedError):
            producer.commit([])
    other.send([record(world, b"other")])
    other.commit([])
    check_values(world, log, [b"other"])
    fresh = ready(world, log, "fresh", "g-never-seen-0")
    fresh.send([record(world, b"fresh")])
    fresh.commit([])
    check_values(world, log, [b"other", b"fresh"])


# -- the membership of the worker --


def test_init_for_an_ended_membership_shuts_nobody_out(world: World) -> None:
    log = world.connect().record_log
    log.create_topic(world.name("t"), 1)
    tid = world.name("g-c-0")
    if not world.knows_memberships:
        check_last_init_counts(world, log, tid)
        return
    one = HandMember(world, world.connect(), "one")
    two = HandMember(world, world.connect(), "two")
    join_all(world, one, two)
    zombie = log.producer("zombie", tid, (GROUP, one.member_id, one.generation))
    # `one` is silent and removed; its task goes to `two`.
    for _ in range(4):
        world.advance(SESSION_MS // 3)
        two.heartbeat()
    heir = log.producer("heir", tid, (GROUP, two.member_id, two.generation))
    heir.init()
    with pytest.raises(MembershipEndedError, match="no longer a member of workers"):
        zombie.init()
    heir.send([record(world, b"heir")])
    heir.commit([])
    check_values(world, log, [b"heir"])


def check_last_init_counts(world: World, log: RecordLog, tid: str) -> None:
    """Check a log that knows no memberships. Its caller must check after `init` that it still owns
    the task, since `init` fences the producer of any owner."""
    heir = log.producer("heir", tid, (GROUP, "two", 2))
    heir.init()
    heir.send([record(world, b"heir")])
    zombie = log.producer("zombie", tid, (GROUP, "one", 1))
    zombie.init()
    with pytest.raises(FencedError):
        heir.commit([])
    assert values(world, log) == []


def test_init_lets_the_time_of_sessions_pass_itself(world: World) -> None:
    if not world.knows_memberships:
        check_init_in_the_name_of_nobody(world)
        return
    log = world.connect().record_log
    one = HandMember(world, world.connect(), "one")
    join_all(world, one)
    producer = log.producer("c", world.name("g-c-0"), (GROUP, one.member_id, one.generation))
    producer.init()
    # Nobody spoke to the coordinator since: the session has ended all the same.
    world.advance(SESSION_MS + 1)
    with pytest.raises(MembershipEndedError):
        producer.init()


def test_init_in_the_name_of_nobody(world: World) -> None:
    if not world.knows_memberships:
        check_init_in_the_name_of_nobody(world)
        return
    log = world.connect().record_log
    with pytest.raises(MembershipEndedError):
        log.producer("c", world.name("g-c-0"), (GROUP, "stranger", 1)).init()


def check_init_in_the_name_of_nobody(world: World) -> None:
    """And again: a producer may be initialised more than once."""
    log = world.connect().record_log
    log.create_topic(world.name("t"), 1)
    producer = log.producer("c", world.name("g-c-0"), (GROUP, "stranger", 1))
    for value in (b"1", b"2"):
        producer.init()
        producer.send([record(world, value)])
        producer.commit([])
    check_values(world, log, [b"1", b"2"])
