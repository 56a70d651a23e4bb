"""A change that names an etag is made on the state that was read, or not at all. Reads may wait for
a config offset."""

from dataclasses import replace
from typing import Any

import pytest
from support.herder.setups import SOURCE, created, failure, one_worker, two_workers
from support.herder.world import HerderWorld

from headgate.herder import messages as m
from headgate.ids import TargetState
from headgate.topics.config_records import decode, decode_all
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState

OTHER = {**SOURCE, "file": "other"}
CHANGES: list[m.Call] = [
    m.PutConnectorConfig("c", OTHER),
    m.PatchConnectorConfig("c", {"file": "other"}),
    m.DeleteConnector("c"),
    m.SetTargetState("c", TargetState.PAUSED),
    m.SetTargetState("c", TargetState.STARTED),
    m.SetTargetState("c", TargetState.STOPPED),
]
OFFSETS: list[m.Call] = [m.ResetOffsets("c"), m.AlterOffsets("c", (({"f": "x"}, None),))]


def asked(world: HerderWorld, worker: str, call: m.Call) -> m.Success:
    call_id = world.call(worker, call)
    world.run()
    world.until_settled()
    (answer,) = world.answers[call_id]
    assert isinstance(answer, m.Success), answer
    return answer


def etag(world: HerderWorld, worker: str = "a") -> int:
    entry = world.workers[worker].herder.state.entry("c")
    assert entry is not None
    return entry.etag


@pytest.mark.parametrize("worker", ["a", "b"])
@pytest.mark.parametrize("call", CHANGES, ids=str)
def test_a_change_with_the_etag_that_was_read_is_made(call: Any, worker: str) -> None:
    world = two_workers()
    created(world)
    before = etag(world)
    answer = asked(world, worker, replace(call, etag=before))
    for each in world.workers.values():
        entry = each.herder.state.entry("c")
        if isinstance(call, m.DeleteConnector):
            assert entry is None and answer.etag is None
        else:
            assert entry is not None and entry.etag == answer.etag != before


@pytest.mark.parametrize("worker", ["a", "b"])
@pytest.mark.parametrize("call", CHANGES, ids=str)
def test_one_with_an_older_etag_changes_nothing(call: Any, worker: str) -> None:
    world = two_workers()
    created(world)
    read = etag(world)
    asked(world, "b", m.SetTargetState("c", TargetState.PAUSED))
    now, length = etag(world), len(world.log)
    refused = world.call(worker, replace(call, etag=read))
    world.run()
    found = failure(world, refused)
    assert found.kind is m.ErrorKind.PRECONDITION
    assert f"its etag is {now}, expected etag {read}" in found.message
    assert len(world.log) == length


@pytest.mark.parametrize("call", OFFSETS, ids=str)
def test_offsets_are_changed_of_the_connector_that_was_read(call: Any) -> None:
    world = two_workers()
    created(world)
    read = etag(world)
    asked(world, "a", m.SetTargetState("c", TargetState.STOPPED))
    refused = world.call("b", replace(call, etag=read))
    world.run()
    assert failure(world, refused).kind is m.ErrorKind.PRECONDITION
    asked(world, "b", replace(call, etag=etag(world)))


def test_one_for_a_connector_that_is_gone_is_refused() -> None:
    world = one_worker()
    created(world)
    read = etag(world)
    asked(world, "a", m.DeleteConnector("c"))
    refused = world.call("a", m.PutConnectorConfig("c", OTHER, read))
    world.run()
    assert "it does not exist, expected etag" in failure(world, refused).message
    asked(world, "a", m.CreateConnector("c", SOURCE))
    again = world.call("a", m.DeleteConnector("c", read))
    world.run()
    assert failure(world, again).kind is m.ErrorKind.PRECONDITION


def test_a_pause_that_was_acknowledged_elsewhere_is_not_passed_over() -> None:
    """The leader has not read it when the change comes: it looks before it compares."""
    world = two_workers()
    created(world)
    read = etag(world)
    world.workers["a"].cut_off = True
    paused = world.call("b", m.SetTargetState("c", TargetState.PAUSED))
    world.run()
    assert isinstance(world.answers[paused][0], m.Success)
    assert etag(world, "a") == read, "the leader has read it already"
    changed = world.call("a", m.PutConnectorConfig("c", OTHER, read))
    world.workers["a"].cut_off = False
    world.run()
    assert failure(world, changed).kind is m.ErrorKind.PRECONDITION


def test_of_two_with_one_etag_the_second_is_refused() -> None:
    world = two_workers()
    created(world)
    read = etag(world)
    calls = [
        world.call(each, m.PutConnectorConfig("c", {**OTHER, "by": each}, read)) for each in "ab"
    ]
    world.run()
    kinds = sorted(type(world.answers[each][0]).__name__ for each in calls)
    assert kinds == ["Failure", "Success"]


def test_new_task_configs_leave_the_etag_as_it_is() -> None:
    world = two_workers()
    created(world)
    before = etag(world)
    length = len(world.log)
    configs = ({"a": "1"}, {"a": "2"})
    asked(world, "a", m.PutTaskConfigs("c", configs))
    assert any(key == "connector-c" for key, _ in world.log[length:])
    assert etag(world) == etag(world, "b") == before


def test_a_reader_of_the_compacted_log_has_the_same_etag() -> None:
    world = two_workers()
    created(world)
    asked(world, "a", m.PutTaskConfigs("c", ({"a": "1"}, {"a": "2"})))
    asked(world, "a", m.PutConnectorConfig("c", {**OTHER, "tasks.max": "2"}))
    asked(world, "a", m.PutTaskConfigs("c", ({"a": "3"},)))
    last = {key: offset for offset, (key, _) in enumerate(world.log)}
    kept = [(o, k, v) for o, (k, v) in enumerate(world.log) if last[k] == o]
    assert sum(key == "connector-c" for _, key, _ in kept) == 1
    entry = fold(ConfigState(), [decode(*each) for each in kept]).entry("c")
    assert entry is not None and entry.etag == etag(world)


@pytest.mark.parametrize(
    ("tail", "changed"),
    [
        (b"}", None),
        (b',"changed":7}', 7),
        (b',"changed":9}', 9),
        (b',"changed":10}', None),  # later than the record itself: of another log
        (b',"changed":0}', None),
        (b',"changed":-1}', None),
        (b',"changed":"7"}', None),
        (b',"changed":7.5}', None),
        (b',"other":1,"changed":7}', 7),
        (b',"changed":7,"other":1}', 7),
    ],
)
@pytest.mark.parametrize("config", [b'{"a":"1"}', b"{}", b'{"a":"},\\"changed\\":5"}'])
def test_what_a_record_repeats_is_read_fast_and_slowly_alike(
    config: bytes, tail: bytes, changed: int | None
) -> None:
    import orjson

    record = (9, b"connector-c", b'{"properties":' + config + tail)
    (slow,), (fast,) = decode_all([record]), decode_all([record], orjson.loads)
    assert slow == fast
    assert getattr(slow, "changed", "rejected") == changed


def test_a_task_with_the_field_is_a_task_still() -> None:
    import orjson

    record = (9, b"task-c-0", b'{"properties":{"a":"1"},"changed":7}')
    assert decode_all([record]) == decode_all([record], orjson.loads)


@pytest.mark.parametrize("conditional", [True, False])
def test_a_write_whose_answer_is_lost_is_not_called_safe_to_repeat(conditional: bool) -> None:
    world = one_worker()
    created(world)
    world.holds.append(lambda _, effect: isinstance(effect, m.AppendConfig))
    call = m.PutConnectorConfig("c", OTHER, etag(world) if conditional else None)
    first = world.call("a", call)
    world.run()
    (_, append) = world.held[-1]
    assert isinstance(append, m.AppendConfig)
    world.holds.clear()
    world.log.extend(append.records)  # the brokers have it
    world.give("a", m.ConfigAppendFailed(append.token, "no answer in time", fenced=False))
    world.run()
    told = failure(world, first)
    if not conditional:
        assert told.kind is m.ErrorKind.INTERNAL and "safely retried" in told.message
        return
    assert told.kind is m.ErrorKind.TIMEOUT
    assert "may have been written" in told.message and "no answer in time" in told.message
    world.advance(5_000)
    again = world.call("a", call)
    world.run()
    assert failure(world, again).kind is m.ErrorKind.PRECONDITION


@pytest.mark.parametrize(
    "call",
    [
        m.PutConnectorConfig("no", OTHER, 5),
        m.PatchConnectorConfig("no", {"a": "b"}, 5),
        m.DeleteConnector("no", 5),
        m.SetTargetState("no", TargetState.PAUSED, 5),
        m.SetTargetState("no", TargetState.STOPPED, 5),
        m.ResetOffsets("no", 5),
        m.AlterOffsets("no", (({"p": 1}, None),), 5),
    ],
    ids=lambda call: type(call).__name__,
)
def test_a_condition_on_what_is_not_there_does_not_hold(call: m.Call) -> None:
    world = one_worker()
    created(world)
    call_id = world.call("a", call)
    world.run()
    world.advance(1_000)
    refused = failure(world, call_id)
    assert refused.kind is m.ErrorKind.PRECONDITION
    assert "it does not exist, expected etag 5" in refused.message


def test_a_change_with_an_etag_is_not_asked_twice() -> None:
    """The change may have been made. Repeated, it would be refused, and its user would be told
    so."""
    world = two_workers()
    created(world)
    world.add("z")
    world.advance(10_000)
    world.until_settled()
    world.holds.append(lambda worker, e: isinstance(e, m.CallPeer) and worker.name == "b")
    call_id = world.call("b", m.PutConnectorConfig("c", OTHER, etag(world)), 20_000)
    world.run()
    world.kill("a")
    world.advance(30_000)
    passed = [e for _, e in world.held if isinstance(e, m.CallPeer) and call_id]
    assert len([e for e in passed if isinstance(e.call, m.PutConnectorConfig)]) == 1
    assert failure(world, call_id).kind is m.ErrorKind.TIMEOUT


# -- reading what one has written --


def test_a_read_waits_until_so_much_was_read() -> None:
    world = two_workers()
    created(world)
    world.holds.append(lambda worker, e: isinstance(e, m.ReadConfigToEnd) and worker.name == "b")
    end = len(world.log) + 1
    call_id = world.call("b", m.ShowConnector("c", ("config",), end))
    world.run()
    assert not world.answers[call_id]
    world.holds.clear()
    changed = world.call("a", m.PutConnectorConfig("c", OTHER))
    world.run()
    assert isinstance(world.answers[changed][0], m.Success)
    (_, held), *_ = world.held
    assert isinstance(held, m.ReadConfigToEnd)
    world.give("b", m.ConfigEndRead(held.token))
    world.run()
    (answer,) = world.answers[call_id]
    assert isinstance(answer, m.Success)
    found: Any = answer.value
    assert found["row"]["config"]["file"] == "other" and answer.config_offset == len(world.log)


def test_one_that_waits_for_an_offset_of_nowhere_is_told_so_at_its_deadline() -> None:
    world = one_worker()
    created(world)
    call_id = world.call("a", m.ShowConnectors(min_config_offset=10_000), 5_000)
    world.advance(4_000)
    assert not world.answers[call_id]
    world.advance(2_000)
    found = failure(world, call_id)
    assert found.kind is m.ErrorKind.TIMEOUT
    assert f"to config offset {len(world.log)}" in found.message
