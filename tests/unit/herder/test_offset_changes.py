"""Changes of offsets: they exclude the connector's tasks, and some are refused."""

from typing import Any

import pytest
from support.herder.world import HerderWorld, Worker

from headgate.herder import messages as m
from headgate.herder.calls import OffsetChange
from headgate.herder.offset_input import sink_changes, source_changes
from headgate.ids import TargetState
from headgate.topics.config_records import encode_commit, encode_target_state

SOURCE = {"connector.class": "Source", "tasks.max": "2"}


def stopped(workers: str = "a", **settings: object) -> HerderWorld:
    """`a` leads; the connector ran, and is STOPPED."""
    world = HerderWorld()
    for name in workers:
        world.add(name, **settings)
        world.advance(10_000)
        world.until_settled()
    world.call("a", m.CreateConnector("c", SOURCE))
    world.until_settled()
    world.call("a", m.SetTargetState("c", TargetState.STOPPED))
    world.until_settled()
    world.trace.clear()
    return world


def hold_altering(world: HerderWorld) -> None:
    world.holds.append(lambda _, e: isinstance(e, m.AlterConnectorOffsets))


def is_altered(world: HerderWorld) -> bool:
    return any("alter offsets" in line for line in world.trace)


def answer(world: HerderWorld, call_id: str) -> m.Result:
    (found,) = world.answers[call_id]
    return found


def kind(result: m.Result) -> m.ErrorKind | None:
    return result.kind if isinstance(result, m.Failure) else None


def last_look(worker: Worker, effect: m.Effect) -> bool:
    """The read of the log with the lane held, before the writing."""
    checking = "offsets of c: checking" in worker.herder.view().pending
    return isinstance(effect, m.ReadConfigToEnd) and checking


def lose_leadership(world: HerderWorld) -> None:
    """`b` leads after this, `a` is back as its follower. What `a` had begun goes on."""
    world.workers["a"].frozen = True
    world.advance(20_000)
    world.workers["a"].frozen = False
    world.advance(20_000)
    view = world.workers["b"].herder.view()
    assert view.leader == view.member_id


def test_a_change_that_outlives_its_leader_is_done_when_no_tasks_came_in_between() -> None:
    world = stopped("ab")
    hold_altering(world)
    call_id = world.call("a", m.ResetOffsets("c"), deadline_ms=200_000)
    world.run()
    lose_leadership(world)
    world.release()
    world.run()
    assert isinstance(answer(world, call_id), m.Success)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_change_that_outlives_its_leader_is_not_called_done_when_tasks_came(
    deleted: bool,
) -> None:
    world = stopped("ab")
    hold_altering(world)
    call_id = world.call("a", m.ResetOffsets("c"), deadline_ms=200_000)
    world.run()
    lose_leadership(world)
    if deleted:
        world.log += [("connector-c", None), ("target-state-c", None)]
    else:
        world.call("b", m.SetTargetState("c", TargetState.STARTED))
    world.advance(10_000)
    world.release()
    world.run()
    result = answer(world, call_id)
    assert kind(result) is m.ErrorKind.CONFLICT
    assert isinstance(result, m.Failure)
    assert "look at its offsets" in result.message


def test_the_log_is_read_before_a_change_that_outlived_its_claim_is_called_done() -> None:
    """The former leader has not read what its successor wrote."""
    world = stopped("ab")
    hold_altering(world)
    call_id = world.call("a", m.ResetOffsets("c"), deadline_ms=200_000)
    world.run()
    lose_leadership(world)
    world.holds.append(lambda w, e: isinstance(e, m.ReadConfigToEnd) and w.name == "a")
    world.call("b", m.SetTargetState("c", TargetState.STARTED))
    ((_, alter),) = [(w, e) for w, e in world.held if isinstance(e, m.AlterConnectorOffsets)]
    world.held.clear()
    world.workers["a"].cut_off = True
    world.give("a", m.ConnectorOffsetsAltered(alter.token, handled=True))  # type: ignore[attr-defined]
    world.run()
    assert world.answers[call_id] == []
    world.workers["a"].cut_off = False
    world.advance(1_000)
    world.release()
    world.run()
    assert kind(answer(world, call_id)) is m.ErrorKind.CONFLICT


def test_a_change_goes_to_the_next_leader_when_this_one_is_none_any_more() -> None:
    world = stopped("ab")
    world.holds.append(lambda w, e: isinstance(e, m.ReadConfigToEnd) and w.name == "a")
    call_id = world.call("a", m.ResetOffsets("c"), deadline_ms=200_000)
    world.run()
    world.workers["a"].frozen = True
    world.advance(20_000)
    world.workers["a"].frozen = False
    world.holds.clear()
    world.held.clear()
    world.advance(30_000)
    world.until_settled()
    assert isinstance(answer(world, call_id), m.Success)
    assert "b: alter offsets of c: all" in world.trace
    assert "a: alter offsets of c: all" not in world.trace


def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    world = stopped()
    world.holds.append(lambda _, e: isinstance(e, m.ReadConfigToEnd))
    call_id = world.call("a", m.ResetOffsets("c"), deadline_ms=1_000)
    world.advance(2_000)
    assert kind(answer(world, call_id)) is m.ErrorKind.TIMEOUT
    world.release()
    world.run()
    assert not is_altered(world)


def test_a_class_that_hangs_keeps_nobody_waiting_when_its_time_is_over() -> None:
    world = stopped()
    hold_altering(world)
    hung = world.call("a", m.ResetOffsets("c"), deadline_ms=1_000)
    world.run()
    world.call("a", m.SetTargetState("c", TargetState.STARTED))
    world.advance(500)
    assert world.running() == {"a": []}
    world.advance(1_000)
    world.until_settled()
    assert kind(answer(world, hung)) is m.ErrorKind.TIMEOUT
    assert world.trace.count("a: give up altering offsets") == 1
    assert world.running() == {"a": ["c-0", "c-1"]}
    world.holds.clear()
    world.call("a", m.SetTargetState("c", TargetState.STOPPED))
    world.until_settled()
    again = world.call("a", m.ResetOffsets("c"))
    world.until_settled()
    assert isinstance(answer(world, again), m.Success)
    assert len(world.answers[hung]) == 1


def test_what_is_being_written_keeps_its_lane_when_nobody_waits_for_it_any_more() -> None:
    world = stopped()
    hold_altering(world)
    world.writing = True
    call_id = world.call("a", m.ResetOffsets("c"), deadline_ms=1_000)
    world.run()
    world.call("a", m.SetTargetState("c", TargetState.STARTED))
    world.advance(40_000)
    assert kind(answer(world, call_id)) is m.ErrorKind.TIMEOUT
    assert world.running() == {"a": []}
    world.release()
    world.until_settled()
    assert world.running() == {"a": ["c-0", "c-1"]}
    assert len(world.answers[call_id]) == 1


def test_stopped_is_not_enough_while_there_are_tasks() -> None:
    """Somebody wrote the target state alone."""
    world = HerderWorld()
    world.add("a")
    world.call("a", m.CreateConnector("c", SOURCE))
    world.until_settled()
    world.log.append(encode_target_state("c", TargetState.STOPPED))
    world.until_settled()
    call_id = world.call("a", m.ResetOffsets("c"))
    world.run()
    assert kind(answer(world, call_id)) is m.ErrorKind.BAD_REQUEST


def test_tasks_that_no_round_has_taken_away_yet_are_waited_for() -> None:
    """The last round before the stop does not know that the tasks are to go."""
    world = HerderWorld()
    world.add("a")
    world.add("b")
    world.advance(10_000)
    world.call("a", m.CreateConnector("c", SOURCE))
    world.until_settled()
    world.holds.append(lambda _, e: type(e).__name__ in ("SendGroup", "StopTaskBy"))
    world.call("a", m.SetTargetState("c", TargetState.STOPPED))
    call_id = world.call("a", m.ResetOffsets("c"))
    world.run()
    assert not is_altered(world)
    world.release()
    world.until_settled()
    assert isinstance(answer(world, call_id), m.Success)


def test_a_task_that_another_worker_still_stops_is_waited_for() -> None:
    """The leader has nothing to stop itself, so for it the round is over."""
    world = HerderWorld()
    for name in "ab":
        world.add(name)
        world.advance(10_000)
    world.call("a", m.CreateConnector("c", {**SOURCE, "tasks.max": "1"}))
    world.until_settled()
    assert world.running() == {"a": [], "b": ["c-0"]}
    world.holds.append(lambda _, e: type(e).__name__ == "StopTaskBy")
    world.call("a", m.SetTargetState("c", TargetState.STOPPED))
    world.run()
    call_id = world.call("a", m.ResetOffsets("c"))
    world.advance(5_000)
    assert not is_altered(world)
    world.release()
    world.until_settled()
    assert isinstance(answer(world, call_id), m.Success)


def test_two_changes_are_made_one_after_the_other() -> None:
    world = stopped()
    hold_altering(world)
    first = world.call("a", m.ResetOffsets("c"))
    second = world.call("a", m.AlterOffsets("c", (({"n": 1}, {"m": 1}),)))
    world.run()
    assert len(world.held) == 1
    world.release()
    world.run()
    assert [kind(answer(world, call)) for call in (first, second)] == [None, None]
    assert [line for line in world.trace if "alter" in line] == [
        "a: alter offsets of c: all",
        'a: alter offsets of c: [[{"n": 1}, {"m": 1}]]',
    ]


def test_a_log_that_cannot_be_read_is_said() -> None:
    world = stopped()
    world.holds.append(lambda _, e: isinstance(e, m.ReadConfigToEnd))
    call_id = world.call("a", m.ResetOffsets("c"))
    world.run()
    ((_, read),) = world.held
    assert isinstance(read, m.ReadConfigToEnd)
    world.give("a", m.ConfigEndRead(read.token, "no broker"))
    world.run()
    text = "Failed to read to end of config topic before modifying connector offsets (no broker)"
    assert answer(world, call_id) == m.Failure(m.ErrorKind.INTERNAL, text)


def test_what_was_resumed_elsewhere_is_seen_at_the_end_of_the_log() -> None:
    world = stopped()
    call_id = world.call("a", m.ResetOffsets("c"))
    world.log.append(encode_target_state("c", TargetState.STARTED))
    world.run()
    assert kind(answer(world, call_id)) is m.ErrorKind.BAD_REQUEST
    assert not is_altered(world)


def test_a_resume_that_waits_behind_the_lane_is_seen_before_the_writing() -> None:
    """Another worker has written the resume between the first look and the turn in the lane."""
    world = stopped()
    world.holds.append(last_look)
    call_id = world.call("a", m.ResetOffsets("c"))
    world.run()
    assert len(world.held) == 1
    world.log.append(encode_target_state("c", TargetState.STARTED))
    world.release()
    world.run()
    assert kind(answer(world, call_id)) is m.ErrorKind.BAD_REQUEST
    assert not is_altered(world)


def test_a_commit_that_comes_after_the_fencing_is_fenced_too() -> None:
    world = stopped(exactly_once=True)
    world.holds.append(last_look)
    call_id = world.call("a", m.ResetOffsets("c"))
    world.run()
    assert len(world.held) == 1, world.trace
    world.log.append(encode_commit("c", 0))
    world.release()
    world.until_settled()
    lines = [line for line in world.trace if "fencing" in line or "alter" in line]
    assert lines == [
        "a: append tasks-fencing-c",
        "a: append tasks-fencing-c",
        "a: alter offsets of c as headgate-c-0: all",
    ]
    assert isinstance(answer(world, call_id), m.Success)


def test_a_fencing_that_fails_is_told() -> None:
    world = stopped(exactly_once=True)
    world.holds.append(lambda _, e: isinstance(e, m.FenceProducers))
    call_id = world.call("a", m.ResetOffsets("c"))
    world.run()
    ((_, fence),) = world.held
    assert isinstance(fence, m.FenceProducers)
    world.give("a", m.ProducersFenced(fence.token, "not authorized"))
    world.run()
    result = answer(world, call_id)
    assert isinstance(result, m.Failure)
    assert result.message.startswith("Failed to perform zombie fencing for source connector prior")
    assert "not authorized" in result.message
    assert not is_altered(world)


def test_a_fencing_that_takes_long_is_waited_for() -> None:
    world = stopped(exactly_once=True)
    world.holds.append(lambda _, e: isinstance(e, m.FenceProducers))
    call_id = world.call("a", m.ResetOffsets("c"))
    world.advance(35_000)
    assert world.answers[call_id] == []
    world.release()
    world.run()
    assert isinstance(answer(world, call_id), m.Success)


@pytest.mark.parametrize(
    "command",
    [m.ConnectorOffsetsAltered(999), m.ConnectorOffsetsRead(999, (({"n": 1}, None),))],
    ids=lambda command: type(command).__name__,
)
def test_a_stale_answer_changes_nothing(command: Any) -> None:
    world = stopped()
    hold_altering(world)
    call_id = world.call("a", m.ResetOffsets("c"))
    world.run()
    world.give("a", command)
    world.run()
    assert world.answers[call_id] == []


def test_offsets_that_cannot_be_read_are_said() -> None:
    world = stopped()
    world.holds.append(lambda _, e: type(e).__name__ == "ReadConnectorOffsets")
    call_id = world.call("a", m.ReadOffsets("c"))
    world.run()
    ((_, read),) = world.held
    failure = m.Failure(m.ErrorKind.INTERNAL, "no such topic")
    world.give("a", m.ConnectorOffsetsRead(read.token, failure=failure))  # type: ignore[union-attr]
    world.run()
    assert answer(world, call_id) == failure


def test_fencing_for_a_change_is_asked_of_nobody_else_while_leading() -> None:
    world = stopped("ab", exactly_once=True)
    world.call("a", m.ResetOffsets("c"))
    world.run()
    calls = [e for _, e in world.held if isinstance(e, m.CallPeer)]
    assert not [call for call in calls if isinstance(call.call, m.FenceConnector)]
    assert "a: alter offsets of c as headgate-c-0: all" in world.trace


TP = {"kafka_topic": "t", "kafka_partition": 0}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((None, {"kafka_offset": 1}), "cannot be null or missing"),
        ((7, {"kafka_offset": 1}), "must contain the keys"),
        (({"kafka_partition": 0}, None), "must contain the keys"),
        (({"kafka_topic": None, "kafka_partition": 0}, None), "may not be null"),
        (
            ({**TP, "kafka_partition": None}, None),
            "partition value in the provided offsets: 'null'",
        ),
        (
            ({**TP, "kafka_partition": True}, None),
            "partition value in the provided offsets: 'true'",
        ),
        (({**TP, "kafka_partition": -1}, None), "need to be integers, and not negative"),
        (({**TP, "kafka_partition": 2**31}, None), "Partition values for sink connectors need"),
        ((TP, []), "should either be null or contain the key 'kafka_offset'"),
        ((TP, {"kafka_offset": None}), "offset value in the provided offsets: 'null'"),
        ((TP, {"kafka_offset": "1e3"}), "offset value in the provided offsets: '1e3'"),
        ((TP, {"kafka_offset": -1}), "need to be integers, and not negative"),
        ((TP, {"kafka_offset": 2**63}), "Offset values for sink connectors need to be integers"),
    ],
)
def test_what_is_no_offset_of_a_sink_is_refused(given: OffsetChange, says: str) -> None:
    result = sink_changes([given])
    assert isinstance(result, m.Failure)
    assert result.kind is m.ErrorKind.BAD_REQUEST
    assert says in result.message


def test_the_last_offset_of_a_partition_counts_for_a_sink() -> None:
    given = [(TP, {"kafka_offset": 1}), ({**TP, "kafka_partition": "0"}, {"kafka_offset": "2"})]
    assert sink_changes(given) == ((TP, {"kafka_offset": 2}),)


def test_a_source_may_have_any_primitives() -> None:
    given = ((None, {}), ({}, None), ({"a": None, "b": True, "c": 1.5}, {"d": "x"}))
    assert source_changes(given) == given


@pytest.mark.parametrize("wrong", [{"a": {}}, {"a": [1]}, {"a": 2**63}, {"a": float("nan")}])
@pytest.mark.parametrize("place", [0, 1])
def test_what_a_source_offset_cannot_hold_is_refused(wrong: object, place: int) -> None:
    pair: list[object] = [{}, {}]
    pair[place] = wrong
    result = source_changes([(pair[0], pair[1])])
    assert kind(result) is m.ErrorKind.BAD_REQUEST  # type: ignore[arg-type]
