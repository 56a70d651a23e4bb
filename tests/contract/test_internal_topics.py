"""What `ConfigLog` and `KeyedLog` promise."""

import pytest
from support.worlds import World

from headgate.ports import FencedError


def test_config_log_keeps_every_record_in_order(world: World) -> None:
    log = world.connect().config_log
    assert log.end() == 0
    assert log.read(0) == []
    assert log.append([("a", b"1"), ("b", None)], privileged=False) == 2
    assert log.append([("a", b"2")], privileged=False) == 3
    found = log.read(0)
    assert [(r.offset, r.key, r.value) for r in found] == [
        (0, b"a", b"1"),
        (1, b"b", None),
        (2, b"a", b"2"),
    ]
    assert log.end() == 3


def test_config_log_is_read_from_any_offset_and_up_to_a_limit(world: World) -> None:
    log = world.connect().config_log
    log.append([(f"k{n}", b"") for n in range(10)], privileged=False)
    assert [r.offset for r in log.read(4, limit=3)] == [4, 5, 6]
    assert log.read(10) == []
    assert log.read(99) == []


def test_config_log_is_one_for_all_workers(world: World) -> None:
    one, other = world.connect().config_log, world.connect().config_log
    assert other.read(0) == []
    one.append([("k", b"v")], privileged=False)
    assert [r.value for r in other.read(0)] == [b"v"]
    other.append([("k", b"w")], privileged=False)
    assert [r.value for r in one.read(1)] == [b"w"]


def test_only_who_claimed_may_write_privileged_records(world: World) -> None:
    log = world.connect().config_log
    with pytest.raises(FencedError):
        log.append([("k", b"v")], privileged=True)
    log.claim(1)
    assert log.append([("k", b"v")], privileged=True) == 1


def test_next_claim_shuts_the_earlier_leader_out_and_nothing_of_it_is_written(
    world: World,
) -> None:
    old, new = world.connect().config_log, world.connect().config_log
    old.claim(3)
    old.append([("k", b"old")], privileged=True)
    new.claim(4)
    with pytest.raises(FencedError, match="4"):
        old.append([("k", b"zombie"), ("l", b"zombie")], privileged=True)
    assert new.end() == 1
    new.append([("k", b"new")], privileged=True)
    # Records that anybody may write it still may.
    assert old.append([("target-state-k", b"{}")], privileged=False) == 3


def test_claim_of_an_earlier_generation_is_refused_and_changes_nothing(world: World) -> None:
    old, new = world.connect().config_log, world.connect().config_log
    new.claim(4)
    with pytest.raises(FencedError, match="generation 4"):
        old.claim(3)
    new.append([("k", b"v")], privileged=True)


def test_two_claims_in_one_generation_leave_one_writer(world: World) -> None:
    one, other = world.connect().config_log, world.connect().config_log
    one.claim(4)
    other.claim(4)
    other.append([("k", b"v")], privileged=True)
    with pytest.raises(FencedError):
        one.append([("k", b"v")], privileged=True)


def test_keyed_log_gives_the_latest_of_each_key_in_order_of_change(world: World) -> None:
    log = world.connect().status_log
    assert log.read(0) == ([], 0)
    log.append([(b"a", b"1"), (b"b", b"1")])
    log.append([(b"a", b"2")])
    records, position = log.read(0)
    assert [(r.key, r.value) for r in records] == [(b"b", b"1"), (b"a", b"2")]
    assert log.read(position) == ([], position)
    log.append([(b"b", None)])
    records, end = log.read(position)
    assert [(r.key, r.value) for r in records] == [(b"b", None)]
    assert end > position


def test_keyed_log_twice_in_one_append(world: World) -> None:
    log = world.connect().offset_log
    log.append([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    records, _ = log.read(0)
    assert [(r.key, r.value) for r in records] == [(b"b", b"1"), (b"a", b"2")]


def test_keyed_log_is_read_in_parts(world: World) -> None:
    log = world.connect().status_log
    log.append([(b"%d" % n, b"v") for n in range(7)])
    seen: list[bytes | None] = []
    position = 0
    for _ in range(4):
        records, position = log.read(position, limit=2)
        seen += [r.key for r in records]
    assert seen == [b"%d" % n for n in range(7)]


def test_offsets_and_statuses_are_two_logs(world: World) -> None:
    transport = world.connect()
    transport.offset_log.append([(b"a", b"1")])
    assert transport.status_log.read(0) == ([], 0)
    assert [r.value for r in world.connect().offset_log.read(0)[0]] == [b"1"]
