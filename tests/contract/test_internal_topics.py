"""The contract of `ConfigLog` and `KeyedLog`."""

import pytest
from support.embedded.worlds import World, read_on

from headgate.ports import FencedError


def test_config_log_keeps_every_record_in_order(world: World) -> None:
    log = world.connect().config_log
    assert log.end() == 0
    assert log.read(0) == ([], 0)
    assert log.append([("a", b"1"), ("b", None)], privileged=False) == 2
    assert log.append([("a", b"2")], privileged=False) == 3
    found, position = read_on(log)
    assert [(r.offset, r.key, r.value) for r in found] == [
        (0, b"a", b"1"),
        (1, b"b", None),
        (2, b"a", b"2"),
    ]
    assert log.end() == position
    assert log.read(position) == ([], position)


def test_config_log_is_read_from_any_position_and_up_to_a_limit(world: World) -> None:
    log = world.connect().config_log
    log.append([(f"k{n}", b"") for n in range(10)], privileged=False)
    log.end()
    first, position = log.read(0, limit=4)
    assert [r.key for r in first] == [b"k0", b"k1", b"k2", b"k3"]
    for _ in range(2):
        again, after = log.read(position, limit=3)
        assert [r.key for r in again] == [b"k4", b"k5", b"k6"]
    assert [r.key for r in log.read(after)[0]] == [b"k7", b"k8", b"k9"]


def test_config_offset_is_that_of_the_last_record_plus_one(world: World) -> None:
    """Whatever else the log has, the next record is at the config offset or after it."""
    log = world.connect().config_log
    log.claim(1)
    ends = [
        log.append([("a", b"1"), ("b", b"1")], privileged=True),
        log.append([("c", b"1")], privileged=False),
        log.append([("d", b"1")], privileged=True),
        log.append([("e", b"1"), ("f", b"1")], privileged=True),
    ]
    found, position = read_on(log)
    assert [r.key for r in found] == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert [found[n].offset + 1 for n in (1, 2, 3, 5)] == ends
    assert position >= ends[-1]
    # What ends a transaction in the log may come after its writer was told that it is committed.
    found, after = read_on(log, position)
    assert found == []
    assert position <= after <= log.end()


def test_config_log_is_one_for_all_workers(world: World) -> None:
    one, other = world.connect().config_log, world.connect().config_log
    assert read_on(other) == ([], 0)
    one.append([("k", b"v")], privileged=False)
    assert [r.value for r in read_on(other)[0]] == [b"v"]
    _, position = read_on(one)
    other.append([("k", b"w")], privileged=False)
    assert [r.value for r in read_on(one, position)[0]] == [b"w"]


def test_only_who_claimed_may_write_privileged_records(world: World) -> None:
    log = world.connect().config_log
    with pytest.raises(FencedError):
        log.append([("k", b"v")], privileged=True)
    assert read_on(log)[0] == []
    log.claim(1)
    assert log.append([("k", b"v")], privileged=True) == 1


def test_next_claim_shuts_the_earlier_leader_out_and_nothing_of_it_is_written(
    world: World,
) -> None:
    old, new = world.connect().config_log, world.connect().config_log
    old.claim(3)
    old.append([("k", b"old")], privileged=True)
    new.claim(4)
    for _ in range(2):
        with pytest.raises(FencedError):
            old.append([("k", b"zombie"), ("l", b"zombie")], privileged=True)
    new.append([("k", b"new")], privileged=True)
    # Records that anybody may write it still may.
    old.append([("target-state-k", b"{}")], privileged=False)
    assert [r.value for r in read_on(new)[0]] == [b"old", b"new", b"{}"]


def test_who_was_shut_out_may_claim_again(world: World) -> None:
    one, other = world.connect().config_log, world.connect().config_log
    one.claim(3)
    other.claim(4)
    with pytest.raises(FencedError):
        one.append([("k", b"zombie")], privileged=True)
    one.claim(5)
    one.append([("k", b"one")], privileged=True)
    with pytest.raises(FencedError):
        other.append([("k", b"zombie")], privileged=True)
    assert [r.value for r in read_on(other)[0]] == [b"one"]


def test_claim_of_an_earlier_generation(world: World) -> None:
    old, new = world.connect().config_log, world.connect().config_log
    new.claim(4)
    if world.knows_memberships:
        with pytest.raises(FencedError, match="generation 4"):
            old.claim(3)
        new.append([("k", b"v")], privileged=True)
        return
    old.claim(3)  # the log cannot know better; there is one writer all the same
    old.append([("k", b"v")], privileged=True)
    with pytest.raises(FencedError):
        new.append([("k", b"w")], privileged=True)


def test_two_claims_in_one_generation_leave_one_writer(world: World) -> None:
    one, other = world.connect().config_log, world.connect().config_log
    one.claim(4)
    other.claim(4)
    other.append([("k", b"v")], privileged=True)
    with pytest.raises(FencedError):
        one.append([("k", b"v")], privileged=True)


def test_keyed_log_gives_the_latest_of_each_key(world: World) -> None:
    log = world.connect().status_log
    assert read_on(log) == ([], 0)
    log.append([(b"a", b"1"), (b"b", b"1")])
    log.append([(b"a", b"2")])
    records, position = read_on(log)
    assert {r.key: r.value for r in records} == {b"a": b"2", b"b": b"1"}
    assert len(records) == 2
    assert log.read(position) == ([], position)
    log.append([(b"b", None)])
    records, end = read_on(log, position)
    assert [(r.key, r.value) for r in records] == [(b"b", None)]
    assert end > position
    log.append([(b"b", b"3")])
    log.append([(b"b", b"4")])
    records, _ = read_on(log, end)
    assert records[-1].value == b"4"


def test_keyed_log_tells_when_each_was_written(world: World) -> None:
    """If two keys stand for one thing, the record that was written later counts."""
    log = world.connect().offset_log
    for key in (b"a", b"b", b"a", b"c"):
        log.append([(key, b"v")])
        world.advance(20)
    at = {r.key: r.timestamp_ms for r in read_on(log)[0]}
    assert at[b"b"] <= at[b"a"] <= at[b"c"]
    assert at[b"c"] > 0


def test_keyed_log_twice_in_one_append(world: World) -> None:
    log = world.connect().offset_log
    log.append([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    records, _ = read_on(log)
    assert {r.key: r.value for r in records} == {b"a": b"2", b"b": b"1"}
    assert len(records) == 2


def test_keyed_log_is_read_in_parts(world: World) -> None:
    log = world.connect().status_log
    log.append([(b"%d" % n, b"v") for n in range(7)])
    log.end()
    seen: list[bytes | None] = []
    offsets: list[int] = []
    position = 0
    for wanted in (2, 2, 2, 1):
        records, position = log.read(position, limit=2)
        assert len(records) == wanted
        seen += [r.key for r in records]
        offsets += [r.offset for r in records]
    assert sorted(seen) == [b"%d" % n for n in range(7)]  # type: ignore[type-var]
    assert offsets == sorted(set(offsets))


def test_keyed_log_that_rested_is_read_from_the_beginning(world: World) -> None:
    log = world.connect().offset_log
    log.append([(b"a", b"1"), (b"b", b"1")])
    read_on(log)
    log.rest()
    log.rest()
    log.append([(b"a", b"2")])
    world.connect().offset_log.append([(b"c", b"1")])
    records, end = read_on(log)
    assert {r.key: r.value for r in records} == {b"a": b"2", b"b": b"1", b"c": b"1"}
    assert len(records) == 3
    log.append([(b"b", None)])
    assert [(r.key, r.value) for r in read_on(log, end)[0]] == [(b"b", None)]


def test_offsets_and_statuses_are_two_logs(world: World) -> None:
    transport = world.connect()
    transport.offset_log.append([(b"a", b"1")])
    assert read_on(transport.status_log) == ([], 0)
    assert [r.value for r in read_on(world.connect().offset_log)[0]] == [b"1"]
